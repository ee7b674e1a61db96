//! Who owns an object, and what its deletion is to do to what it owns itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use crate::{Machine, names};

/// Finalizer of an object whose dependents are to stay. Source: Kubernetes.
const ORPHAN_FINALIZER: &str = "orphan";

/// The owner that controls an object.
pub fn controller(object: &impl ResourceExt) -> Option<&OwnerReference> {
    let owners = object.owner_references();
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// The name of the pool that a Machine belongs to: its controlling owner, else its label, which long names are hashed in.
pub fn pool_of(machine: &Machine) -> Option<String> {
    match controller(machine) {
        Some(owner) => (owner.kind == "MachinePool").then(|| owner.name.clone()),
        None => names::POOL_NAME.text(machine).map(str::to_owned),
    }
}

/// Whether an object is owned by this very one.
pub fn is_owned_by(object: &impl ResourceExt, owner: &impl ResourceExt) -> bool {
    let uid = owner.meta().uid.as_deref();
    let owners = object.owner_references();
    owners.iter().any(|found| Some(found.uid.as_str()) == uid)
}

/// Whether an object is controlled by this very one.
pub fn is_controlled_by(object: &impl ResourceExt, owner: &impl ResourceExt) -> bool {
    let uid = owner.meta().uid.as_deref();
    controller(object).is_some_and(|found| Some(found.uid.as_str()) == uid)
}

/// Whether the collector is about to take an object that goes from its dependents, which are to stay.
pub fn is_orphaning(object: &impl ResourceExt) -> bool {
    let finalizers = object.finalizers();
    finalizers.iter().any(|found| found == ORPHAN_FINALIZER)
}

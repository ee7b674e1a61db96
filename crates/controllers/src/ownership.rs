//! Objects of providers that belong to a Cluster, a pool or a Machine: taken into ownership, and deleted with their owner.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use muster_api::reference::ContractReference;
use muster_api::{Machine, names, owners};
use muster_informers::{Key, Queue};
use muster_provider::deletion::{self, by_uid};
use serde_json::json;

use crate::objects::{Found, KeyOf};
use crate::{Context, PassError, api};

/// Makes an object of a provider owned by `owner` and labelled with its cluster; does nothing when it is.
pub(crate) async fn own(
    context: &Context,
    namespace: &str,
    reference: &ContractReference,
    object: &DynamicObject,
    owner: OwnerReference,
    cluster: &str,
) -> Result<(), PassError> {
    let owned = object
        .owner_references()
        .iter()
        .any(|o| o.uid == owner.uid && o.controller == owner.controller);
    let labelled = names::CLUSTER_NAME
        .text(object)
        .is_some_and(|name| name == cluster);
    if owned && labelled {
        return Ok(());
    }
    let other = object
        .owner_references()
        .iter()
        .find(|o| o.controller == Some(true) && o.uid != owner.uid);
    if let Some(other) = other
        && owner.controller == Some(true)
    {
        return Err(PassError::Blocked(format!(
            "{} {namespace}/{} belongs to {} {} already; each needs one of its own",
            reference.kind, reference.name, other.kind, other.name
        )));
    }
    let mut owners: Vec<OwnerReference> = object
        .owner_references()
        .iter()
        .filter(|o| o.uid != owner.uid)
        .cloned()
        .collect();
    owners.push(owner);
    let patch = json!({"metadata": {
        "ownerReferences": owners,
        "labels": {names::CLUSTER_NAME: cluster},
        "resourceVersion": object.resource_version(),
    }});
    let Some(objects) = context.objects.api(namespace, reference) else {
        return Ok(());
    };
    let patched = objects
        .patch(
            &reference.name,
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .map_err(api(format!(
            "taking ownership of {} {}",
            reference.kind, reference.name
        )))?;
    context.objects.absorb(reference, patched);
    Ok(())
}

/// Deletes an object of a provider that goes with its owner; whether it is there still. One that belongs to somebody else,
/// or was let go of, is left alone and not waited for.
pub(crate) async fn remove(
    context: &Context,
    owner: &impl ResourceExt,
    reference: &ContractReference,
    queue: &Queue<Key>,
    key_of: KeyOf,
) -> Result<bool, PassError> {
    let namespace = owner.namespace().unwrap_or_default();
    let found = context.objects.get(&namespace, reference, queue, key_of);
    let Found::Here(object) = found.await else {
        return Ok(false);
    };
    if !owners::is_owned_by(&*object, owner) {
        return Ok(false);
    }
    let Some(objects) = context
        .objects
        .api(&namespace, reference)
        .filter(|_| object.metadata.deletion_timestamp.is_none())
    else {
        return Ok(true);
    };
    let what = || format!("deleting {} {}", reference.kind, reference.name);
    // The cache may be behind the collector, which takes dependents from an owner that is deleted as an orphan's is.
    let written = objects
        .get_metadata_opt(&reference.name)
        .await
        .map_err(api(what()))?;
    let Some(written) = written.filter(|written| owners::is_owned_by(written, owner)) else {
        return Ok(false);
    };
    match objects
        .delete(&reference.name, &by_uid(written.metadata.uid))
        .await
    {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(true),
        Err(error) => Err(api(what())(error)),
    }
}

/// Deletes a Machine, so that it is drained, and says why.
pub(crate) async fn delete_machine(
    context: &Context,
    machine: &Machine,
    reason: &str,
    note: String,
) -> Result<(), PassError> {
    let deleted = deletion::delete_machine(
        &context.client,
        &context.caches,
        &context.events,
        machine,
        reason,
        note,
    );
    deleted
        .await
        .map_err(api(format!("deleting Machine {}", machine.name_any())))
}

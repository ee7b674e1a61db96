//! Which InfraMachines a pool has, and their membership put back where somebody took it away.
//!
//! Owner references and labels say whose an InfraMachine is, and all of them can be lost: to a hand, or to the collector
//! when the InfraMachinePool is lost and made anew. What cannot be lost is the instance. So an InfraMachine whose instance
//! is in the group is the pool's, whatever is written on it; and so is one that a Machine of the pool refers to.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::runtime::events::EventType;
use kube::{Api, Resource, ResourceExt};
use muster_api::{MachinePool, contract, names, owners};
use muster_caches::{Management, in_namespace};
use muster_informers::Key;
use serde_json::json;

use super::{Context, Kinds, PassError, Seen, api};
use crate::scale_group::Group;

/// Index values of an InfraMachine: its InfraMachinePool's key by its owner reference, or its label where it has no owner.
pub(super) fn by_owner(machine: &DynamicObject) -> Vec<String> {
    let labelled = || {
        let label = names::POOL_NAME.text(machine)?;
        let alone = machine.owner_references().is_empty();
        let namespace = machine.namespace().unwrap_or_default();
        alone.then(|| ownerless(&namespace, label))
    };
    let key = owner_key(machine).map(|key| key.to_string());
    key.or_else(labelled).into_iter().collect()
}

/// Index value of InfraMachines without owners, by their pool's label.
fn ownerless(namespace: &str, label: &str) -> String {
    format!("{namespace}//{label}")
}

/// Index values of an InfraMachine: its provider ID in its namespace.
pub(super) fn by_provider_id(machine: &DynamicObject) -> Vec<String> {
    let namespace = machine.namespace().unwrap_or_default();
    let id = contract::provider_id(machine);
    id.map(|id| in_namespace(&namespace, &id))
        .into_iter()
        .collect()
}

/// The InfraMachinePool that owns an InfraMachine, by what is written on it.
fn owner_key(machine: &DynamicObject) -> Option<Key> {
    let owner = machine
        .owner_references()
        .iter()
        .find(|owner| owner.kind.ends_with("MachinePool") && owner.controller != Some(true))?;
    Some(Key::new(
        machine.namespace().unwrap_or_default(),
        &owner.name,
    ))
}

/// The InfraMachinePool to look at when an InfraMachine changes: its owner, else that of the pool of its Machine or of its
/// label.
pub(super) fn key_of(caches: &Management, kinds: &Kinds, machine: &DynamicObject) -> Option<Key> {
    owner_key(machine).or_else(|| {
        let namespace = machine.namespace().unwrap_or_default();
        let of_machine = owners::controller(machine)
            .and_then(|owner| caches.machines.get(&Key::new(&namespace, &owner.name)))
            .and_then(|owner| caches.pool_of(&owner));
        let pool = of_machine.or_else(|| {
            let label = names::POOL_NAME.text(machine)?;
            caches.pool_labelled(&namespace, label)
        })?;
        infra_key(kinds, &pool)
    })
}

/// The InfraMachinePool of a MachinePool, if it is of these kinds.
pub(super) fn infra_key(kinds: &Kinds, pool: &MachinePool) -> Option<Key> {
    let infra = &pool.spec.template.spec.infrastructure_ref;
    let ours = infra.kind == kinds.pool.kind && infra.api_group == kinds.pool.group;
    ours.then(|| Key::new(pool.namespace().unwrap_or_default(), &infra.name))
}

/// The InfraMachines of a pool, however little is written on them.
pub(super) fn of_pool<S>(
    context: &Context<S>,
    key: &Key,
    pool: Option<&MachinePool>,
    group: &Group,
) -> Vec<Arc<DynamicObject>> {
    let mut found = context
        .machines
        .by(context.machines_by_pool, &key.to_string());
    if let Some(pool) = pool {
        let value = ownerless(&key.namespace, &names::pool_label(&pool.name_any()));
        found.extend(context.machines.by(context.machines_by_pool, &value));
    }
    let mut known: HashSet<String> = found.iter().map(|machine| machine.name_any()).collect();
    for instance in &group.instances {
        let value = in_namespace(&key.namespace, &instance.provider_id);
        for machine in context.machines.by(context.machines_by_provider_id, &value) {
            if known.insert(machine.name_any()) {
                found.push(machine);
            }
        }
    }
    let pool = pool.filter(|pool| infra_key(&context.kinds, pool).as_ref() == Some(key));
    let machines = pool.map(|pool| context.caches.machines_of(&key.namespace, &pool.name_any()));
    for machine in machines.into_iter().flatten() {
        let name = &machine.spec.infrastructure_ref.name;
        if !known.contains(name)
            && let Some(infra) = context.machines.get(&Key::new(&key.namespace, name))
            && owners::controller(&*infra)
                .is_none_or(|_| owners::is_controlled_by(&*infra, &*machine))
        {
            known.insert(name.clone());
            found.push(infra);
        }
    }
    found
}

/// The owner reference that an InfraMachine has to its InfraMachinePool.
pub(super) fn owner<S>(context: &Context<S>, seen: &Seen) -> OwnerReference {
    OwnerReference {
        api_version: context.kinds.pool.api_version.clone(),
        kind: context.kinds.pool.kind.clone(),
        name: seen.key.name.clone(),
        uid: seen.object.uid().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// Puts owner and labels of an InfraMachine back, where they are not the pool's; what it is like then.
pub(super) async fn restore<S>(
    context: &Context<S>,
    seen: &Seen,
    machine: &Arc<DynamicObject>,
) -> Result<Arc<DynamicObject>, PassError> {
    let pool = seen.pool.name_any();
    let label = names::pool_label(&pool);
    let labelled = names::POOL_NAME.text(&**machine) == Some(&*label)
        && names::CLUSTER_NAME.text(&**machine) == Some(seen.pool.spec.cluster_name.as_str());
    let owned = owners::is_owned_by(&**machine, &*seen.object);
    if labelled && owned {
        return Ok(Arc::clone(machine));
    }
    let kind = &context.kinds.machine;
    let mut list: Vec<OwnerReference> = machine.owner_references().to_vec();
    if !owned {
        // One that was lost leaves a reference to nothing.
        list.retain(|found| found.kind != context.kinds.pool.kind);
        list.push(owner(context, seen));
    }
    let patch = json!({"metadata": {
        "uid": machine.uid(),
        "resourceVersion": machine.resource_version(),
        "ownerReferences": list,
        "labels": {names::CLUSTER_NAME: seen.pool.spec.cluster_name, names::POOL_NAME: label},
    }});
    let name = machine.name_any();
    let all: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &seen.key.namespace, kind);
    let patched = match all
        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(patched) => patched,
        // It changed or went meanwhile; its watch brings it back here.
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
            return Ok(Arc::clone(machine));
        }
        Err(error) => return Err(api(format!("putting {} {name} back", kind.kind))(error)),
    };
    context.machines.absorb(patched.clone());
    if !labelled {
        let note = format!(
            "labels {} and {} say again that this {} is of pool {pool}, to which its instance belongs",
            names::CLUSTER_NAME,
            names::POOL_NAME,
            kind.kind
        );
        let about = patched.object_ref(kind);
        context
            .events
            .say(&about, EventType::Normal, "LabelRestored", "Restore", note)
            .await;
    }
    Ok(Arc::new(patched))
}

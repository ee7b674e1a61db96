//! The end of a pool: its Machines go, each drained unless the Cluster goes too; then what is left of the group.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use muster_api::{Machine, MachinePool, names, owners};
use muster_informers::{Key, Requeue};
use serde_json::json;

use super::ending::{delete, delete_machine, machine_of, machines, may_end, release};
use super::{Context, POLL, POOL_FINALIZER, PassError, api, cloud, infra_pool, members, pause};
use crate::deletion::by_uid;
use crate::scale_group::{InstanceState, ScaleGroup, Size};

/// How soon to look again for what another controller is at.
const SOON: Duration = Duration::from_secs(2);

/// A pass on an InfraMachinePool that is being deleted.
pub(super) async fn pass<S: ScaleGroup>(
    context: &Context<S>,
    key: &Key,
    object: &DynamicObject,
    owner: Option<&MachinePool>,
) -> Result<Requeue, PassError> {
    if !object
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == POOL_FINALIZER)
    {
        return Ok(Requeue::Never);
    }
    if owners::is_orphaning(object) {
        // First the collector takes it from what it owns.
        return Ok(Requeue::After(SOON));
    }
    if context.cloud.adopts(object) {
        if let_go(context, key, owner).await? > 0 {
            return Ok(Requeue::After(POLL));
        }
        return finish(context, key, object).await;
    }
    let left = match owner {
        Some(pool) => remove_machines(context, key, pool).await?,
        None => remove_infra_machines(context, key, None).await?,
    };
    if left > 0 {
        return Ok(Requeue::After(POLL));
    }
    context
        .cloud
        .delete(key)
        .await
        .map_err(cloud("deleting the scale group"))?;
    if context
        .cloud
        .describe(key)
        .await
        .map_err(cloud("describing the scale group"))?
        .is_some()
    {
        return Ok(Requeue::After(POLL));
    }
    finish(context, key, object).await
}

/// Nothing is left: the object may go.
async fn finish<S>(
    context: &Context<S>,
    key: &Key,
    object: &DynamicObject,
) -> Result<Requeue, PassError> {
    let finalizers: Vec<&String> = object
        .finalizers()
        .iter()
        .filter(|f| *f != POOL_FINALIZER)
        .collect();
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": object.resource_version()}});
    let released = infra_pool::pools(context, &key.namespace)
        .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    match released {
        Ok(object) => context.pools.absorb(object),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(api("releasing the pool")(error)),
    }
    Ok(Requeue::Never)
}

/// The end of a pool whose group outlives it: its Machines and InfraMachines go as objects, and nothing else does. Nothing
/// is drained, no Node goes, no instance is terminated. Returns how many were left at the start.
async fn let_go<S: ScaleGroup>(
    context: &Context<S>,
    key: &Key,
    owner: Option<&MachinePool>,
) -> Result<usize, PassError> {
    let infra = context
        .machines
        .by(context.machines_by_pool, &key.to_string());
    let mut left = infra.len();
    let mut owned: Vec<Arc<Machine>> = Vec::new();
    if let Some(pool) = owner {
        owned = context.caches.machines_of(&key.namespace, &pool.name_any());
        left += owned.len();
    }
    owned.extend(
        infra
            .iter()
            .filter_map(|machine| machine_of(context, machine)),
    );
    let api_of: Api<Machine> = Api::namespaced(context.client.clone(), &key.namespace);
    for machine in owned {
        let name = machine.name_any();
        let kept: Vec<&String> = machine
            .finalizers()
            .iter()
            .filter(|f| *f != names::MACHINE_FINALIZER)
            .collect();
        // Without its finalizer the Machine goes without being drained.
        let patch = json!({"metadata": {"finalizers": kept, "uid": machine.uid()}});
        let done = async {
            api_of
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            api_of
                .delete(&name, &by_uid(machine.uid()))
                .await
                .map(|_| ())
        };
        gone(done.await, || format!("letting go of Machine {name}"))?;
    }
    for machine in infra {
        release(context, &machine).await?;
        let deleted = machines(context, &key.namespace)
            .delete(&machine.name_any(), &by_uid(machine.uid()))
            .await
            .map(|_| ());
        gone(deleted, || format!("letting go of {}", machine.name_any()))?;
    }
    Ok(left)
}

/// What is gone already, or is another object by now, needs nothing.
fn gone(done: Result<(), kube::Error>, what: impl FnOnce() -> String) -> Result<(), PassError> {
    match done {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(api(what())(error)),
    }
}

/// Deletes the pool's Machines and terminates instances whose InfraMachine is going; returns how many InfraMachines and
/// Machines are left.
async fn remove_machines<S: ScaleGroup>(
    context: &Context<S>,
    key: &Key,
    pool: &MachinePool,
) -> Result<usize, PassError> {
    shrink_to_what_lives(context, key).await?;
    let mut all = context.caches.machines_of(&key.namespace, &pool.name_any());
    all.retain(|machine| owners::is_controlled_by(&**machine, pool));
    if !super::refers_to(context, pool, key) {
        // The pool has another group by now; only what is left of this one goes.
        let infra = context
            .machines
            .by(context.machines_by_pool, &key.to_string());
        let ours: HashSet<String> = infra.iter().map(|machine| machine.name_any()).collect();
        all.retain(|machine| ours.contains(&machine.spec.infrastructure_ref.name));
    }
    for machine in all.iter().filter(|machine| !machine.is_deleting()) {
        let note = format!("MachinePool {} is being deleted", pool.name_any());
        delete_machine(context, machine, None, "PoolDeleted", note).await?;
    }
    let left = remove_infra_machines(context, key, Some(pool)).await?;
    Ok(left + all.len())
}

/// The pool or its Cluster is going but this object is not yet: nothing is launched any more.
pub(super) async fn hold<S: ScaleGroup>(
    context: &Context<S>,
    key: &Key,
    object: &DynamicObject,
) -> Result<Requeue, PassError> {
    if !context.cloud.adopts(object) {
        shrink_to_what_lives(context, key).await?;
    }
    Ok(Requeue::After(POLL))
}

/// What the cloud could not launch so far is not wanted any more: a group that goes keeps no more than it has.
async fn shrink_to_what_lives<S: ScaleGroup>(
    context: &Context<S>,
    key: &Key,
) -> Result<(), PassError> {
    let group = context
        .cloud
        .describe(key)
        .await
        .map_err(cloud("describing the scale group"))?
        .unwrap_or_default();
    let live = group
        .instances
        .iter()
        .filter(|instance| instance.is_live())
        .count();
    let live = u32::try_from(live).unwrap_or(u32::MAX);
    if live < group.size {
        context
            .cloud
            .set_size(key, live)
            .await
            .map_err(cloud(format!("setting the size to {live}")))?;
    }
    Ok(())
}

async fn remove_infra_machines<S: ScaleGroup>(
    context: &Context<S>,
    key: &Key,
    pool: Option<&MachinePool>,
) -> Result<usize, PassError> {
    let group = context
        .cloud
        .describe(key)
        .await
        .map_err(cloud("describing the scale group"))?
        .unwrap_or_default();
    let existing = members::of_pool(context, key, pool, &group);
    for machine in existing.iter().filter(|m| !pause::is_paused(m)) {
        let id = muster_api::contract::provider_id(machine);
        let instance = group
            .instances
            .iter()
            .find(|i| Some(&i.provider_id) == id.as_ref());
        let deleting = machine.metadata.deletion_timestamp.is_some();
        match instance {
            None if deleting => release(context, machine).await?,
            Some(instance)
                if deleting
                    && instance.state != InstanceState::Terminating
                    && may_end(context, machine) =>
            {
                context
                    .cloud
                    .terminate(key, &instance.id, Size::Lower)
                    .await
                    .map_err(cloud(format!("terminating instance {}", instance.id)))?;
            }
            // One that has no Machine, or whose Machine is gone, has nobody else to delete it.
            _ if !deleting && machine_of(context, machine).is_none() => {
                delete(context, machine).await?;
            }
            _ => {}
        }
    }
    Ok(existing.len())
}

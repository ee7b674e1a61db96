//! The end of a pool: bootstrap and infrastructure objects, which take the Machines along, then the finalizer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::conditions::{Reason as _, types};
use muster_api::reference::Conditioned as _;
use muster_api::{Machine, MachinePool, names, owners};
use muster_informers::Requeue;
use serde_json::json;

use super::{key_of, machines, status};
use crate::ownership::{delete_machine, remove};
use crate::{Context, PassError, api};

/// How soon to look again for what the garbage collector is at.
const SOON: Duration = Duration::from_secs(2);
/// A level check, for an event that never came.
const LEVEL: Duration = Duration::from_secs(30);

pub(super) async fn pass(
    context: &Context,
    pools: &Api<MachinePool>,
    pool: &Arc<MachinePool>,
) -> Result<Requeue, PassError> {
    if !pool.finalizers().iter().any(|f| f == names::POOL_FINALIZER) {
        return Ok(Requeue::Never);
    }
    if owners::is_orphaning(&**pool) {
        let message = "waiting for the garbage collector to take it from its Machines and its infrastructure, which stay".to_owned();
        status::deleting(context, pools, pool, message, None).await?;
        return Ok(Requeue::After(SOON));
    }
    let namespace = pool.namespace().unwrap_or_default();
    let spec = &pool.spec.template.spec;
    let mut waiting: Vec<String> = Vec::new();
    for reference in spec
        .bootstrap
        .config_ref
        .iter()
        .chain(std::iter::once(&spec.infrastructure_ref))
    {
        if remove(context, &**pool, reference, &context.pools, key_of).await? {
            waiting.push(format!("{} {}", reference.kind, reference.name));
        }
    }
    let mut left = context.caches.machines_of(&namespace, &pool.name_any());
    left.retain(|machine| owners::is_controlled_by(&**machine, &**pool));
    machines::limit_leaving(context, pool, &left).await?;
    if waiting.is_empty() {
        // A provider that has gone without its Machines leaves them to nobody else.
        for machine in left.iter().filter(|machine| !machine.is_deleting()) {
            let note = format!("MachinePool {} is being deleted", pool.name_any());
            delete_machine(context, machine, "PoolDeleted", note).await?;
        }
    }
    if !waiting.is_empty() || !left.is_empty() {
        let message = format!(
            "waiting for {} and {} to be deleted",
            stages(&left),
            if waiting.is_empty() {
                "nothing else".to_owned()
            } else {
                waiting.join(", ")
            }
        );
        status::deleting(context, pools, pool, message, Some(&left)).await?;
        return Ok(Requeue::After(LEVEL));
    }
    let finalizers: Vec<&String> = pool
        .finalizers()
        .iter()
        .filter(|f| *f != names::POOL_FINALIZER)
        .collect();
    let patch =
        json!({"metadata": {"finalizers": finalizers, "resourceVersion": pool.resource_version()}});
    match pools
        .patch(
            &pool.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(patched) => context.caches.pools.absorb(patched),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(api("removing the finalizer")(error)),
    }
    Ok(Requeue::Never)
}

/// How many Machines are left, and at which stages of their deletion, the most frequent first.
fn stages(machines: &[Arc<Machine>]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for machine in machines {
        let at = machine.condition_of(types::Deleting::TYPE);
        let stage = at.map_or("not begun", |at| at.reason.as_str());
        *counts.entry(stage).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let told: Vec<String> = counts
        .iter()
        .map(|(stage, count)| format!("{count} {stage}"))
        .collect();
    match machines.len() {
        0 => "no Machine".to_owned(),
        count => format!("{count} Machine(s) ({})", told.join(", ")),
    }
}

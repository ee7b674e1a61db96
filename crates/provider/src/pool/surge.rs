//! How many machines more than its size a pool has during a rollout.

use kube::ResourceExt;
use muster_api::conditions::{Reason as _, types};
use muster_api::reference::Conditioned;
use muster_api::{Machine, MachinePool};
use muster_observe::rollout::{rules, too_new};
use muster_plan::rollout::Strategy;

use super::Context;

/// How many more, by the pool's policy and its machines as they are now. Walks the pool, but only while its policy lets it
/// surge.
pub(super) fn surge<S>(
    context: &Context<S>,
    pool: &MachinePool,
    cluster: &muster_api::Cluster,
) -> u32 {
    let namespace = pool.namespace().unwrap_or_default();
    let policy = context.caches.policy(&namespace, &pool.name_any());
    let spec = policy.as_deref().map(|policy| &policy.spec);
    let Ok(rules) = rules(spec, pool.desired_replicas()) else {
        return 0;
    };
    if rules.strategy == Strategy::OnDelete || too_new(pool, cluster).is_some() {
        return 0;
    }
    let machines = context.caches.machines_of(&namespace, &pool.name_any());
    let outdated = machines.iter().filter(|m| is_outdated(m)).count();
    muster_plan::rollout::surge(rules.strategy, u32::try_from(outdated).unwrap_or(u32::MAX))
}

/// Whether a Machine is to be replaced and its deletion has not begun.
fn is_outdated(machine: &Machine) -> bool {
    let said = machine.condition_of(types::UpToDate::TYPE);
    !machine.is_deleting() && said.is_some_and(|c| c.status == "False")
}

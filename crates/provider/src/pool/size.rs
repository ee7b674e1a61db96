//! The size of the group: raised at once, lowered only by terminations of chosen Machines.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::{Machine, MachinePool};
use muster_informers::Key;
use muster_observe::drain::Rules;
use muster_observe::machine::{self, Nodes};
use muster_plan::pool::{Because, Member, Order, Pool, needs_choice, scale_down};
use serde_json::json;

use super::{Context, PassError, Seen, api, cloud, ending, infra_pool, is_external, marks, surge};
use crate::scale_group::{Group, ScaleGroup};

/// How many instances are wanted: the pool's number and what a rollout needs beyond it, or the group's own where something
/// else owns the size.
pub(super) fn desired<S>(context: &Context<S>, seen: &Seen, group: &Group) -> u32 {
    let pool = context
        .caches
        .pools
        .get(&Key::of(&*seen.pool))
        .unwrap_or_else(|| seen.pool.clone());
    if is_external(&pool) {
        group.size
    } else {
        pool.desired_replicas() + surge::surge(context, &pool, &seen.cluster)
    }
}

/// Brings the group to the pool's size; how soon to look again, where that is sooner than usual.
pub(super) async fn reconcile<S: ScaleGroup>(
    context: &Context<S>,
    seen: &Seen,
    group: &Group,
    size: u32,
    individual: bool,
) -> Result<Option<Duration>, PassError> {
    // A group that was there before the pool brings its size along, once.
    let taken_as_it_is =
        context.cloud.adopts(&seen.object) && !infra_pool::is_provisioned(&seen.object);
    if taken_as_it_is || is_external(&seen.pool) {
        mirror(context, seen, group).await?;
        return Ok(None);
    }
    let desired = desired(context, seen, group);
    let set = |to: u32| async move {
        tracing::info!(pool = %seen.key, from = size, to, "size of the scale group set");
        context
            .cloud
            .set_size(&seen.key, to)
            .await
            .map_err(cloud(format!("setting the size to {to}")))
    };
    if desired >= size {
        context.patience.forget(&seen.key);
        tidy(context, seen).await?;
    }
    if desired > size || !individual && desired != size {
        set(desired).await?;
        return Ok(None);
    }
    if desired == size {
        return Ok(None);
    }
    // What the cloud could not launch needs nobody to go.
    let live = group.instances.iter().filter(|i| i.is_live()).count();
    let live = u32::try_from(live).unwrap_or(u32::MAX);
    if live < size {
        set(desired.max(live)).await?;
    }
    choose(context, seen, desired).await
}

/// Brings the cached pool up to what is written.
pub(super) async fn refresh<S>(context: &Context<S>, seen: &Seen) -> Result<(), PassError> {
    let pools: Api<MachinePool> = Api::namespaced(context.client.clone(), &seen.key.namespace);
    let fresh = pools
        .get_opt(&seen.pool.name_any())
        .await
        .map_err(api("reading the size of the pool"))?;
    if let Some(fresh) = fresh {
        context.caches.pools.absorb(fresh);
    }
    Ok(())
}

/// Deletes the Machines that are chosen to go; how soon to look again, where some are left alone for a moment.
async fn choose<S: ScaleGroup>(
    context: &Context<S>,
    seen: &Seen,
    desired: u32,
) -> Result<Option<Duration>, PassError> {
    let namespace = &seen.key.namespace;
    let machines = context.caches.machines_of(namespace, &seen.pool.name_any());
    let policy = context.caches.policy(namespace, &seen.pool.name_any());
    let pool = machine::pool(policy.as_deref(), desired);
    let leaving = machines.iter().filter(|m| m.is_deleting()).count();
    if !needs_choice(&pool, machines.len(), leaving) {
        return Ok(None);
    }
    let mut members: Vec<Member> = machines.iter().map(|m| machine::member(m)).collect();
    let mut choice = scale_down(&pool, &members);
    let unmarked = choice
        .new_victims()
        .any(|(_, because)| because != Because::Marked);
    let patience = (unmarked && marks::is_autoscaled(&seen.pool))
        .then(|| {
            context
                .patience
                .left(&seen.key, desired, context.clock.now())
        })
        .flatten();
    if patience.is_none() {
        if unmarked {
            marks::refresh(context, &seen.pool, &mut members).await?;
        }
        look_at_nodes(context, seen, &pool, &machines, &mut members).await;
        choice = scale_down(&pool, &members);
    }
    let by_name: HashMap<String, &Arc<Machine>> = machines
        .iter()
        .map(|machine| (machine.name_any(), machine))
        .collect();
    let victims: Vec<(&Arc<Machine>, Because)> = choice
        .new_victims()
        .filter(|(_, because)| patience.is_none() || *because == Because::Marked)
        .filter_map(|(name, because)| Some((*by_name.get(name)?, because)))
        .collect();
    if victims.is_empty() {
        return Ok(patience);
    }
    // The size was lowered before they go, and must not be lowered for them again, whatever the policy says.
    let uids: Vec<String> = victims.iter().filter_map(|(m, _)| m.uid()).collect();
    context
        .sizes
        .remember(&Key::of(&*seen.pool), &uids)
        .await
        .map_err(api("remembering which Machines the size follows"))?;
    for (machine, because) in victims {
        let note = format!(
            "chosen to go since pool {} is to have {desired} machines and this one {}",
            seen.pool.name_any(),
            because.told()
        );
        ending::delete_machine(context, machine, None, "ScaledDown", note).await?;
    }
    Ok(patience)
}

/// Adds what the going of each Machine would disturb. Where the Nodes cannot be looked into, all seem equal in that.
async fn look_at_nodes<S>(
    context: &Context<S>,
    seen: &Seen,
    pool: &Pool,
    machines: &[Arc<Machine>],
    members: &mut [Member],
) {
    let cluster = &seen.pool.spec.cluster_name;
    let namespace = &seen.key.namespace;
    let view = match pool.order {
        Order::LeastDisruption => context.workloads.get(namespace, cluster, FIRST_LOOK).await,
        Order::Newest | Order::Oldest | Order::Random => None,
    };
    let Some(view) = view else {
        return;
    };
    let rules = context
        .caches
        .drain_rules
        .by(context.caches.drain_rules_by_namespace, namespace);
    let rules = Rules::read(&rules);
    let now = context.clock.now();
    let mut nodes = Nodes::new(&rules, Some(&seen.cluster), &*view, now);
    for (machine, member) in machines.iter().zip(members) {
        nodes.look(machine, member);
    }
}

/// How long a choice waits for the first look into the cluster after a start; a cluster that does not answer is noticed
/// sooner.
const FIRST_LOOK: Duration = Duration::from_secs(15);

/// The memory of what the size follows holds only what is on its way.
async fn tidy<S>(context: &Context<S>, seen: &Seen) -> Result<(), PassError> {
    context
        .sizes
        .tidy_walking_pool(&Key::of(&*seen.pool))
        .await
        .map_err(api("forgetting Machines that are gone"))
}

/// The pool's number follows a size that something else owns.
async fn mirror<S>(context: &Context<S>, seen: &Seen, group: &Group) -> Result<(), PassError> {
    if seen.pool.desired_replicas() == group.size {
        return Ok(());
    }
    let pools: Api<MachinePool> = Api::namespaced(context.client.clone(), &seen.key.namespace);
    let patch = json!({"spec": {"replicas": group.size}});
    let patched = pools
        .patch(
            &seen.pool.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .map_err(api("mirroring the size of the scale group"))?;
    context.caches.pools.absorb(patched);
    Ok(())
}

//! The size of the group: raised at once, lowered only by terminations of chosen Machines.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::policy::{ScaleDownOrder, ZoneBalance};
use muster_api::reference::Conditioned;
use muster_api::{Machine, MachinePool, conditions, names};
use muster_caches::in_namespace;
use muster_informers::Key;
use muster_plan::pool::{Balance, Because, Choice, Disruption, Member, Order, Pool, scale_down};
use serde_json::json;

use super::{Context, PassError, Seen, api, cloud, infra_machine, is_external, marks};
use crate::scale_group::{Group, InstanceState, ScaleGroup};

/// How many instances are wanted: the pool's number, or the group's own where something else owns the size.
pub(super) fn desired<S>(context: &Context<S>, seen: &Seen, group: &Group) -> u32 {
    let pool = context
        .caches
        .pools
        .get(&Key::of(&*seen.pool))
        .unwrap_or_else(|| seen.pool.clone());
    if is_external(&pool) {
        group.size
    } else {
        pool.desired_replicas()
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
    if is_external(&seen.pool) {
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
    let live = group
        .instances
        .iter()
        .filter(|i| i.state != InstanceState::Terminating)
        .count();
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
    let value = in_namespace(namespace, &seen.pool.name_any());
    let machines = context
        .caches
        .machines
        .by(context.caches.machines_by_pool, &value);
    let policy = context.caches.policy(namespace, &seen.pool.name_any());
    let rules = policy
        .and_then(|policy| policy.spec.scale_down)
        .unwrap_or_default();
    let pool = Pool {
        desired,
        order: match rules.order {
            ScaleDownOrder::LeastDisruption => Order::LeastDisruption,
            ScaleDownOrder::Newest => Order::Newest,
            ScaleDownOrder::Oldest => Order::Oldest,
            ScaleDownOrder::Random => Order::Random,
        },
        balance: match rules.zone_balance {
            ZoneBalance::Required => Balance::Required,
            ZoneBalance::Preferred => Balance::Preferred,
            ZoneBalance::Ignored => Balance::Ignored,
        },
    };
    let mut members: Vec<Member> = machines.iter().map(|machine| member(machine)).collect();
    let mut choice = scale_down(&pool, &members);
    let unmarked = |choice: &Choice| {
        choice
            .new_victims()
            .any(|(_, because)| because != Because::Marked)
    };
    let patience = (unmarked(&choice) && marks::is_autoscaled(&seen.pool))
        .then(|| {
            context
                .patience
                .left(&seen.key, desired, context.clock.now())
        })
        .flatten();
    if unmarked(&choice)
        && patience.is_none()
        && marks::refresh(context, &seen.pool, &mut members).await?
    {
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
        infra_machine::delete_machine(context, machine, None, "ScaledDown", note).await?;
    }
    Ok(patience)
}

/// The memory of what the size follows holds only what is on its way.
async fn tidy<S>(context: &Context<S>, seen: &Seen) -> Result<(), PassError> {
    context
        .sizes
        .tidy_walking_pool(&Key::of(&*seen.pool))
        .await
        .map_err(api("forgetting Machines that are gone"))
}

/// What the choice needs to know of a Machine.
pub fn member(machine: &Machine) -> Member {
    use conditions::Reason as _;
    use conditions::types::{HealthCheckSucceeded, Ready, UpToDate};
    let says = |type_: &str, status: &str| {
        machine
            .condition_of(type_)
            .is_some_and(|c| c.status == status)
    };
    let annotations = machine.annotations();
    let hooked = annotations.keys().any(|key| {
        key.starts_with(names::PRE_DRAIN_HOOK) || key.starts_with(names::PRE_TERMINATE_HOOK)
    });
    let status = machine.status.as_ref();
    Member {
        name: machine.name_any(),
        created: machine
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        zone: status.and_then(|status| status.failure_domain.clone()),
        leaving: machine.is_deleting(),
        marked: names::DELETE_MACHINE.is_on(machine),
        has_node: machine.node_name().is_some(),
        failed: status.and_then(|s| s.phase) == Some(muster_api::machine::MachinePhase::Failed),
        unhealthy: says(HealthCheckSucceeded::TYPE, "False"),
        ready: says(Ready::TYPE, "True"),
        up_to_date: !says(UpToDate::TYPE, "False"),
        held: hooked || names::SKIP_REMEDIATION.is_on(machine),
        disruption: Disruption::default(),
    }
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

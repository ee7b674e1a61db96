//! The deletion of a Machine: the step is decided in `plan`, carried out here, and told in condition and Events.

mod objects;
mod observe;
mod told;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use muster_api::conditions::{self, Reason as _, types};
use muster_api::machine::{MachinePhase, MachineStatus};
use muster_api::reference::Conditioned as _;
use muster_api::{Machine, names};
use muster_informers::{Key, Requeue};
use muster_plan::drain as plan_drain;
use muster_plan::machine::{Leaving, Step, step};
use muster_plan::turns::{Asking, Turn};
use std::sync::Arc;
use std::time::Duration;

use self::observe::OnNode;
pub(super) use self::observe::existence;
use self::told::Story;
use super::drain::cordon::{self, Wanted};
use super::refusals::Held;
use super::{Infrastructure, Seen, drain, key_of, replacement, status};
use crate::objects::Found;
use crate::workload::OPEN;
use crate::{Context, PassError};

/// How soon what failed is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How soon a drain that waits for its turn asks again; it is woken when one before it ends.
const TURN: Duration = Duration::from_secs(10);
/// A level check of everything that waits for an event which may never come.
const LEVEL: Duration = Duration::from_secs(30);

pub(super) async fn pass(
    context: &Context,
    machine: &Machine,
    seen: &Seen,
) -> Result<Requeue, PassError> {
    let key = Key::of(machine);
    if !machine
        .finalizers()
        .iter()
        .any(|f| f == names::MACHINE_FINALIZER)
    {
        forget(context, &key);
        return Ok(Requeue::Never);
    }
    if let Infrastructure::Unusable(why) = &seen.infrastructure {
        return Err(PassError::Blocked(why.clone()));
    }
    replacement::settle(context, machine, seen).await?;
    let now = context.clock.now();
    let on_node = observe::on_node(context, machine, seen, now);
    let bootstrap = bootstrap(context, machine).await?;
    let leaving = observe::leaving(
        machine,
        seen,
        on_node.as_ref(),
        bootstrap.as_deref(),
        control_plane_goes(context, seen).await,
        now,
    );
    let (at, timed_out) = step(&leaving, now);
    let held = context.refusals.of(&key);
    let turn = match (&at, &on_node) {
        (Step::Drain(_), Some(on_node)) => {
            Some(turn(context, &key, machine, on_node, &leaving, &held, now))
        }
        _ => {
            leave(context, &key);
            None
        }
    };
    let begins = turn.as_ref().is_none_or(|turn| *turn == Turn::Go);
    let mut status = machine.status.clone().unwrap_or_default();
    if begins {
        start(&mut status, &at, now);
    }
    let story = Story {
        machine,
        seen,
        leaving: &leaving,
        at: &at,
        timed_out: &timed_out,
        on_node: on_node.as_ref(),
        turn: turn.as_ref(),
        held: &held,
        now,
    };
    let message = told::message(&story);
    told::tell(context, &story, &message).await;
    if at != Step::Done {
        write_status(context, &story, status, message).await?;
    }
    match at {
        Step::PreDrainHooks(_) | Step::PreTerminateHooks(_) => Ok(Requeue::After(LEVEL)),
        Step::Drain(limit) => match (&on_node, turn) {
            (Some(on_node), Some(Turn::Go)) => {
                let next = evict(context, machine, on_node, held, now).await?;
                Ok(Requeue::After(until(limit, next, now)))
            }
            (Some(on_node), Some(other)) => {
                let wanted = Wanted::Avoided;
                cordon::bring(&on_node.workload, &on_node.node, wanted).await?;
                let limit = match other {
                    Turn::MakesWay { until, .. } => Some(until),
                    Turn::Go | Turn::Full { .. } | Turn::NowhereToGo => limit,
                };
                Ok(Requeue::After(until(limit, TURN, now)))
            }
            _ => {
                // The Cluster's reconciler is who connects.
                let namespace = machine.namespace().unwrap_or_default();
                let cluster = Key::new(namespace, &machine.spec.cluster_name);
                context.clusters.add(cluster);
                Ok(Requeue::After(until(limit, RETRY, now)))
            }
        },
        Step::Volumes(limit) => Ok(Requeue::After(until(limit, LEVEL, now))),
        Step::Infrastructure => {
            if let Infrastructure::Here(object) = &seen.infrastructure {
                let reference = &machine.spec.infrastructure_ref;
                objects::delete(context, machine, reference, object).await?;
            }
            Ok(Requeue::After(LEVEL))
        }
        Step::Bootstrap => {
            if let (Some(reference), Some(object)) = (&machine.spec.bootstrap.config_ref, bootstrap)
            {
                objects::delete(context, machine, reference, &object).await?;
            }
            Ok(Requeue::After(LEVEL))
        }
        Step::Node => match objects::delete_node(context, machine, seen, now).await? {
            None => objects::release(context, machine).await,
            Some(why) => {
                tracing::debug!(machine = %key, %why, "the Node is not deleted yet");
                Ok(Requeue::After(RETRY))
            }
        },
        Step::Done => objects::release(context, machine).await,
    }
}

/// The bootstrap object that is a Machine's own; Machines of pools have none.
async fn bootstrap(
    context: &Context,
    machine: &Machine,
) -> Result<Option<Arc<kube::core::DynamicObject>>, PassError> {
    let Some(reference) = &machine.spec.bootstrap.config_ref else {
        return Ok(None);
    };
    let namespace = machine.namespace().unwrap_or_default();
    match context
        .objects
        .get(&namespace, reference, &context.machines, key_of)
        .await
    {
        Found::Here(object) => Ok(Some(object)),
        Found::Missing => Ok(None),
        Found::Unusable(why) => Err(PassError::Blocked(why)),
    }
}

/// Whether the control plane of the Machine's Cluster is being deleted: nobody needs its Pods moved. Source: Cluster API.
async fn control_plane_goes(context: &Context, seen: &Seen) -> bool {
    let Some(cluster) = &seen.cluster else {
        return false;
    };
    let Some(reference) = &cluster.spec.control_plane_ref else {
        return false;
    };
    let namespace = cluster.namespace().unwrap_or_default();
    let of_cluster = crate::cluster::key_of;
    match context
        .objects
        .get(&namespace, reference, &context.clusters, of_cluster)
        .await
    {
        Found::Here(object) => object.metadata.deletion_timestamp.is_some(),
        Found::Missing | Found::Unusable(_) => false,
    }
}

/// Whether the drain goes on now.
fn turn(
    context: &Context,
    key: &Key,
    machine: &Machine,
    on_node: &OnNode,
    leaving: &Leaving,
    held: &Held,
    now: Timestamp,
) -> Turn<Key> {
    let workload = &on_node.workload;
    let asking = Asking {
        began: leaving.drain_started.is_some(),
        urgent: leaving.deadline.is_some(),
        cordoned: cordon::is_cordoned(&on_node.node),
        stuck: held.stuck,
        open_nodes: workload.nodes.count(workload.nodes_open, OPEN),
    };
    let cluster = Key::new(key.namespace.clone(), &machine.spec.cluster_name);
    context
        .drains
        .ask(&cluster, key, observe::asked(machine, now), asking, now)
}

/// A Machine is gone, or has nothing to drain any more: whoever waited for its turn may have it.
pub(super) fn forget(context: &Context, key: &Key) {
    context.refusals.set(key, Held::default());
    leave(context, key);
}

/// Gives the turn of a Machine's drain to others.
pub(super) fn leave(context: &Context, key: &Key) {
    for machine in context.drains.leave(key) {
        context.machines.add(machine);
    }
}

/// How long to wait: not past a limit.
fn until(limit: Option<Timestamp>, next: Duration, now: Timestamp) -> Duration {
    let left = limit.and_then(|limit| Duration::try_from(limit.duration_since(now)).ok());
    left.map_or(next, |left| left.min(next))
}

/// Cordons the Node and asks for evictions; how soon to look again.
async fn evict(
    context: &Context,
    machine: &Machine,
    on_node: &OnNode,
    before: Held,
    now: Timestamp,
) -> Result<Duration, PassError> {
    let name = machine.name_any();
    let wanted = Wanted::Cordoned(&name);
    let outcome = cordon::bring(&on_node.workload, &on_node.node, wanted).await?;
    told::tell_cordon(context, machine, &outcome).await;
    let Ok(step) = &on_node.drain else {
        return Ok(LEVEL);
    };
    let told = machine
        .condition_of(types::Deleting::TYPE)
        .map(|said| plan_drain::since_when(&said.message))
        .unwrap_or_default();
    let (asked, next) = drain::evict(
        &on_node.workload,
        &step.evict,
        on_node.unreachable,
        &before.asked,
        &told,
        now,
    )
    .await;
    let (was, refused) = (before.refused(), plan_drain::asking::refusals(&asked));
    let stuck = plan_drain::is_held_by_budgets(step, &refused)
        && drain::waits_for_room(&on_node.workload, &step.evict);
    let news = refused.len() != was.len()
        || refused
            .iter()
            .any(|(pod, (refusal, _))| was.get(pod).map(|(was, _)| was) != Some(refusal));
    let held = Held {
        asked,
        stuck: stuck.then(|| before.stuck.unwrap_or(now)),
    };
    context.refusals.set(&Key::of(machine), held);
    if news {
        // What was refused is told at once, not at the next try.
        return Ok(Duration::ZERO);
    }
    let node = plan_drain::Node {
        unreachable: on_node.unreachable,
    };
    let ceases = plan_drain::next_to_cease(step, node).map(|at| at.duration_since(now));
    let soonest = next.into_iter().chain(ceases).min();
    let soonest = soonest.and_then(|left| Duration::try_from(left).ok());
    Ok(soonest.map_or(LEVEL, |left| left.min(LEVEL)))
}

/// Records the start of a step that begins now.
fn start(status: &mut MachineStatus, at: &Step, now: Timestamp) {
    let second = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let times = status.deletion.clone().unwrap_or_default();
    let mut next = times.clone();
    let field = match at {
        Step::PreDrainHooks(_) => &mut next.wait_for_pre_drain_hook_start_time,
        Step::Drain(_) => &mut next.node_drain_start_time,
        Step::Volumes(_) => &mut next.wait_for_node_volume_detach_start_time,
        Step::PreTerminateHooks(_) => &mut next.wait_for_pre_terminate_hook_start_time,
        Step::Infrastructure | Step::Bootstrap | Step::Node | Step::Done => return,
    };
    field.get_or_insert(second);
    if next != times {
        status.deletion = Some(next);
    }
}

async fn write_status(
    context: &Context,
    story: &Story<'_>,
    mut status: MachineStatus,
    message: String,
) -> Result<(), PassError> {
    let generation = story.machine.metadata.generation;
    let now = story.now;
    for said in [
        told::reason(story.at).holds().because(message),
        told::ready(story),
        types::Available::NotReady.fails(),
        types::Paused::NotPaused.fails(),
    ] {
        conditions::set(&mut status.conditions, said, generation, now);
    }
    // Whoever asked for its repair sees that it has begun. Source: Cluster API.
    let asked = types::OwnerRemediated::TYPE;
    if status.conditions.iter().any(|said| said.type_ == asked) {
        let said = types::OwnerRemediated::MachineDeleting.fails();
        conditions::set(&mut status.conditions, said, generation, now);
    }
    if status.phase != Some(MachinePhase::Deleting) {
        status.phase = Some(MachinePhase::Deleting);
        status.last_updated = Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
    }
    status::put(context, story.machine, status).await
}

//! The deletion of a Machine: the step is decided in `plan`, carried out here, and told in condition and Events.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::events::EventType;
use kube::{Api, ResourceExt};
use muster_api::conditions::{self, Reason as _, types};
use muster_api::machine::{MachinePhase, MachineStatus};
use muster_api::reference::Conditioned;
use muster_api::{Machine, names};
use muster_informers::{Key, Requeue};
use muster_plan::drain as plan_drain;
use muster_plan::machine::{Infrastructure as Infra, Leaving, NodeConcern, Step, TimedOut, step};
use muster_provider::events::about;
use serde_json::json;
use std::time::Duration;

use super::{Infrastructure, NodeSeen, Refusals, Seen, drain, replacement, status};
use crate::{Context, PassError, api};

/// How soon refused evictions are asked for again.
const RETRY: Duration = Duration::from_secs(2);
/// A level check of everything that waits for an event which may never come.
const LEVEL: Duration = Duration::from_secs(30);

pub(super) async fn pass(
    context: &Context,
    refusals: &Refusals,
    machine: &Machine,
    seen: &Seen,
) -> Result<Requeue, PassError> {
    if !machine
        .finalizers()
        .iter()
        .any(|f| f == names::MACHINE_FINALIZER)
    {
        return Ok(Requeue::Never);
    }
    if let Infrastructure::Unusable(why) = &seen.infrastructure {
        return Err(PassError::Blocked(why.clone()));
    }
    replacement::settle(context, machine, seen).await?;
    let now = context.clock.now();
    let key = Key::of(machine);
    let node = match &seen.node {
        NodeSeen::Here(node) => Some(node.clone()),
        _ => None,
    };
    let unreachable = node.as_ref().is_some_and(|node| is_unreachable(node));
    let (planned, drained) = match (&node, &seen.workload) {
        (Some(node), Some(workload)) => {
            let pods = drain::pods(
                context,
                machine,
                seen.cluster.as_deref(),
                workload,
                &node.name_any(),
            )?;
            let planned = plan_drain::step(&pods, plan_drain::Node { unreachable }, now);
            let done = planned.is_done();
            (planned, Some(done))
        }
        _ => (plan_drain::Step::default(), None),
    };
    let detached = match (&node, &seen.workload) {
        // The kubelet of an unreachable Node cannot report a detach.
        (Some(_), Some(_)) if unreachable => Some(true),
        (Some(node), Some(workload)) => {
            let attached = workload
                .attachments
                .by(workload.attachments_by_node, &node.name_any());
            Some(!attached.iter().any(|attachment| {
                attachment
                    .status
                    .as_ref()
                    .is_some_and(|status| status.attached)
            }))
        }
        _ => None,
    };
    let leaving = leaving(machine, seen, drained, detached, now);
    let (at, timed_out) = step(&leaving, now);
    let mut status = machine.status.clone().unwrap_or_default();
    start(&mut status, &at, now);
    let message = match &at {
        Step::Drain(limit) if drained.is_some() => {
            let since = leaving.drain_started.unwrap_or(now);
            plan_drain::message(since, &planned, &refusals.of(&key), *limit, now)
        }
        Step::Drain(_) => format!(
            "the API of Cluster {} does not answer, so Node {} cannot be drained; it is tried again",
            machine.spec.cluster_name,
            machine.node_name().unwrap_or("?")
        ),
        Step::PreDrainHooks(hooks) | Step::PreTerminateHooks(hooks) => {
            format!("Waiting for hooks (hooks: {})", hooks.join(", "))
        }
        Step::Volumes(_) => "Waiting for volumes to be detached from the Node".to_owned(),
        Step::Infrastructure => format!(
            "Waiting for {} {} to be deleted",
            machine.spec.infrastructure_ref.kind, machine.spec.infrastructure_ref.name
        ),
        Step::Node => format!("Deleting Node {}", machine.node_name().unwrap_or_default()),
        Step::Done => "Deletion completed".to_owned(),
    };
    tell(context, machine, &at, &message, &timed_out).await;
    if at != Step::Done {
        write_status(context, machine, status, &at, message, now).await?;
    }
    match at {
        Step::PreDrainHooks(_) | Step::PreTerminateHooks(_) => Ok(Requeue::Never),
        Step::Drain(limit) => {
            let (Some(node), Some(workload)) = (node, &seen.workload) else {
                let cluster = Key::new(
                    machine.namespace().unwrap_or_default(),
                    &machine.spec.cluster_name,
                );
                context.clusters.add(cluster);
                return Ok(Requeue::After(RETRY));
            };
            cordon(workload, &node).await?;
            let before = refusals.of(&key);
            let refused = drain::evict(workload, &planned.evict, unreachable, &before, now).await;
            let news = refused.len() != before.len()
                || refused.keys().any(|pod| !before.contains_key(pod));
            let waits = !refused.is_empty();
            refusals.set(&key, refused);
            if news {
                // What was refused is told at once, not at the next try.
                return Ok(Requeue::After(Duration::ZERO));
            }
            let until = limit.and_then(|limit| Duration::try_from(limit.duration_since(now)).ok());
            let next = if waits { RETRY } else { LEVEL };
            Ok(Requeue::After(until.map_or(next, |until| until.min(next))))
        }
        Step::Volumes(limit) => {
            let until = limit.and_then(|limit| Duration::try_from(limit.duration_since(now)).ok());
            Ok(Requeue::After(
                until.map_or(LEVEL, |until| until.min(LEVEL)),
            ))
        }
        Step::Infrastructure => {
            delete_infrastructure(context, machine, seen).await?;
            Ok(Requeue::After(LEVEL))
        }
        Step::Node => {
            delete_node(context, machine, seen, now).await?;
            release(context, refusals, machine).await
        }
        Step::Done => release(context, refusals, machine).await,
    }
}

fn is_unreachable(node: &Node) -> bool {
    node.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}

fn leaving(
    machine: &Machine,
    seen: &Seen,
    drained: Option<bool>,
    detached: Option<bool>,
    now: Timestamp,
) -> Leaving {
    let hooks = |prefix: &str| {
        let mut names: Vec<String> = machine
            .annotations()
            .keys()
            .filter_map(|key| key.strip_prefix(prefix))
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .map(|rest| rest.trim_start_matches('/').to_owned())
            .collect();
        names.sort();
        names
    };
    let times = machine
        .status
        .as_ref()
        .and_then(|status| status.deletion.clone())
        .unwrap_or_default();
    let at = |time: &Option<Time>| time.as_ref().map(|time| time.0);
    let limits = machine.spec.deletion.clone().unwrap_or_default();
    let seconds =
        |limit: Option<i32>| limit.map(|seconds| SignedDuration::from_secs(i64::from(seconds)));
    let cluster_deleting = seen
        .cluster
        .as_ref()
        .is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some());
    let node = match (&seen.node, machine.node_name()) {
        _ if cluster_deleting => NodeConcern::ClusterDeleting,
        (NodeSeen::Here(_), _) => NodeConcern::Ours,
        (NodeSeen::Unreachable, Some(_)) => NodeConcern::Ours,
        // It never joined, or is gone: nothing to drain.
        (NodeSeen::Missing | NodeSeen::Several(_) | NodeSeen::Unreachable, _) => {
            NodeConcern::NoNode
        }
    };
    Leaving {
        asked: machine
            .metadata
            .deletion_timestamp
            .as_ref()
            .map_or(now, |time| time.0),
        pre_drain_hooks: hooks(names::PRE_DRAIN_HOOK),
        pre_terminate_hooks: hooks(names::PRE_TERMINATE_HOOK),
        node,
        skips_drain: names::EXCLUDE_DRAIN.is_on(machine),
        skips_volumes: names::EXCLUDE_VOLUME_WAIT.is_on(machine),
        drain_started: at(&times.node_drain_start_time),
        volumes_started: at(&times.wait_for_node_volume_detach_start_time),
        pre_terminate_started: at(&times.wait_for_pre_terminate_hook_start_time),
        drain_timeout: seconds(limits.node_drain_timeout_seconds),
        volume_timeout: seconds(limits.node_volume_detach_timeout_seconds),
        deadline: names::TERMINATION_DEADLINE.read(machine).ok().flatten(),
        infrastructure: match &seen.infrastructure {
            Infrastructure::Here(object) if object.metadata.deletion_timestamp.is_some() => {
                Infra::Deleting
            }
            Infrastructure::Here(_) => Infra::Present,
            Infrastructure::Missing | Infrastructure::Unusable(_) => Infra::Gone,
        },
        drained,
        detached,
    }
}

/// Records the start of a step that begins now.
fn start(status: &mut MachineStatus, at: &Step, now: Timestamp) {
    let second = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let times = status.deletion.get_or_insert_default();
    let field = match at {
        Step::PreDrainHooks(_) => &mut times.wait_for_pre_drain_hook_start_time,
        Step::Drain(_) => &mut times.node_drain_start_time,
        Step::Volumes(_) => &mut times.wait_for_node_volume_detach_start_time,
        Step::PreTerminateHooks(_) => &mut times.wait_for_pre_terminate_hook_start_time,
        Step::Infrastructure | Step::Node | Step::Done => return,
    };
    field.get_or_insert(second);
}

fn reason(at: &Step) -> types::Deleting {
    match at {
        Step::PreDrainHooks(_) => types::Deleting::WaitingForPreDrainHook,
        Step::Drain(_) => types::Deleting::DrainingNode,
        Step::Volumes(_) => types::Deleting::WaitingForVolumeDetach,
        Step::PreTerminateHooks(_) => types::Deleting::WaitingForPreTerminateHook,
        Step::Infrastructure => types::Deleting::WaitingForInfrastructureDeletion,
        Step::Node => types::Deleting::DeletingNode,
        Step::Done => types::Deleting::DeletionCompleted,
    }
}

/// Says what begins and what ended, once each: when the condition's reason changes.
async fn tell(
    context: &Context,
    machine: &Machine,
    at: &Step,
    message: &str,
    timed_out: &[TimedOut],
) {
    let before = machine
        .condition_of(types::Deleting::TYPE)
        .map(|condition| condition.reason.clone())
        .unwrap_or_default();
    let now = reason(at).as_str();
    if before == now {
        return;
    }
    let object = about(machine);
    let node = machine.node_name().unwrap_or_default();
    let say = |type_, reason: &'static str, note: String| {
        context.events.say(&object, type_, reason, "Delete", note)
    };
    if before == types::Deleting::DrainingNode.as_str() {
        if timed_out.contains(&TimedOut::Drain) {
            let note = format!(
                "the drain of Node {node} has not ended within its limit; the machine is terminated with what is left on it"
            );
            say(EventType::Warning, "FailedDrainNode", note).await;
        } else {
            say(
                EventType::Normal,
                "SuccessfulDrainNode",
                format!("Node {node} was drained"),
            )
            .await;
        }
    }
    if timed_out.contains(&TimedOut::Volumes)
        && before == types::Deleting::WaitingForVolumeDetach.as_str()
    {
        let note = format!("volumes were not detached from Node {node} within the limit");
        say(EventType::Warning, "FailedWaitForVolumeDetach", note).await;
    }
    if *at != Step::Done {
        let first = message.lines().next().unwrap_or_default();
        let note = match at {
            Step::Drain(_) => format!("Node {node} is cordoned and drained"),
            _ => first.to_owned(),
        };
        say(EventType::Normal, now, note).await;
    }
}

async fn write_status(
    context: &Context,
    machine: &Machine,
    mut status: MachineStatus,
    at: &Step,
    message: String,
    now: Timestamp,
) -> Result<(), PassError> {
    let generation = machine.metadata.generation;
    let said = reason(at).holds().because(message);
    conditions::set(&mut status.conditions, said, generation, now);
    let stage = format!(
        "* Deleting: Machine deletion in progress, stage: {}",
        reason(at).as_str()
    );
    let ready = types::Ready::NotReady.fails().because(stage);
    conditions::set(&mut status.conditions, ready, generation, now);
    conditions::set(
        &mut status.conditions,
        types::Available::NotReady.fails(),
        generation,
        now,
    );
    if status.phase != Some(MachinePhase::Deleting) {
        status.phase = Some(MachinePhase::Deleting);
        status.last_updated = Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
    }
    status::put(context, machine, status).await
}

async fn cordon(workload: &crate::workload::Workload, node: &Node) -> Result<(), PassError> {
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        return Ok(());
    }
    let nodes: Api<Node> = Api::all(workload.client.clone());
    let patch = json!({"spec": {"unschedulable": true}});
    match nodes
        .patch(
            &node.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(patched) => workload.nodes.absorb(patched),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(api(format!("cordoning Node {}", node.name_any()))(error)),
    }
    Ok(())
}

async fn delete_infrastructure(
    context: &Context,
    machine: &Machine,
    seen: &Seen,
) -> Result<(), PassError> {
    let Infrastructure::Here(object) = &seen.infrastructure else {
        return Ok(());
    };
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let reference = &machine.spec.infrastructure_ref;
    let Some(objects) = context
        .objects
        .api(&machine.namespace().unwrap_or_default(), reference)
    else {
        return Ok(());
    };
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: object.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match objects.delete(&reference.name, &params).await {
        Ok(either::Either::Left(object)) => context.objects.absorb(reference, object),
        Ok(either::Either::Right(_)) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(error) => {
            return Err(api(format!(
                "deleting {} {}",
                reference.kind, reference.name
            ))(error));
        }
    }
    Ok(())
}

/// Deletes the Node object; within its limit a failure is tried again, after it the Machine goes on without.
async fn delete_node(
    context: &Context,
    machine: &Machine,
    seen: &Seen,
    now: Timestamp,
) -> Result<(), PassError> {
    let (NodeSeen::Here(node), Some(workload)) = (&seen.node, &seen.workload) else {
        return Ok(());
    };
    let nodes: Api<Node> = Api::all(workload.client.clone());
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: node.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match nodes.delete(&node.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => {
            let limit = machine
                .spec
                .deletion
                .as_ref()
                .and_then(|d| d.node_deletion_timeout_seconds)
                .unwrap_or(10);
            let since = machine
                .condition_of(types::Deleting::TYPE)
                .filter(|condition| condition.reason == "DeletingNode")
                .map_or(now, |condition| condition.last_transition_time.0);
            let over = limit > 0
                && now.duration_since(since) >= SignedDuration::from_secs(i64::from(limit));
            if !over {
                return Err(api(format!("deleting Node {}", node.name_any()))(error));
            }
            let note = format!(
                "Node {} could not be deleted within {limit}s and is left behind: {error}",
                node.name_any()
            );
            context
                .events
                .say(
                    &about(machine),
                    EventType::Warning,
                    "FailedDeleteNode",
                    "Delete",
                    note,
                )
                .await;
            Ok(())
        }
    }
}

async fn release(
    context: &Context,
    refusals: &Refusals,
    machine: &Machine,
) -> Result<Requeue, PassError> {
    refusals.set(&Key::of(machine), std::collections::BTreeMap::new());
    let finalizers: Vec<&String> = machine
        .finalizers()
        .iter()
        .filter(|f| *f != names::MACHINE_FINALIZER)
        .collect();
    let patch = json!({"metadata": {"finalizers": finalizers, "uid": machine.uid()}});
    let machines: Api<Machine> = Api::namespaced(
        context.client.clone(),
        &machine.namespace().unwrap_or_default(),
    );
    match machines
        .patch(
            &machine.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(error) => return Err(api("removing the finalizer")(error)),
    }
    Ok(Requeue::Never)
}

//! A Machine that is being deleted, as `plan` wants to know it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::core::DynamicObject;
use muster_api::{Machine, names};
use muster_observe::drain::is_unreachable;
use muster_observe::machine::hooks;
use muster_observe::volumes;
use muster_plan::drain as plan_drain;
use muster_plan::machine::{Existence, Leaving, NodeConcern};
use muster_plan::volumes::Detach;
use std::sync::Arc;

use super::super::drain::cordon::is_cordoned;
use super::super::{Infrastructure, NodeSeen, Seen, drain};
use super::told;
use crate::Context;
use crate::workload::Workload;

/// How long the deletion of a Node object is tried where nobody said how long. Source: Cluster API.
const NODE_DELETION: i32 = 10;

/// What is on the Node, once both it and its cluster can be read.
pub(super) struct OnNode {
    pub(super) node: Arc<Node>,
    pub(super) workload: Arc<Workload>,
    /// Its kubelet does not answer.
    pub(super) unreachable: bool,
    /// What the drain does next, or why that cannot be told.
    pub(super) drain: Result<plan_drain::Step, String>,
    pub(super) detach: Detach,
}

impl OnNode {
    /// Drained is what takes no new Pods and has none left.
    fn is_drained(&self) -> Option<bool> {
        let drain = self.drain.as_ref().ok()?;
        Some(drain.is_done() && is_cordoned(&self.node))
    }
}

pub(super) fn on_node(
    context: &Context,
    machine: &Machine,
    seen: &Seen,
    now: Timestamp,
) -> Option<OnNode> {
    let (NodeSeen::Here(node), Some(workload)) = (&seen.node, &seen.workload) else {
        return None;
    };
    let unreachable = is_unreachable(node);
    let pods = drain::pods(
        context,
        machine,
        seen.cluster.as_deref(),
        workload,
        &node.name_any(),
    );
    let drain = pods.map(|pods| plan_drain::step(&pods, plan_drain::Node { unreachable }, now));
    let skipped = drain.as_ref().map(|drain| drain.skipped.as_slice());
    let detach = if unreachable {
        // The kubelet of an unreachable Node cannot report a detach.
        Detach::default()
    } else {
        volumes::attached(&**workload, node, skipped.unwrap_or_default())
    };
    Some(OnNode {
        node: Arc::clone(node),
        workload: Arc::clone(workload),
        unreachable,
        drain,
        detach,
    })
}

pub(super) fn leaving(
    machine: &Machine,
    seen: &Seen,
    on_node: Option<&OnNode>,
    bootstrap: Option<&DynamicObject>,
    control_plane_goes: bool,
    now: Timestamp,
) -> Leaving {
    let times = machine
        .status
        .as_ref()
        .and_then(|status| status.deletion.clone())
        .unwrap_or_default();
    let at = |time: &Option<Time>| time.as_ref().map(|time| time.0);
    let limits = machine.spec.deletion.clone().unwrap_or_default();
    let limit = |seconds: Option<i32>| {
        let seconds = seconds.filter(|seconds| *seconds > 0)?;
        Some(SignedDuration::from_secs(i64::from(seconds)))
    };
    let cluster_deleting = control_plane_goes
        || seen
            .cluster
            .as_ref()
            .is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some());
    let node = match (&seen.node, machine.node_name()) {
        _ if cluster_deleting => NodeConcern::ClusterDeleting,
        // Which of several is its own cannot be told: that is not the same as none.
        (NodeSeen::Here(_) | NodeSeen::Several(_), _) => NodeConcern::Ours,
        (NodeSeen::Unreachable, Some(_)) => NodeConcern::Ours,
        // It never joined, or is gone: nothing to drain.
        (NodeSeen::Missing | NodeSeen::Unreachable, _) => NodeConcern::NoNode,
    };
    Leaving {
        asked: asked(machine, now),
        pre_drain_hooks: hooks(machine, names::PRE_DRAIN_HOOK),
        pre_terminate_hooks: hooks(machine, names::PRE_TERMINATE_HOOK),
        node,
        skips_drain: names::EXCLUDE_DRAIN.is_on(machine),
        skips_volumes: names::EXCLUDE_VOLUME_WAIT.is_on(machine),
        pre_drain_started: at(&times.wait_for_pre_drain_hook_start_time),
        passed: told::passed(machine),
        drain_started: at(&times.node_drain_start_time),
        volumes_started: at(&times.wait_for_node_volume_detach_start_time),
        pre_terminate_started: at(&times.wait_for_pre_terminate_hook_start_time),
        drain_timeout: limit(limits.node_drain_timeout_seconds),
        volume_timeout: limit(limits.node_volume_detach_timeout_seconds),
        deadline: names::TERMINATION_DEADLINE.read(machine).ok().flatten(),
        node_deletion_started: names::NODE_DELETION_STARTED.read(machine).ok().flatten(),
        node_deletion_timeout: limit(limits.node_deletion_timeout_seconds.or(Some(NODE_DELETION))),
        infrastructure: match &seen.infrastructure {
            Infrastructure::Here(object) => existence(Some(object)),
            Infrastructure::Missing | Infrastructure::Unusable(_) => Existence::Gone,
        },
        bootstrap: existence(bootstrap),
        drained: on_node.and_then(OnNode::is_drained),
        detached: on_node.map(|on_node| on_node.detach.waited_for.is_empty()),
    }
}

/// When the deletion was asked for.
pub(super) fn asked(machine: &Machine, now: Timestamp) -> Timestamp {
    let time = machine.metadata.deletion_timestamp.as_ref();
    time.map_or(now, |time| time.0)
}

/// Where an object stands that goes with a Machine.
pub(in crate::machine) fn existence(object: Option<&DynamicObject>) -> Existence {
    let going = |object: &DynamicObject| object.metadata.deletion_timestamp.is_some();
    let held = |object: &DynamicObject| {
        let finalizers = object.finalizers();
        finalizers
            .iter()
            .any(|f| f == names::INFRA_MACHINE_FINALIZER)
    };
    match object {
        None => Existence::Gone,
        Some(object) if going(object) && held(object) => Existence::Held,
        Some(object) if object.metadata.deletion_timestamp.is_some() => Existence::Deleting,
        Some(_) => Existence::Present,
    }
}

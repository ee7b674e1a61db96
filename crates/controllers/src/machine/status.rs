//! A Machine's status: phase and conditions as values, written once, and only when something differs.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::conditions::{self, Reason as _, Said, Status, types};
use muster_api::machine::{MachinePhase, MachineStatus};
use muster_api::reference::{Conditioned, Polarity};
use muster_api::{Machine, contract};
use muster_caches::Pause;
use muster_informers::Requeue;
use muster_observe::rollout::{self, Judged};
use serde_json::json;

use super::{Infrastructure, NODE_POLL, NodeSeen, Seen, binding, born, health};
use crate::{Context, PassError, api, difference};

pub(super) async fn write(
    context: &Context,
    before: &Machine,
    mut next: Machine,
    seen: &Seen,
) -> Result<Requeue, PassError> {
    let now = context.clock.now();
    let generation = next.metadata.generation;
    let infrastructure = infrastructure(&next, seen);
    let (node_ready, node_healthy) = node(&next, seen);
    let up_to_date = up_to_date(context, &next, seen);
    let mut status = next.status.clone().unwrap_or_default();
    for said in [
        types::BootstrapConfigReady::DataSecretProvided.holds(),
        infrastructure,
        node_ready,
        node_healthy,
        up_to_date,
        types::Deleting::NotDeleting.fails(),
        types::Paused::NotPaused.fails(),
    ] {
        conditions::set(&mut status.conditions, said, generation, now);
    }
    health::say(context, &next, &mut status.conditions, now);
    next.status = Some(status.clone());
    conditions::set(&mut status.conditions, ready(&next), generation, now);
    next.status = Some(status.clone());
    let (available, wait) = available(&next, now);
    conditions::set(&mut status.conditions, available, generation, now);
    let phase = phase(&next);
    if status.phase != Some(phase) {
        status.phase = Some(phase);
        status.last_updated = Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
    }
    status.observed_generation = generation;
    next.status = Some(status.clone());
    put(context, before, status).await?;
    born::tell(context, before, &next).await;
    health::tell(context, before, &next).await;
    Ok(match (wait, &seen.node) {
        (Some(wait), _) => Requeue::After(wait),
        (None, NodeSeen::Here(_)) => Requeue::Never,
        (None, _) => Requeue::After(NODE_POLL),
    })
}

/// Tells that the Machine is left alone, and by whose will.
pub(super) async fn paused(
    context: &Context,
    machine: &Machine,
    pause: Pause,
) -> Result<Requeue, PassError> {
    let mut status = machine.status.clone().unwrap_or_default();
    let said = types::Paused::Paused.holds().because(pause.told("Machine"));
    conditions::set(
        &mut status.conditions,
        said,
        machine.metadata.generation,
        context.clock.now(),
    );
    put(context, machine, status).await?;
    Ok(Requeue::Never)
}

pub(super) async fn put(
    context: &Context,
    before: &Machine,
    status: MachineStatus,
) -> Result<(), PassError> {
    if before.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let machines: Api<Machine> = Api::namespaced(
        context.client.clone(),
        &before.namespace().unwrap_or_default(),
    );
    let patch =
        json!({"metadata": {"uid": before.uid()}, "status": difference(&before.status, &status)});
    match machines
        .patch_status(
            &before.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(patched) => context.caches.machines.absorb(patched),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(error) => return Err(api("writing the status")(error)),
    }
    Ok(())
}

fn infrastructure(machine: &Machine, seen: &Seen) -> Said {
    let reference = &machine.spec.infrastructure_ref;
    match &seen.infrastructure {
        Infrastructure::Unusable(why) => types::InfrastructureReady::InternalError
            .unknown()
            .because(why),
        Infrastructure::Missing => {
            let was = machine
                .status
                .as_ref()
                .and_then(|s| s.initialization)
                .and_then(|i| i.infrastructure_provisioned);
            let reason = if was == Some(true) {
                "ObjectDeleted"
            } else {
                "ObjectDoesNotExist"
            };
            Said::mirrored::<types::InfrastructureReady>(Status::False, reason).because(format!(
                "{} {} does not exist",
                reference.kind, reference.name
            ))
        }
        Infrastructure::Here(object) => match contract::ready_condition(object) {
            Some((status, reason, message)) if status != "True" => {
                let status = if status == "Unknown" {
                    Status::Unknown
                } else {
                    Status::False
                };
                Said::mirrored::<types::InfrastructureReady>(status, reason).because(message)
            }
            _ if contract::is_provisioned(object) => types::InfrastructureReady::Ready.holds(),
            _ => types::InfrastructureReady::NotReady
                .fails()
                .because(format!(
                    "{} {} is not provisioned yet",
                    reference.kind, reference.name
                )),
        },
    }
}

fn node(machine: &Machine, seen: &Seen) -> (Said, Said) {
    let both = |status, ready: types::NodeReady, healthy: types::NodeHealthy, message: String| {
        (
            ready.said(status).because(message.clone()),
            healthy.said(status).because(message),
        )
    };
    match &seen.node {
        NodeSeen::Here(node) => {
            let (mut ready, healthy) = healthy(node);
            if let Some(told) = binding::told(&seen.rivals) {
                ready.message = [ready.message, told].join("\n").trim_start().to_owned();
            }
            (ready, healthy)
        }
        NodeSeen::Missing => match machine.node_name() {
            Some(name) => both(
                Status::False,
                types::NodeReady::NodeDeleted,
                types::NodeHealthy::NodeDeleted,
                format!("Node {name} has been deleted"),
            ),
            None => {
                let id = machine.spec.provider_id.as_deref().unwrap_or_default();
                let why = if id.is_empty() {
                    "Waiting for the provider to set spec.providerID".to_owned()
                } else {
                    let alike = seen
                        .workload
                        .as_ref()
                        .map(|w| w.alike(id))
                        .unwrap_or_default();
                    match alike.first() {
                        Some(other) => format!(
                            "Waiting for a Node with spec.providerID {id} to exist; the nearest that a Node has is {other}, which is another"
                        ),
                        None => format!("Waiting for a Node with spec.providerID {id} to exist"),
                    }
                };
                both(
                    Status::Unknown,
                    types::NodeReady::InspectionFailed,
                    types::NodeHealthy::InspectionFailed,
                    why,
                )
            }
        },
        NodeSeen::Several(names) => both(
            Status::Unknown,
            types::NodeReady::InternalError,
            types::NodeHealthy::InternalError,
            format!(
                "the Nodes {} all claim the providerID of this Machine; delete all but the true one",
                names.join(", ")
            ),
        ),
        NodeSeen::Unreachable => both(
            Status::Unknown,
            types::NodeReady::ConnectionDown,
            types::NodeHealthy::ConnectionDown,
            "the API of the workload cluster cannot be reached".to_owned(),
        ),
    }
}

fn healthy(node: &Node) -> (Said, Said) {
    let conditions = || {
        node.status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
    };
    let find = |type_: &str| conditions().find(|condition| condition.type_ == type_);
    let ready = match find("Ready") {
        Some(c) if c.status == "True" => types::NodeReady::NodeReady.holds(),
        Some(c) if c.status == "False" => types::NodeReady::NodeNotReady.fails().because(format!(
            "* Node.Ready: {}",
            c.message
                .as_deref()
                .or(c.reason.as_deref())
                .unwrap_or_default()
        )),
        Some(c) => types::NodeReady::NodeReadyUnknown
            .unknown()
            .because(format!(
                "* Node.Ready: {}",
                c.message
                    .as_deref()
                    .filter(|m| !m.is_empty())
                    .or(c.reason.as_deref())
                    .unwrap_or_default()
            )),
        None => types::NodeReady::NodeReadyUnknown
            .unknown()
            .because("* Node.Ready: Condition not yet reported"),
    };
    let (mut bad, mut unknown) = (Vec::new(), Vec::new());
    for (type_, good) in [
        ("Ready", "True"),
        ("MemoryPressure", "False"),
        ("DiskPressure", "False"),
        ("PIDPressure", "False"),
    ] {
        match find(type_).map(|condition| condition.status.as_str()) {
            Some(status) if status == good => {}
            Some("Unknown") | None => unknown.push(format!("* Node.{type_}: Condition is Unknown")),
            Some(status) => bad.push(format!("* Node.{type_}: Condition is {status}")),
        }
    }
    let healthy = match (bad.is_empty(), unknown.is_empty()) {
        (true, true) => types::NodeHealthy::NodeHealthy.holds(),
        (false, _) => types::NodeHealthy::NodeNotHealthy
            .fails()
            .because(bad.join("\n")),
        (true, false) => types::NodeHealthy::NodeHealthyUnknown
            .unknown()
            .because(unknown.join("\n")),
    };
    (ready, healthy)
}

/// By its pool's judgement.
fn up_to_date(context: &Context, machine: &Machine, seen: &Seen) -> Said {
    let instance = match &seen.infrastructure {
        Infrastructure::Here(object) => contract::is_up_to_date(object),
        Infrastructure::Missing | Infrastructure::Unusable(_) => None,
    };
    let outdated = match context.caches.pool_of(machine) {
        Some(pool) => Judged::new(&pool, Arc::new(machine.clone()), instance).outdated,
        None => Vec::new(),
    };
    rollout::said(&outdated)
}

/// The summary of everything that has to be good. Source: Cluster API.
fn ready(machine: &Machine) -> Said {
    let (mut bad, mut unknown) = (Vec::new(), Vec::new());
    let mut look = |type_: &str, polarity: Polarity, required: bool| {
        let good = match polarity {
            Polarity::Positive => "True",
            Polarity::Negative => "False",
        };
        match machine.condition_of(type_) {
            Some(condition) if condition.status == good => {}
            Some(condition) if condition.status == "Unknown" => unknown.push(line(condition)),
            Some(condition) => bad.push(line(condition)),
            None if required => unknown.push(format!("* {type_}: Condition not yet reported")),
            None => {}
        }
    };
    look(types::Deleting::TYPE, Polarity::Negative, false);
    look(types::BootstrapConfigReady::TYPE, Polarity::Positive, true);
    look(types::InfrastructureReady::TYPE, Polarity::Positive, true);
    look(types::NodeHealthy::TYPE, Polarity::Positive, true);
    look(types::HealthCheckSucceeded::TYPE, Polarity::Positive, false);
    for gate in &machine.spec.readiness_gates {
        look(
            &gate.condition_type,
            gate.polarity.unwrap_or_default(),
            true,
        );
    }
    match (bad.is_empty(), unknown.is_empty()) {
        (true, true) => types::Ready::Ready.holds(),
        (false, _) => types::Ready::NotReady.fails().because(
            bad.into_iter()
                .chain(unknown)
                .collect::<Vec<_>>()
                .join("\n"),
        ),
        (true, false) => types::Ready::ReadyUnknown
            .unknown()
            .because(unknown.join("\n")),
    }
}

fn line(condition: &Condition) -> String {
    let text = if condition.message.is_empty() {
        &condition.reason
    } else {
        &condition.message
    };
    format!("* {}: {}", condition.type_, text.replace('\n', "\n  "))
}

/// Ready for as long as it must be, and when to look again.
fn available(machine: &Machine, now: Timestamp) -> (Said, Option<Duration>) {
    let Some(ready) = machine
        .condition_of(types::Ready::TYPE)
        .filter(|c| c.status == "True")
    else {
        return (types::Available::NotReady.fails(), None);
    };
    let wanted = SignedDuration::from_secs(i64::from(machine.spec.min_ready_seconds.unwrap_or(0)));
    let left = wanted.saturating_sub(now.duration_since(ready.last_transition_time.0));
    if left.is_positive() {
        let said = types::Available::WaitingForMinReadySeconds.fails();
        return (said, Duration::try_from(left).ok());
    }
    (types::Available::Available.holds(), None)
}

fn phase(machine: &Machine) -> MachinePhase {
    let provisioned = machine
        .status
        .as_ref()
        .and_then(|status| status.initialization)
        .and_then(|done| done.infrastructure_provisioned)
        .unwrap_or(false);
    match (
        provisioned,
        machine.spec.provider_id.is_some(),
        machine.node_name().is_some(),
    ) {
        (true, _, true) => MachinePhase::Running,
        (_, true, _) => MachinePhase::Provisioned,
        _ => MachinePhase::Pending,
    }
}

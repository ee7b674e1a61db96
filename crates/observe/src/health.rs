//! MachineHealthChecks and Machines as `plan` judges them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node as CoreNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use muster_api::conditions::{Reason as _, types};
use muster_api::health_check::ConditionStatus;
use muster_api::reference::Conditioned as _;
use muster_api::{Cluster, Machine, MachineHealthCheck, names};
use muster_plan::health::trigger::Trigger;
use muster_plan::health::{self, Check, Fault, Node, Reported, Surroundings};
use muster_plan::share::Share;

/// Within what time a Machine must be a Node, where a check does not say. Source: Cluster API.
const STARTUP: i32 = 600;

/// What a check looks at.
pub fn check(check: &MachineHealthCheck) -> Check {
    let checks = check.spec.checks.clone().unwrap_or_default();
    let seconds = |seconds: i32| SignedDuration::from_secs(i64::from(seconds));
    let startup = checks.node_startup_timeout_seconds.unwrap_or(STARTUP);
    let status = |status: ConditionStatus| match status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    };
    Check {
        node: checks
            .unhealthy_node_conditions
            .into_iter()
            .map(|fault| Fault {
                type_: fault.type_,
                status: fault.status,
                timeout: seconds(fault.timeout_seconds),
            })
            .collect(),
        machine: checks
            .unhealthy_machine_conditions
            .into_iter()
            .map(|fault| Fault {
                type_: fault.type_,
                status: status(fault.status).to_owned(),
                timeout: seconds(fault.timeout_seconds),
            })
            .collect(),
        startup: (startup > 0).then(|| seconds(startup)),
    }
}

/// When a check has Machines repaired.
///
/// # Errors
/// When a field cannot be read; the sentence names it.
pub fn trigger(check: &MachineHealthCheck) -> Result<Trigger, String> {
    let remediation = check.spec.remediation.as_ref();
    let Some(trigger) = remediation.and_then(|remediation| remediation.trigger_if.as_ref()) else {
        return Ok(Trigger::default());
    };
    let field = |name: &str, error: &dyn std::fmt::Display| {
        format!(
            "spec.remediation.triggerIf.{name} of MachineHealthCheck {}: {error}",
            check.name_any()
        )
    };
    if let Some(range) = &trigger.unhealthy_in_range {
        return Trigger::range(range).map_err(|error| field("unhealthyInRange", &error));
    }
    let share = match &trigger.unhealthy_less_than_or_equal_to {
        None => return Ok(Trigger::default()),
        Some(IntOrString::Int(number)) => Share::number(*number),
        Some(IntOrString::String(text)) => Share::parse(text),
    };
    share
        .map(Trigger::AtMost)
        .map_err(|error| field("unhealthyLessThanOrEqualTo", &error))
}

/// Whether a check is for a Machine: it selects it, and nobody keeps it from checks. A control plane's Machines have a
/// controller of their own.
///
/// # Errors
/// When the selector cannot be read.
pub fn is_for(check: &MachineHealthCheck, machine: &Machine) -> Result<bool, String> {
    let selector = Selector::try_from(check.spec.selector.clone()).map_err(|error| {
        format!(
            "spec.selector of MachineHealthCheck {}: {error}",
            check.name_any()
        )
    })?;
    Ok(check.namespace() == machine.namespace()
        && check.spec.cluster_name == machine.spec.cluster_name
        && !names::PAUSED.is_on(machine)
        && !names::SKIP_REMEDIATION.is_on(machine)
        && !names::CONTROL_PLANE.is_on(machine)
        && selector.matches(machine.labels()))
}

/// A Machine with what its Node reports.
pub fn machine(machine: &Machine, node: Option<&CoreNode>) -> health::Machine {
    let created = machine.metadata.creation_timestamp.as_ref();
    let since = |condition: &Condition| condition.last_transition_time.0;
    health::Machine {
        created: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        infrastructure: machine
            .condition_of(types::InfrastructureReady::TYPE)
            .filter(|said| said.status == "True")
            .map(since),
        asked: names::REMEDIATE_MACHINE.is_on(machine),
        conditions: machine
            .conditions()
            .iter()
            .map(|condition| Reported {
                type_: condition.type_.clone(),
                status: condition.status.clone(),
                since: Some(since(condition)),
            })
            .collect(),
        node: match (node, machine.node_name()) {
            (Some(node), _) => Node::Here(reported(node)),
            (None, Some(name)) => Node::Gone {
                name: name.to_owned(),
                since: machine
                    .condition_of(types::NodeReady::TYPE)
                    .filter(|said| said.reason == types::NodeReady::NodeDeleted.as_str())
                    .map(since),
            },
            (None, None) => Node::Never,
        },
    }
}

fn reported(node: &CoreNode) -> Vec<Reported> {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .map(|condition| Reported {
            type_: condition.type_.clone(),
            status: condition.status.clone(),
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        })
        .collect()
}

/// What matters of a Cluster. `watched` is since when its API has been looked at without interruption, if it answers.
pub fn surroundings(cluster: &Cluster, watched: Option<Timestamp>) -> Surroundings {
    let since = |type_: &str| {
        let said = cluster
            .condition_of(type_)
            .filter(|said| said.status == "True")?;
        Some(said.last_transition_time.0)
    };
    Surroundings {
        infrastructure: since(types::InfrastructureReady::TYPE),
        control_plane: since(types::ControlPlaneInitialized::TYPE),
        answers: watched,
        zones_back: None,
    }
}

//! What health checks say of a Machine, in its conditions.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::EventType;
use muster_api::Machine;
use muster_api::conditions::{self, Reason as _, Said, types};
use muster_api::reference::Conditioned as _;
use muster_informers::Key;
use muster_plan::health::{Reason, Verdict};
use muster_provider::events::about;

use crate::Context;
use crate::health::{Handed, Opinion};

/// Sets or takes away what checks say. Until the first look after a start nothing is changed.
pub(super) fn say(context: &Context, machine: &Machine, list: &mut Vec<Condition>, now: Timestamp) {
    let key = Key::of(machine);
    let opinion = context.health.opinion(&key);
    let generation = machine.metadata.generation;
    match opinion.as_ref().and_then(succeeded) {
        Some(said) => conditions::set(list, said, generation, now),
        // Nobody checks it, so nobody finds fault.
        None if opinion.is_none() && context.health.has_looked_at(&key) => {
            list.retain(|said| said.type_ != types::HealthCheckSucceeded::TYPE);
        }
        None => {}
    }
    let repair = opinion.is_some_and(|opinion| opinion.repair);
    let asked = list
        .iter()
        .any(|said| said.type_ == types::OwnerRemediated::TYPE);
    if repair && !asked {
        let said = types::OwnerRemediated::WaitingForRemediation.fails();
        conditions::set(list, said, generation, now);
    } else if !repair && asked && is_well(list) {
        list.retain(|said| said.type_ != types::OwnerRemediated::TYPE);
    }
    match context.health.handed(&key) {
        Some(Some(handed)) => say_handed(list, handed, generation, now),
        Some(None) => list.retain(|said| said.type_ != types::ExternallyRemediated::TYPE),
        None => {}
    }
}

/// How a Machine is with a repairer outside. What that one says of its work itself is left as it is.
fn say_handed(list: &mut Vec<Condition>, handed: Handed, generation: Option<i64>, now: Timestamp) {
    use types::ExternallyRemediated as External;
    let said = match handed {
        Handed::Over => {
            let said = list.iter().find(|said| said.type_ == External::TYPE);
            let failed = [
                External::RemediationTemplateNotFound,
                External::RemediationRequestCreationFailed,
            ];
            let ours = |said: &Condition| failed.iter().any(|by| said.reason == by.as_str());
            if said.is_some_and(|said| !ours(said)) {
                return;
            }
            External::WaitingForRemediation.fails()
        }
        Handed::NoTemplate(why) => External::RemediationTemplateNotFound.fails().because(why),
        Handed::Failed(why) => External::RemediationRequestCreationFailed
            .fails()
            .because(why),
    };
    conditions::set(list, said, generation, now);
}

/// Says once that a check finds fault with a Machine.
pub(super) async fn tell(context: &Context, before: &Machine, next: &Machine) {
    let fault = |machine: &Machine| {
        let said = machine.condition_of(types::HealthCheckSucceeded::TYPE);
        said.filter(|said| said.status == "False").cloned()
    };
    if let (None, Some(said)) = (fault(before), fault(next)) {
        let object = about(next);
        let reason = "MachineMarkedUnhealthy";
        context
            .events
            .say(&object, EventType::Warning, reason, "Check", said.message)
            .await;
    }
}

/// Whether no check finds fault any more.
fn is_well(list: &[Condition]) -> bool {
    let type_ = types::HealthCheckSucceeded::TYPE;
    !list
        .iter()
        .any(|said| said.type_ == type_ && said.status == "False")
}

/// What is said of a Machine about which something can be said.
fn succeeded(opinion: &Opinion) -> Option<Said> {
    match &opinion.verdict {
        Verdict::Healthy => Some(types::HealthCheckSucceeded::HealthCheckSucceeded.holds()),
        Verdict::Unhealthy { reason, why } => {
            let reason = match reason {
                Reason::HasRemediateAnnotation => {
                    types::HealthCheckSucceeded::HasRemediateAnnotation
                }
                Reason::UnhealthyMachine => types::HealthCheckSucceeded::UnhealthyMachine,
                Reason::UnhealthyNode => types::HealthCheckSucceeded::UnhealthyNode,
                Reason::NodeDeleted => types::HealthCheckSucceeded::NodeDeleted,
                Reason::NodeStartupTimeout => types::HealthCheckSucceeded::NodeStartupTimeout,
            };
            Some(reason.fails().because(format!(
                "Health check failed: {} (MachineHealthCheck {})",
                why.join("; "),
                opinion.by.join(", ")
            )))
        }
        Verdict::Suspect(_) | Verdict::Unseen => None,
    }
}

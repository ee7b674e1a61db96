//! A Machine as a rollout sees it: in what it is out of date, and how it stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use muster_api::conditions::{Reason as _, Said, types};
use muster_api::names::{self, BOOTSTRAPPED_WITH};
use muster_api::reference::Conditioned;
use muster_api::{Machine, MachineHealthCheck, MachinePool};
use muster_plan::allowance::Standing;
use muster_plan::rollout::{Member, Outdated, Source, outdated};

use crate::machine::is_held;

/// How long a machine may take to become available where no MachineHealthCheck says it. Source: Cluster API's default.
pub const STARTUP: SignedDuration = SignedDuration::from_mins(10);

/// In what a Machine is out of date; `instance` is whether its provider says that its instance is up to date. One judgement,
/// for the Machine's own condition and for its pool's.
pub fn judge(pool: &MachinePool, machine: &Machine, instance: Option<bool>) -> Vec<Outdated> {
    let wants = Source {
        version: pool.spec.template.spec.version.clone(),
        bootstrap: pool.bootstrap_reference(),
    };
    let has = Source {
        version: machine.spec.version.clone(),
        bootstrap: BOOTSTRAPPED_WITH.text(machine).map(str::to_owned),
    };
    outdated(&wants, &has, instance)
}

/// The Machine's UpToDate condition.
pub fn said(outdated: &[Outdated]) -> Said {
    if outdated.is_empty() {
        return types::UpToDate::UpToDate.holds();
    }
    types::UpToDate::NotUpToDate.fails().because(told(outdated))
}

/// In lines. Source of the form: Cluster API.
pub fn told(outdated: &[Outdated]) -> String {
    let lines: Vec<String> = outdated.iter().map(|what| format!("* {what}")).collect();
    lines.join("\n")
}

/// A Machine and in what it is out of date.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The Machine.
    pub machine: Arc<Machine>,
    /// In what.
    pub outdated: Vec<Outdated>,
}

impl Judged {
    /// Judges a Machine of a pool. `instance` is what its provider says; where that cannot be asked for a moment, what it
    /// said last holds.
    pub fn new(pool: &MachinePool, machine: Arc<Machine>, instance: Option<bool>) -> Self {
        let instance = instance.or_else(|| last_word(&machine));
        Self {
            outdated: judge(pool, &machine, instance),
            machine,
        }
    }

    /// As a rollout sees it, where a start may take so long, or as long as it will.
    pub fn member(&self, startup: Option<SignedDuration>, now: Timestamp) -> Member {
        let machine = &self.machine;
        let standing = standing(machine, startup.unwrap_or(STARTUP));
        let late = startup.is_some_and(|startup| !self.left_to_start(startup, now).is_positive());
        let status = machine.status.as_ref();
        Member {
            name: machine.name_any(),
            created: created(machine),
            zone: status.and_then(|status| status.failure_domain.clone()),
            standing,
            marked: names::DELETE_MACHINE.is_on(&**machine),
            held: is_held(machine),
            outdated: self.outdated.clone(),
            failed_to_start: standing == Standing::Starting && late,
        }
    }

    /// How much of the time is left that a start may take.
    pub fn left_to_start(&self, startup: SignedDuration, now: Timestamp) -> SignedDuration {
        let ready = i64::from(self.machine.spec.min_ready_seconds.unwrap_or(0));
        let may = startup.saturating_add(SignedDuration::from_secs(ready));
        may.saturating_sub(now.duration_since(created(&self.machine)))
    }
}

fn last_word(machine: &Machine) -> Option<bool> {
    let said = machine.condition_of(types::UpToDate::TYPE)?;
    let instance = Outdated::Instance.to_string();
    Some(!(said.status == "False" && said.message.contains(&instance)))
}

fn created(machine: &Machine) -> Timestamp {
    let created = machine.metadata.creation_timestamp.as_ref();
    created.map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// How a Machine stands. One that is not available, and has not been since a moment of its start, is on its way up; one
/// that stopped being available later is down.
fn standing(machine: &Machine, startup: SignedDuration) -> Standing {
    let says = |type_: &str, status: &str| {
        machine
            .condition_of(type_)
            .is_some_and(|condition| condition.status == status)
    };
    if machine.is_deleting() {
        return Standing::Leaving;
    }
    if says(types::Available::TYPE, "True") {
        return Standing::Up;
    }
    if says(types::HealthCheckSucceeded::TYPE, "False") {
        return Standing::Sick;
    }
    let since = machine.condition_of(types::Available::TYPE);
    let late = since.is_some_and(|condition| {
        let began = condition.last_transition_time.0;
        began.duration_since(created(machine)) > startup
    });
    if late {
        Standing::Down
    } else {
        Standing::Starting
    }
}

/// How long a start may take: as the strictest of the MachineHealthChecks says that select the pool's machines; nothing
/// where all of them set no limit.
pub fn startup<'a>(
    pool: &MachinePool,
    labels: &BTreeMap<String, String>,
    checks: impl IntoIterator<Item = &'a MachineHealthCheck>,
) -> Option<SignedDuration> {
    let namespace = pool.namespace();
    let ours = checks.into_iter().filter(|check| {
        check.namespace() == namespace
            && check.spec.cluster_name == pool.spec.cluster_name
            && Selector::try_from(check.spec.selector.clone())
                .is_ok_and(|selector| selector.matches(labels))
    });
    let limits: Vec<i32> = ours
        .map(|check| {
            let checks = check.spec.checks.as_ref();
            checks
                .and_then(|checks| checks.node_startup_timeout_seconds)
                .unwrap_or(600)
        })
        .collect();
    if limits.is_empty() {
        return Some(STARTUP);
    }
    let strictest = limits.into_iter().filter(|limit| *limit > 0).min()?;
    Some(SignedDuration::from_secs(i64::from(strictest)))
}

//! Whether a Machine is healthy, why not, and when to look again; and when sick Machines are to be left alone.
//!
//! The rules are Cluster API's, with what it leaves open decided for pools:
//!
//! - A clock never runs while nobody could have been healthy: before the control plane and the infrastructure were there,
//!   while the workload cluster's API was out of reach, while a zone was lost.
//! - A zone all of whose Nodes fell silent together is lost, and no fault of its Machines.
//! - A Node object that vanished may come back; its Machine has the time that a new one has to become a Node.

pub mod request;
pub mod roster;
pub mod trigger;

use jiff::{SignedDuration, Timestamp};

/// What one health check looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Conditions of the Node that are a fault when they last.
    pub node: Vec<Fault>,
    /// Conditions of the Machine that are a fault when they last.
    pub machine: Vec<Fault>,
    /// Within what time a Machine must be a Node; none: it is not looked at.
    pub startup: Option<SignedDuration>,
}

/// A condition that is a fault when it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Type of the condition.
    pub type_: String,
    /// The status that is a fault.
    pub status: String,
    /// For how long it must last.
    pub timeout: SignedDuration,
}

/// What matters of the Cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Since when its infrastructure has been ready.
    pub infrastructure: Option<Timestamp>,
    /// Since when its control plane has been usable.
    pub control_plane: Option<Timestamp>,
    /// Since when its API has answered without interruption; none while it does not.
    pub answers: Option<Timestamp>,
    /// When the last of its lost zones came back.
    pub zones_back: Option<Timestamp>,
}

impl Surroundings {
    /// When the clocks began that run while everything around a Machine is as it must be.
    fn floor(&self, answers: Timestamp) -> Timestamp {
        self.zones_back.map_or(answers, |back| answers.max(back))
    }
}

/// A condition as it is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Type.
    pub type_: String,
    /// Status.
    pub status: String,
    /// Since when it has that status, if that is known.
    pub since: Option<Timestamp>,
}

/// What is known of a Machine's Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// It never was one.
    Never,
    /// It was one, and the Node object is gone.
    Gone {
        /// Its name.
        name: String,
        /// Since when it has been gone, if that is known.
        since: Option<Timestamp>,
    },
    /// It is one.
    Here(Vec<Reported>),
}

/// What is known of a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// When it was created.
    pub created: Timestamp,
    /// Since when its infrastructure has been ready.
    pub infrastructure: Option<Timestamp>,
    /// Somebody asked for its repair with the `remediate-machine` annotation.
    pub asked: bool,
    /// Its conditions.
    pub conditions: Vec<Reported>,
    /// Its Node.
    pub node: Node,
}

/// Why a Machine is unhealthy, as Cluster API names it. The first one is what is told where several hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Somebody asked for its repair.
    HasRemediateAnnotation,
    /// A condition of the Machine is a fault.
    UnhealthyMachine,
    /// A condition of the Node is a fault.
    UnhealthyNode,
    /// The Node object is gone and has not come back.
    NodeDeleted,
    /// It did not become a Node in time.
    NodeStartupTimeout,
}

/// What is found about a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No fault.
    Healthy,
    /// Neither: it is on its way to be a Node, or to a timeout. The next look is at that time, if there is one.
    Suspect(Option<Timestamp>),
    /// At fault.
    Unhealthy {
        /// The first reason.
        reason: Reason,
        /// All of them, in sentences.
        why: Vec<String>,
    },
    /// Nothing can be said: the cluster is not usable yet, or does not answer.
    Unseen,
}

impl Verdict {
    /// When to look again.
    pub fn next(&self) -> Option<Timestamp> {
        match self {
            Self::Suspect(next) => *next,
            Self::Healthy | Self::Unhealthy { .. } | Self::Unseen => None,
        }
    }
}

/// The time that a Node object that vanished has to come back where the check sets none for a start. Source: Cluster API's
/// default for a start.
const RETURN: SignedDuration = SignedDuration::from_mins(10);

/// Judges a Machine by one check.
pub fn judge(check: &Check, machine: &Machine, around: &Surroundings, now: Timestamp) -> Verdict {
    if machine.asked {
        return Verdict::Unhealthy {
            reason: Reason::HasRemediateAnnotation,
            why: vec![
                "marked for remediation with the cluster.x-k8s.io/remediate-machine annotation"
                    .to_owned(),
            ],
        };
    }
    let (Some(infrastructure), Some(control_plane), Some(answers)) =
        (around.infrastructure, around.control_plane, around.answers)
    else {
        return Verdict::Unseen;
    };
    let floor = around.floor(answers);
    let mut found = Findings::default();
    for fault in &check.machine {
        let what = ("Machine", Reason::UnhealthyMachine);
        found.look(fault, &machine.conditions, what, floor, now);
    }
    match &machine.node {
        Node::Here(conditions) => {
            for fault in &check.node {
                let what = ("Node", Reason::UnhealthyNode);
                found.look(fault, conditions, what, floor, now);
            }
        }
        Node::Gone { name, since } => {
            let limit = check.startup.unwrap_or(RETURN);
            let begun = since.unwrap_or(now).max(floor);
            let why =
                || format!("Node {name} has been deleted and did not come back within {limit:#}");
            found.time(begun, limit, now, Reason::NodeDeleted, why);
        }
        Node::Never => {
            found.waits = true;
            if let Some(limit) = check.startup {
                let begun = [
                    Some(machine.created),
                    machine.infrastructure,
                    Some(infrastructure),
                    Some(control_plane),
                    Some(floor),
                ];
                let begun = begun.into_iter().flatten().max().unwrap_or(now);
                let why = || format!("no Node has come up within {limit:#} since {begun}");
                found.time(begun, limit, now, Reason::NodeStartupTimeout, why);
            }
        }
    }
    found.verdict()
}

/// What was found about one Machine.
#[derive(Default)]
struct Findings {
    faults: Vec<(Reason, String)>,
    next: Option<Timestamp>,
    waits: bool,
}

impl Findings {
    fn look(
        &mut self,
        fault: &Fault,
        conditions: &[Reported],
        (object, reason): (&str, Reason),
        floor: Timestamp,
        now: Timestamp,
    ) {
        let at_fault = conditions
            .iter()
            .find(|c| c.type_ == fault.type_ && c.status == fault.status);
        let Some(condition) = at_fault else {
            return;
        };
        let begun = condition.since.unwrap_or(now).max(floor);
        let Fault {
            type_,
            status,
            timeout,
        } = fault;
        let why = || {
            format!("condition {type_} of the {object} has been {status} for more than {timeout:#}")
        };
        self.time(begun, *timeout, now, reason, why);
    }

    /// A fault once the time has passed; a time to look again until then.
    fn time(
        &mut self,
        begun: Timestamp,
        limit: SignedDuration,
        now: Timestamp,
        reason: Reason,
        why: impl FnOnce() -> String,
    ) {
        let end = begun.saturating_add(limit).unwrap_or(Timestamp::MAX);
        if now >= end {
            self.faults.push((reason, why()));
        } else {
            self.next = Some(self.next.map_or(end, |next| next.min(end)));
        }
    }

    fn verdict(self) -> Verdict {
        let first = self.faults.iter().map(|(reason, _)| *reason).min();
        match (first, self.next) {
            (Some(reason), _) => Verdict::Unhealthy {
                reason,
                why: self.faults.into_iter().map(|(_, why)| why).collect(),
            },
            (None, Some(next)) => Verdict::Suspect(Some(next)),
            (None, None) if self.waits => Verdict::Suspect(None),
            (None, None) => Verdict::Healthy,
        }
    }
}

/// What several checks say of one Machine together: at fault when one of them says so. Equal checks in another order say
/// the same.
pub fn together(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
    let mut faults: Vec<(Reason, Vec<String>)> = Vec::new();
    let (mut next, mut suspect, mut seen, mut any) = (None, false, false, false);
    for verdict in verdicts {
        any = true;
        match verdict {
            Verdict::Unhealthy { reason, why } => faults.push((reason, why)),
            Verdict::Suspect(at) => {
                suspect = true;
                next = [next, at].into_iter().flatten().min();
            }
            Verdict::Healthy => seen = true,
            Verdict::Unseen => {}
        }
    }
    faults.sort();
    if let Some((reason, _)) = faults.first() {
        let reason = *reason;
        let mut why: Vec<String> = faults.into_iter().flat_map(|(_, why)| why).collect();
        let mut told = std::collections::HashSet::new();
        why.retain(|sentence| told.insert(sentence.clone()));
        return Verdict::Unhealthy { reason, why };
    }
    match (suspect, seen || !any) {
        (true, _) => Verdict::Suspect(next),
        (false, true) => Verdict::Healthy,
        (false, false) => Verdict::Unseen,
    }
}

/// How far apart Nodes that fall silent together are found to be silent: each renews its Lease at a time of its own.
pub const TOGETHER: SignedDuration = SignedDuration::from_secs(120);

/// How long after a Node fell silent it is known whether it did so alone: that of the last of its zone is found late by a
/// renewal of its Lease and a look of the node monitor.
pub const ALONE_AFTER: SignedDuration = SignedDuration::from_secs(40);

/// Whether a zone is lost: none of its Nodes reports, and most of them, but not only one, fell silent together.
pub fn is_lost(reporting: usize, silent: &[Timestamp]) -> bool {
    let Some(last) = silent.iter().max().filter(|_| reporting == 0) else {
        return false;
    };
    let together = silent
        .iter()
        .filter(|since| last.duration_since(**since) <= TOGETHER)
        .count();
    together >= 2 && together * 2 >= silent.len()
}

#[cfg(test)]
mod tests;

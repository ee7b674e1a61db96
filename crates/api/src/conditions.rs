//! Conditions: their types and reasons, and the one function that sets them.

pub mod types;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Cannot tell.
    Unknown,
}

impl Status {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// True or False.
    pub fn of(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A condition as it is decided, before it is merged into what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Type.
    pub type_: &'static str,
    /// Status.
    pub status: Status,
    /// Reason, one CamelCase word.
    pub reason: String,
    /// Reason in words; may be empty when all is well.
    pub message: String,
}

/// A condition's reasons. The type of the condition owns them, so that a reason of another's does not compile.
pub trait Reason: Copy {
    /// The condition's type, as the API writes it.
    const TYPE: &'static str;

    /// As the API writes it.
    fn as_str(self) -> &'static str;

    /// The condition with this status, for this reason.
    fn said(self, status: Status) -> Said {
        Said {
            type_: Self::TYPE,
            status,
            reason: self.as_str().to_owned(),
            message: String::new(),
        }
    }

    /// The condition is True for this reason.
    fn holds(self) -> Said {
        self.said(Status::True)
    }

    /// The condition is False for this reason.
    fn fails(self) -> Said {
        self.said(Status::False)
    }

    /// The condition is Unknown for this reason.
    fn unknown(self) -> Said {
        self.said(Status::Unknown)
    }
}

impl Said {
    /// A condition with a reason that is not ours to choose: a provider's own, mirrored.
    pub fn mirrored<R: Reason>(status: Status, reason: impl Into<String>) -> Self {
        Self {
            type_: R::TYPE,
            status,
            reason: reason.into(),
            message: String::new(),
        }
    }

    /// With this message.
    #[must_use]
    pub fn because(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }
}

/// Order of conditions in lists, as Cluster API has it.
const ORDER: [&str; 18] = [
    "Available",
    "Ready",
    "UpToDate",
    "RemoteConnectionProbe",
    "BootstrapConfigReady",
    "InfrastructureReady",
    "ControlPlaneInitialized",
    "NodeHealthy",
    "NodeReady",
    "HealthCheckSucceeded",
    "OwnerRemediated",
    "Updating",
    "RollingOut",
    "Remediating",
    "ScalingDown",
    "ScalingUp",
    "MachinesReady",
    "MachinesUpToDate",
];

fn rank(type_: &str) -> (usize, &str) {
    let place = match type_ {
        "Paused" => ORDER.len() + 1,
        "Deleting" => ORDER.len() + 2,
        _ => ORDER
            .iter()
            .position(|known| *known == type_)
            .unwrap_or(ORDER.len()),
    };
    (place, type_)
}

/// How long a message may be, in bytes; the API's limit is 32,768.
const MESSAGE_LIMIT: usize = 10_000;

/// Sets a condition. The transition time moves only with the status.
pub fn set(conditions: &mut Vec<Condition>, said: Said, generation: Option<i64>, now: Timestamp) {
    let mut message = said.message;
    if message.len() > MESSAGE_LIMIT {
        let mut end = MESSAGE_LIMIT;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
    let whole_second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    match conditions
        .iter_mut()
        .find(|condition| condition.type_ == said.type_)
    {
        Some(condition) => {
            if condition.status != said.status.as_str() {
                condition.last_transition_time = Time(whole_second);
            }
            condition.status = said.status.as_str().to_owned();
            condition.reason = said.reason;
            condition.message = message;
            condition.observed_generation = generation;
        }
        None => {
            conditions.push(Condition {
                last_transition_time: Time(whole_second),
                message,
                observed_generation: generation,
                reason: said.reason,
                status: said.status.as_str().to_owned(),
                type_: said.type_.to_owned(),
            });
            conditions.sort_by(|a, b| rank(&a.type_).cmp(&rank(&b.type_)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_long_is_cut_between_letters() {
        let mut list = Vec::new();
        let long = "ü".repeat(MESSAGE_LIMIT);
        set(
            &mut list,
            types::Ready::NotReady.fails().because(long),
            None,
            Timestamp::UNIX_EPOCH,
        );
        let message = &list[0].message;
        assert!(message.len() <= MESSAGE_LIMIT + '…'.len_utf8());
        assert!(message.ends_with("ü…"));
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut list = Vec::new();
        let at = |second| Timestamp::from_second(second).unwrap();
        set(&mut list, types::Ready::NotReady.fails(), Some(1), at(10));
        set(
            &mut list,
            types::Ready::ReadyUnknown.fails().because("x"),
            Some(2),
            at(20),
        );
        assert_eq!(list[0].last_transition_time.0, at(10));
        set(&mut list, types::Ready::Ready.holds(), Some(2), at(30));
        assert_eq!(list[0].last_transition_time.0, at(30));
        set(
            &mut list,
            types::Deleting::NotDeleting.fails(),
            None,
            at(30),
        );
        set(&mut list, types::Available::NotReady.fails(), None, at(30));
        let order: Vec<_> = list.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(order, ["Available", "Ready", "Deleting"]);
    }
}

//! The steps of a Machine's deletion: which one it is at, and what it waits for.

use jiff::{SignedDuration, Timestamp};

/// What is known of a Machine that is being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// When its deletion was asked for.
    pub asked: Timestamp,
    /// Names of pre-drain hooks that hold.
    pub pre_drain_hooks: Vec<String>,
    /// Names of pre-terminate hooks that hold.
    pub pre_terminate_hooks: Vec<String>,
    /// Whether its Node is of no concern any more, and why.
    pub node: NodeConcern,
    /// Whether the drain is excluded by annotation.
    pub skips_drain: bool,
    /// Whether the wait for volumes is excluded by annotation.
    pub skips_volumes: bool,
    /// When the drain began.
    pub drain_started: Option<Timestamp>,
    /// When the wait for volumes began.
    pub volumes_started: Option<Timestamp>,
    /// When the wait for pre-terminate hooks began; from then on nothing is drained any more.
    pub pre_terminate_started: Option<Timestamp>,
    /// Limit of the drain; none is for ever.
    pub drain_timeout: Option<SignedDuration>,
    /// Limit of the wait for volumes; none is for ever.
    pub volume_timeout: Option<SignedDuration>,
    /// When the cloud takes the instance back, if it announced that.
    pub deadline: Option<Timestamp>,
    /// Where its InfraMachine stands.
    pub infrastructure: Infrastructure,
    /// Whether Pods are left that a drain moves or waits for; `None` when it cannot be told.
    pub drained: Option<bool>,
    /// Whether volumes are attached that are to be waited for; `None` when it cannot be told.
    pub detached: Option<bool>,
}

/// Whether a Machine's Node has to be looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeConcern {
    /// It has.
    Ours,
    /// There is none, or it is gone.
    NoNode,
    /// The whole cluster is going, so nobody needs its Pods moved.
    ClusterDeleting,
}

/// Where an InfraMachine stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infrastructure {
    /// It is there.
    Present,
    /// It is being deleted.
    Deleting,
    /// It is gone.
    Gone,
}

/// The step that a deletion is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Pre-drain hooks hold it.
    PreDrainHooks(Vec<String>),
    /// The Node is drained, until this time if there is a limit.
    Drain(Option<Timestamp>),
    /// Volumes are waited for, until this time if there is a limit.
    Volumes(Option<Timestamp>),
    /// Pre-terminate hooks hold it.
    PreTerminateHooks(Vec<String>),
    /// The InfraMachine is deleted and awaited.
    Infrastructure,
    /// The Node object is deleted.
    Node,
    /// Nothing is left.
    Done,
}

/// A step that was ended by its limit and not by its success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedOut {
    /// The drain.
    Drain,
    /// The wait for volumes.
    Volumes,
}

/// The step that a deletion is at, and the steps before it whose limit passed.
pub fn step(leaving: &Leaving, now: Timestamp) -> (Step, Vec<TimedOut>) {
    let mut timed_out = Vec::new();
    if leaving.node == NodeConcern::Ours {
        if !leaving.pre_drain_hooks.is_empty() {
            return (
                Step::PreDrainHooks(leaving.pre_drain_hooks.clone()),
                timed_out,
            );
        }
        // Once hooks before the end are waited for, or the instance is going, a drain comes too late.
        let open = leaving.pre_terminate_started.is_none()
            && leaving.infrastructure == Infrastructure::Present;
        if open && !leaving.skips_drain && leaving.drained != Some(true) {
            let limit = earliest(
                end(leaving.drain_started, leaving.drain_timeout, now),
                leaving.deadline,
            );
            if limit.is_none_or(|limit| now < limit) {
                return (Step::Drain(limit), timed_out);
            }
            timed_out.push(TimedOut::Drain);
        }
        if open && !leaving.skips_volumes && leaving.detached != Some(true) {
            let limit = earliest(
                end(leaving.volumes_started, leaving.volume_timeout, now),
                leaving.deadline,
            );
            if limit.is_none_or(|limit| now < limit) {
                return (Step::Volumes(limit), timed_out);
            }
            timed_out.push(TimedOut::Volumes);
        }
    }
    if !leaving.pre_terminate_hooks.is_empty() && leaving.infrastructure == Infrastructure::Present
    {
        return (
            Step::PreTerminateHooks(leaving.pre_terminate_hooks.clone()),
            timed_out,
        );
    }
    if leaving.infrastructure != Infrastructure::Gone {
        return (Step::Infrastructure, timed_out);
    }
    match leaving.node {
        NodeConcern::Ours => (Step::Node, timed_out),
        NodeConcern::NoNode | NodeConcern::ClusterDeleting => (Step::Done, timed_out),
    }
}

/// When a step's limit passes: measured from its own start, which is now if it has not begun.
fn end(
    started: Option<Timestamp>,
    limit: Option<SignedDuration>,
    now: Timestamp,
) -> Option<Timestamp> {
    let limit = limit.filter(|limit| limit.is_positive())?;
    Some(
        started
            .unwrap_or(now)
            .saturating_add(limit)
            .unwrap_or(Timestamp::MAX),
    )
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn leaving() -> Leaving {
        Leaving {
            asked: at(0),
            pre_drain_hooks: Vec::new(),
            pre_terminate_hooks: Vec::new(),
            node: NodeConcern::Ours,
            skips_drain: false,
            skips_volumes: false,
            drain_started: None,
            volumes_started: None,
            pre_terminate_started: None,
            drain_timeout: None,
            volume_timeout: None,
            deadline: None,
            infrastructure: Infrastructure::Present,
            drained: Some(false),
            detached: Some(false),
        }
    }

    #[test]
    fn a_deletion_goes_from_hooks_over_drain_and_volumes_to_instance_and_node() {
        let mut machine = leaving();
        machine.pre_drain_hooks = vec!["backup".to_owned()];
        machine.pre_terminate_hooks = vec!["report".to_owned()];
        assert_eq!(
            step(&machine, at(1)).0,
            Step::PreDrainHooks(vec!["backup".to_owned()])
        );
        machine.pre_drain_hooks.clear();
        assert_eq!(step(&machine, at(1)).0, Step::Drain(None));
        machine.drained = Some(true);
        assert_eq!(step(&machine, at(1)).0, Step::Volumes(None));
        machine.detached = Some(true);
        assert_eq!(
            step(&machine, at(1)).0,
            Step::PreTerminateHooks(vec!["report".to_owned()])
        );
        machine.pre_terminate_hooks.clear();
        assert_eq!(step(&machine, at(1)).0, Step::Infrastructure);
        machine.infrastructure = Infrastructure::Deleting;
        machine.drained = Some(false);
        assert_eq!(
            step(&machine, at(1)).0,
            Step::Infrastructure,
            "too late for a drain"
        );
        machine.infrastructure = Infrastructure::Gone;
        assert_eq!(step(&machine, at(1)).0, Step::Node);
        machine.node = NodeConcern::NoNode;
        assert_eq!(step(&machine, at(1)).0, Step::Done);
    }

    #[test]
    fn limits_are_measured_from_their_own_start_and_said_when_they_pass() {
        let mut machine = leaving();
        machine.drain_timeout = Some(SignedDuration::from_secs(60));
        machine.volume_timeout = Some(SignedDuration::from_secs(30));
        assert_eq!(
            step(&machine, at(1000)),
            (Step::Drain(Some(at(1060))), vec![])
        );
        machine.drain_started = Some(at(1000));
        assert_eq!(step(&machine, at(1059)).0, Step::Drain(Some(at(1060))));
        assert_eq!(
            step(&machine, at(1060)),
            (Step::Volumes(Some(at(1090))), vec![TimedOut::Drain])
        );
        machine.volumes_started = Some(at(1060));
        let (at_end, timed_out) = step(&machine, at(1090));
        assert_eq!((at_end, timed_out.len()), (Step::Infrastructure, 2));
    }

    #[test]
    fn an_unreadable_workload_cluster_is_waited_for_within_the_limit() {
        let mut machine = leaving();
        machine.drained = None;
        machine.detached = None;
        assert_eq!(step(&machine, at(1)).0, Step::Drain(None));
        machine.drain_timeout = Some(SignedDuration::from_secs(60));
        machine.drain_started = Some(at(0));
        assert!(matches!(step(&machine, at(60)).0, Step::Volumes(None)));
    }

    #[test]
    fn the_clouds_deadline_ends_a_drain_that_has_no_limit() {
        let mut machine = leaving();
        machine.deadline = Some(at(120));
        assert_eq!(step(&machine, at(1)).0, Step::Drain(Some(at(120))));
        assert_eq!(step(&machine, at(120)).0, Step::Infrastructure);
    }

    #[test]
    fn nothing_is_drained_for_a_cluster_that_goes_or_a_machine_that_never_joined() {
        for node in [NodeConcern::ClusterDeleting, NodeConcern::NoNode] {
            let machine = Leaving {
                node,
                pre_drain_hooks: vec!["x".to_owned()],
                drained: None,
                ..leaving()
            };
            assert_eq!(step(&machine, at(1)).0, Step::Infrastructure);
        }
    }
}

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
    /// When the wait for pre-drain hooks began.
    pub pre_drain_started: Option<Timestamp>,
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
    /// Steps whose limit passed, as far as that was said already; they stay said to the end.
    pub passed: Vec<TimedOut>,
    /// When the cloud takes the instance back, if it announced that.
    pub deadline: Option<Timestamp>,
    /// When the deletion of the Node object was first tried.
    pub node_deletion_started: Option<Timestamp>,
    /// Limit of the deletion of the Node object; none is for ever.
    pub node_deletion_timeout: Option<SignedDuration>,
    /// Where its InfraMachine stands.
    pub infrastructure: Existence,
    /// Where the bootstrap object stands that is its own; gone, if it has none.
    pub bootstrap: Existence,
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

/// Where an object stands that goes with a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existence {
    /// It is there.
    Present,
    /// It is being deleted, and its provider keeps the instance until its Machine has come that far.
    Held,
    /// It is being deleted, and the instance with it.
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
    /// Its own bootstrap object is deleted and awaited.
    Bootstrap,
    /// The Node object is deleted.
    Node,
    /// Nothing is left.
    Done,
}

/// A step that was ended by its limit and not by its success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimedOut {
    /// The drain.
    Drain,
    /// The wait for volumes.
    Volumes,
    /// The deletion of the Node object.
    Node,
}

/// The step that a deletion is at, and the steps before it whose limit passed, now or as was said before.
pub fn step(leaving: &Leaving, now: Timestamp) -> (Step, Vec<TimedOut>) {
    let (at, now_passed) = reached(leaving, now);
    let mut passed = leaving.passed.clone();
    // What is at it again has not ended by its limit.
    passed.retain(|which| match which {
        TimedOut::Drain => !matches!(at, Step::PreDrainHooks(_) | Step::Drain(_)),
        TimedOut::Volumes => !matches!(
            at,
            Step::PreDrainHooks(_) | Step::Drain(_) | Step::Volumes(_)
        ),
        TimedOut::Node => at != Step::Node,
    });
    passed.extend(now_passed);
    passed.sort_unstable();
    passed.dedup();
    (at, passed)
}

fn reached(leaving: &Leaving, now: Timestamp) -> (Step, Vec<TimedOut>) {
    let mut timed_out = Vec::new();
    // A hook that has begun to hold does so until its owner takes it away, whatever becomes of Node and instance. Where
    // there was no Node from the start it never began. Source: Cluster API, for the latter.
    let hooks_hold = match leaving.node {
        NodeConcern::Ours => true,
        NodeConcern::NoNode => leaving.pre_drain_started.is_some(),
        NodeConcern::ClusterDeleting => false,
    };
    if hooks_hold && !leaving.pre_drain_hooks.is_empty() {
        return (
            Step::PreDrainHooks(leaving.pre_drain_hooks.clone()),
            timed_out,
        );
    }
    if leaving.node == NodeConcern::Ours {
        // Once hooks before the end are waited for, or the instance is going, a drain comes too late.
        let lives = matches!(leaving.infrastructure, Existence::Present | Existence::Held);
        let open = leaving.pre_terminate_started.is_none() && lives;
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
    if !leaving.pre_terminate_hooks.is_empty() {
        return (
            Step::PreTerminateHooks(leaving.pre_terminate_hooks.clone()),
            timed_out,
        );
    }
    if leaving.infrastructure != Existence::Gone {
        return (Step::Infrastructure, timed_out);
    }
    if leaving.bootstrap != Existence::Gone {
        return (Step::Bootstrap, timed_out);
    }
    match leaving.node {
        NodeConcern::Ours => {
            let limit = end(
                leaving.node_deletion_started,
                leaving.node_deletion_timeout,
                now,
            );
            if limit.is_none_or(|limit| now < limit) {
                return (Step::Node, timed_out);
            }
            timed_out.push(TimedOut::Node);
            (Step::Done, timed_out)
        }
        NodeConcern::NoNode | NodeConcern::ClusterDeleting => (Step::Done, timed_out),
    }
}

/// How long the InfraMachine of a pool's Machine may be missing: its provider may be making it anew.
const MISSING: SignedDuration = SignedDuration::from_secs(10);

/// What becomes of a Machine whose InfraMachine is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing.
    None,
    /// It is looked at again after this time.
    Waits(SignedDuration),
    /// It is deleted, for its InfraMachine is.
    Follows,
    /// It is deleted, for its InfraMachine is gone.
    Lost,
}

/// What becomes of a Machine that is not being deleted, by where its InfraMachine stands and since when it has been
/// missing.
pub fn loss(infrastructure: Existence, missing: Option<Timestamp>, now: Timestamp) -> Loss {
    match (infrastructure, missing) {
        (Existence::Present, _) | (Existence::Gone, None) => Loss::None,
        (Existence::Held | Existence::Deleting, _) => Loss::Follows,
        (Existence::Gone, Some(since)) => {
            let left = MISSING.saturating_sub(now.duration_since(since));
            if left.is_positive() {
                Loss::Waits(left)
            } else {
                Loss::Lost
            }
        }
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
            pre_drain_started: None,
            passed: Vec::new(),
            drain_started: None,
            volumes_started: None,
            pre_terminate_started: None,
            drain_timeout: None,
            volume_timeout: None,
            deadline: None,
            node_deletion_started: None,
            node_deletion_timeout: Some(SignedDuration::from_secs(10)),
            bootstrap: Existence::Gone,
            infrastructure: Existence::Present,
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
        machine.infrastructure = Existence::Deleting;
        machine.drained = Some(false);
        assert_eq!(
            step(&machine, at(1)).0,
            Step::Infrastructure,
            "too late for a drain"
        );
        machine.infrastructure = Existence::Gone;
        machine.bootstrap = Existence::Deleting;
        assert_eq!(step(&machine, at(1)).0, Step::Bootstrap);
        machine.bootstrap = Existence::Gone;
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
    fn a_node_that_cannot_be_deleted_is_left_behind_after_its_limit_or_never() {
        let mut machine = leaving();
        machine.infrastructure = Existence::Gone;
        machine.node_deletion_started = Some(at(100));
        assert_eq!(step(&machine, at(109)), (Step::Node, vec![]));
        assert_eq!(step(&machine, at(110)), (Step::Done, vec![TimedOut::Node]));
        machine.node_deletion_timeout = None;
        assert_eq!(step(&machine, at(100_000)).0, Step::Node);
    }

    #[test]
    fn a_hook_holds_whatever_becomes_of_the_instance_and_a_passed_limit_stays_said() {
        let mut machine = leaving();
        machine.pre_terminate_hooks = vec!["report".to_owned()];
        machine.pre_terminate_started = Some(at(5));
        let held = Step::PreTerminateHooks(vec!["report".to_owned()]);
        for infrastructure in [Existence::Held, Existence::Deleting, Existence::Gone] {
            for node in [NodeConcern::Ours, NodeConcern::NoNode] {
                machine.infrastructure = infrastructure;
                machine.node = node;
                assert_eq!(step(&machine, at(9)).0, held);
            }
        }
        machine.passed = vec![TimedOut::Drain];
        machine.pre_terminate_hooks.clear();
        assert_eq!(step(&machine, at(9)), (Step::Done, vec![TimedOut::Drain]));
        let mut machine = leaving();
        machine.node = NodeConcern::NoNode;
        machine.pre_drain_hooks = vec!["backup".to_owned()];
        assert_eq!(step(&machine, at(9)).0, Step::Infrastructure);
        machine.pre_drain_started = Some(at(1));
        assert!(matches!(step(&machine, at(9)).0, Step::PreDrainHooks(_)));
    }

    #[test]
    fn a_machine_follows_its_infra_machine_and_one_that_is_missing_is_given_a_moment() {
        assert_eq!(loss(Existence::Present, Some(at(0)), at(99)), Loss::None);
        assert_eq!(loss(Existence::Held, None, at(1)), Loss::Follows);
        assert_eq!(loss(Existence::Deleting, None, at(1)), Loss::Follows);
        assert_eq!(loss(Existence::Gone, None, at(99)), Loss::None);
        let left = SignedDuration::from_secs(4);
        assert_eq!(
            loss(Existence::Gone, Some(at(10)), at(16)),
            Loss::Waits(left)
        );
        assert_eq!(loss(Existence::Gone, Some(at(10)), at(20)), Loss::Lost);
    }

    #[test]
    fn a_machine_whose_infra_machine_is_held_is_drained_as_any_other() {
        let mut machine = leaving();
        machine.infrastructure = Existence::Held;
        assert_eq!(step(&machine, at(1)).0, Step::Drain(None));
        machine.drained = Some(true);
        machine.detached = Some(true);
        assert_eq!(step(&machine, at(1)).0, Step::Infrastructure);
    }

    proptest::proptest! {
        /// Whatever a Machine is like: while its Node is of concern and the instance is there, it gets to the end of the
        /// instance only drained, or excluded, or past a limit, or past a hook before the end that was waited for.
        #[test]
        fn nothing_is_terminated_undrained_but_for_a_reason(
            skips in proptest::bool::ANY,
            drained in proptest::option::of(proptest::bool::ANY),
            started in proptest::option::of(0_i64..100),
            timeout in proptest::option::of(0_i64..100),
            deadline in proptest::option::of(0_i64..200),
            pre_terminate in proptest::option::of(0_i64..100),
            now in 0_i64..200,
        ) {
            let machine = Leaving {
                skips_drain: skips,
                drained,
                detached: Some(true),
                drain_started: started.map(at),
                drain_timeout: timeout.map(SignedDuration::from_secs),
                deadline: deadline.map(at),
                pre_terminate_started: pre_terminate.map(at),
                ..leaving()
            };
            let (reached, timed_out) = step(&machine, at(now));
            let over = |limit: Option<i64>| limit.is_some_and(|limit| now >= limit);
            let limit = started.zip(timeout.filter(|t| *t > 0)).map(|(s, t)| s + t);
            let excused = skips || drained == Some(true) || pre_terminate.is_some() || over(limit) || over(deadline);
            proptest::prop_assert_eq!(reached == Step::Infrastructure, excused);
            let said = timed_out.contains(&TimedOut::Drain);
            proptest::prop_assert_eq!(said, !skips && drained != Some(true) && pre_terminate.is_none() && (over(limit) || over(deadline)));
        }
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

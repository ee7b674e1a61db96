//! A deletion in words: the message of its condition, and Events, once each.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::runtime::events::EventType;
use muster_api::Machine;
use muster_api::conditions::{Reason as _, Said, types};
use muster_api::reference::Conditioned;
use muster_informers::Key;
use muster_plan::drain as plan_drain;
use muster_plan::machine::{Leaving, Step, TimedOut};
use muster_plan::turns::Turn;
use muster_plan::volumes;
use muster_provider::events::about;

use super::super::drain::cordon::Outcome;
use super::super::refusals::Held;
use super::super::{NodeSeen, Seen, binding};
use super::observe::OnNode;
use crate::Context;

pub(super) fn reason(at: &Step) -> types::Deleting {
    match at {
        Step::PreDrainHooks(_) => types::Deleting::WaitingForPreDrainHook,
        Step::Drain(_) => types::Deleting::DrainingNode,
        Step::Volumes(_) => types::Deleting::WaitingForVolumeDetach,
        Step::PreTerminateHooks(_) => types::Deleting::WaitingForPreTerminateHook,
        Step::Infrastructure => types::Deleting::WaitingForInfrastructureDeletion,
        Step::Bootstrap => types::Deleting::WaitingForBootstrapDeletion,
        Step::Node => types::Deleting::DeletingNode,
        Step::Done => types::Deleting::DeletionCompleted,
    }
}

/// All that a message is made of.
pub(super) struct Story<'a> {
    pub(super) machine: &'a Machine,
    pub(super) seen: &'a Seen,
    pub(super) leaving: &'a Leaving,
    pub(super) at: &'a Step,
    pub(super) timed_out: &'a [TimedOut],
    pub(super) on_node: Option<&'a OnNode>,
    pub(super) turn: Option<&'a Turn<Key>>,
    pub(super) held: &'a Held,
    pub(super) now: Timestamp,
}

/// The message of the Deleting condition.
pub(super) fn message(story: &Story<'_>) -> String {
    let machine = story.machine;
    let node = machine.node_name().unwrap_or_default();
    let mut text = match story.at {
        Step::PreDrainHooks(hooks) | Step::PreTerminateHooks(hooks) => {
            format!("Waiting for hooks (hooks: {})", hooks.join(", "))
        }
        Step::Drain(limit) => drain(story, *limit),
        Step::Volumes(_) => match story.on_node {
            Some(on_node) => volumes::message(&on_node.detach),
            None => unreadable(story, "its volumes cannot be looked at"),
        },
        Step::Infrastructure => format!(
            "Waiting for {} {} to be deleted",
            machine.spec.infrastructure_ref.kind, machine.spec.infrastructure_ref.name
        ),
        Step::Bootstrap => {
            let reference = machine.spec.bootstrap.config_ref.as_ref();
            format!(
                "Waiting for {} {} to be deleted",
                reference.map_or("", |r| &r.kind),
                reference.map_or("", |r| &r.name)
            )
        }
        Step::Node => format!("Deleting Node {node}"),
        Step::Done => "Deletion completed".to_owned(),
    };
    if let Some(told) = binding::told(&story.seen.rivals) {
        text.push_str("\n* ");
        text.push_str(&told);
    }
    for passed in story.timed_out {
        text.push_str("\n* ");
        text.push_str(&limit_passed(*passed, story.leaving, node));
    }
    text
}

fn drain(story: &Story<'_>, limit: Option<Timestamp>) -> String {
    let Some(on_node) = story.on_node else {
        return unreadable(story, "its Node cannot be drained");
    };
    let node = on_node.node.name_any();
    let cluster = &story.machine.spec.cluster_name;
    match (story.turn, &on_node.drain) {
        (Some(Turn::Full { limit }), _) => format!(
            "Waiting for its turn to be drained: {limit} Nodes of Cluster {cluster} are drained at once, and no more; until then Node {node} is avoided by Pods that have the choice"
        ),
        (Some(Turn::NowhereToGo), _) => format!(
            "Waiting for its turn to be drained: no other Node of Cluster {cluster} would take its Pods while those before it are drained"
        ),
        (Some(Turn::MakesWay { to, until }), _) => format!(
            "Makes way for Machine {}, which goes first, for the budgets of both wait for Pods that find no Node: Node {node} takes Pods again until that drain is over, or until {}",
            to.name,
            second(*until)
        ),
        (_, Err(why)) => format!("Node {node} is not drained: {why}"),
        (_, Ok(step)) => {
            let since = story.leaving.drain_started.unwrap_or(story.now);
            plan_drain::message(since, step, &story.held.refused(), limit, story.now)
        }
    }
}

fn unreadable(story: &Story<'_>, so: &str) -> String {
    match &story.seen.node {
        NodeSeen::Several(nodes) => format!(
            "the Nodes {} all claim the providerID of this Machine, so {so}; delete all but the true one",
            nodes.join(", ")
        ),
        _ => {
            let mut text = format!(
                "the API of Cluster {} does not answer, so {so}; it is tried again",
                story.machine.spec.cluster_name
            );
            // What held the drain before is what will when it goes on.
            let before = story.machine.condition_of(types::Deleting::TYPE);
            for line in before
                .iter()
                .flat_map(|said| plan_drain::refused_lines(&said.message))
            {
                text.push('\n');
                text.push_str(line);
            }
            text
        }
    }
}

/// How the line about a step begins whose limit passed.
const PASSED: [(TimedOut, &str); 3] = [
    (TimedOut::Drain, "* the drain of Node "),
    (TimedOut::Volumes, "* volumes were not detached from Node "),
    (TimedOut::Node, "* the deletion of Node "),
];

/// The steps of a deletion whose limit has passed, as its condition says: it is where they are remembered.
pub(super) fn passed(machine: &Machine) -> Vec<TimedOut> {
    let condition = machine.condition_of(types::Deleting::TYPE);
    let lines = condition.iter().flat_map(|said| said.message.lines());
    let passed = lines.filter_map(|line| {
        let found = PASSED.iter().find(|(_, start)| line.starts_with(start));
        found.map(|(which, _)| *which)
    });
    passed.collect()
}

fn limit_passed(passed: TimedOut, leaving: &Leaving, node: &str) -> String {
    let since = |started: Option<Timestamp>| {
        started.map_or_else(String::new, |at| format!(" (started at {})", second(at)))
    };
    match passed {
        TimedOut::Drain => format!(
            "the drain of Node {node} has not ended within its limit{}; the machine is terminated with what is left on it",
            since(leaving.drain_started)
        ),
        TimedOut::Volumes => format!(
            "volumes were not detached from Node {node} within the limit{}; the machine is terminated nevertheless",
            since(leaving.volumes_started)
        ),
        TimedOut::Node => format!(
            "the deletion of Node {node} has not succeeded within its limit{}, so the Node is left behind",
            since(leaving.node_deletion_started)
        ),
    }
}

/// After how long a deletion is said to take long. Source: Cluster API.
const LONG: SignedDuration = SignedDuration::from_mins(15);
/// After how long a drain is said to be what makes it long. Source: Cluster API.
const LONG_DRAIN: SignedDuration = SignedDuration::from_mins(5);

/// The Ready condition of a Machine that goes: at which stage, and after long what the delay is likely due to.
pub(super) fn ready(story: &Story<'_>) -> Said {
    let mut text = format!(
        "* Deleting: Machine deletion in progress, stage: {}",
        reason(story.at).as_str()
    );
    let long = |since: Timestamp, limit| story.now.duration_since(since) > limit;
    if long(story.leaving.asked, LONG) {
        text.push_str(", since more than 15m");
        let draining = matches!(story.at, Step::Drain(_))
            && story
                .leaving
                .drain_started
                .is_some_and(|at| long(at, LONG_DRAIN));
        let causes = causes(story);
        if draining && !causes.is_empty() {
            text.push_str(&format!(", delay likely due to {}", causes.join(", ")));
        }
    }
    types::Ready::NotReady.fails().because(text)
}

fn causes(story: &Story<'_>) -> Vec<&'static str> {
    use plan_drain::Refusal;
    let held = story.held.refused();
    let refused = |wanted: fn(&Refusal) -> bool| held.values().any(|(refusal, _)| wanted(refusal));
    let step = story
        .on_node
        .and_then(|on_node| on_node.drain.as_ref().ok());
    let mut causes = Vec::new();
    if refused(|r| matches!(r, Refusal::Budget(_) | Refusal::SeveralBudgets(_))) {
        causes.push("PodDisruptionBudgets");
    }
    if step.is_some_and(|step| !step.going.is_empty()) {
        causes.push("Pods not terminating");
    }
    if refused(|r| matches!(r, Refusal::Failed(_) | Refusal::NamespaceTerminating)) {
        causes.push("Pod eviction errors");
    }
    if step.is_some_and(|step| !step.completing.is_empty()) {
        causes.push("Pods not completed yet");
    }
    causes
}

/// Says what begins and what ended, once each: when the condition's reason changes.
pub(super) async fn tell(context: &Context, story: &Story<'_>, message: &str) {
    let machine = story.machine;
    let before = machine
        .condition_of(types::Deleting::TYPE)
        .map(|condition| condition.reason.clone())
        .unwrap_or_default();
    let is = |reason: types::Deleting| before == reason.as_str();
    let now = reason(story.at);
    if is(now) {
        return;
    }
    let object = about(machine);
    let node = machine.node_name().unwrap_or_default();
    let say = |type_, reason: &'static str, note: String| {
        context.events.say(&object, type_, reason, "Delete", note)
    };
    let passed = |which| story.timed_out.contains(&which);
    let limit = |which| limit_passed(which, story.leaving, node);
    if is(types::Deleting::DrainingNode) {
        if passed(TimedOut::Drain) {
            say(
                EventType::Warning,
                "FailedDrainNode",
                limit(TimedOut::Drain),
            )
            .await;
        } else {
            let step = story
                .on_node
                .and_then(|on_node| on_node.drain.as_ref().ok());
            let left = step.and_then(|step| plan_drain::left_behind(&step.skipped));
            let note = match left {
                Some(left) => format!("Node {node} was drained. {left}"),
                None => format!("Node {node} was drained"),
            };
            say(EventType::Normal, "SuccessfulDrainNode", note).await;
        }
    }
    if is(types::Deleting::WaitingForVolumeDetach) {
        if passed(TimedOut::Volumes) {
            let note = limit(TimedOut::Volumes);
            say(EventType::Warning, "FailedWaitForVolumeDetach", note).await;
        } else {
            let note = format!("volumes were detached from Node {node}");
            say(EventType::Normal, "NodeVolumesDetached", note).await;
        }
    }
    if passed(TimedOut::Node) {
        say(
            EventType::Warning,
            "FailedDeleteNode",
            limit(TimedOut::Node),
        )
        .await;
    }
    let note = match (story.at, story.turn) {
        (Step::Done, _) => return,
        (Step::Drain(_), None | Some(Turn::Go)) if story.on_node.is_some() => {
            format!("Node {node} is cordoned and drained")
        }
        _ => message.lines().next().unwrap_or_default().to_owned(),
    };
    say(EventType::Normal, now.as_str(), note).await;
}

/// Says what somebody else did to the cordon.
pub(super) async fn tell_cordon(context: &Context, machine: &Machine, outcome: &Outcome) {
    let Outcome::CordonedAgain { by } = outcome else {
        return;
    };
    let note = format!(
        "Node {} was uncordoned{} while it is drained, and is cordoned again",
        machine.node_name().unwrap_or_default(),
        by.as_ref()
            .map_or_else(String::new, |by| format!(" by {by}"))
    );
    let object = about(machine);
    context
        .events
        .say(
            &object,
            EventType::Warning,
            "NodeCordonedAgain",
            "Delete",
            note,
        )
        .await;
}

fn second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

//! A drain in words: what holds it, since when, and until when at most.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;

use super::{PodName, Skipped, Step};

/// How an eviction was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// A budget has no room.
    Budget(NoRoom),
    /// More than one budget selects the Pod, which the eviction API refuses for ever.
    SeveralBudgets(Vec<String>),
    /// The Pod's namespace is being deleted; the Pod goes with it.
    NamespaceTerminating,
    /// Anything else.
    Failed(String),
}

/// A refusal by a budget that has no room.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoRoom {
    /// The API's text with its causes.
    pub text: String,
    /// The budgets that select the Pod and allow nothing now.
    pub budgets: Vec<String>,
    /// What in such a budget keeps it from ever allowing a disruption.
    pub never: Option<String>,
    /// Pods of the budgets that are not ready, with what is known of why.
    pub unready: Vec<String>,
    /// The budget's policy, where it is that which keeps this Pod, which is not ready itself.
    pub keeps_unready: Option<String>,
}

impl NoRoom {
    fn told(&self, since: Timestamp) -> String {
        let mut text = format!(
            "cannot evict pod as it would violate the pod's disruption budget. {}{SINCE}{}{OF_BUDGET}{})",
            self.text,
            second(since),
            self.budgets.join(", ")
        );
        if let Some(policy) = &self.keeps_unready {
            let _ = write!(
                text,
                "; the Pod is not ready, and unhealthyPodEvictionPolicy {policy} keeps it all the same: AlwaysAllow in this budget would let it go"
            );
        }
        if let Some(never) = &self.never {
            let _ = write!(
                text,
                "; this budget never allows a disruption, for its {never}: change it, or set a drain timeout"
            );
        } else if !self.unready.is_empty() {
            let shown: Vec<&str> = self
                .unready
                .iter()
                .take(NAMES)
                .map(String::as_str)
                .collect();
            let _ = write!(
                text,
                "; not ready of its Pods: {}{}",
                shown.join(", "),
                match self.unready.len().checked_sub(NAMES) {
                    Some(more) if more > 0 => format!(", ... ({more} more)"),
                    _ => String::new(),
                }
            );
        }
        text
    }
}

/// What stands before the time of the first refusal, and between it and the names of the budgets.
const SINCE: &str = " (since ";
const OF_BUDGET: &str = "; budget ";

/// The lines of a drain's message that tell of refusals by budgets.
pub fn refused_lines(message: &str) -> impl Iterator<Item = &str> {
    let lines = message.lines();
    lines.filter(|line| line.contains(SINCE) && line.contains(OF_BUDGET))
}

/// Since when budgets have refused, by their names, as a message of a drain says it: it is where that is remembered.
pub fn since_when(message: &str) -> BTreeMap<String, Timestamp> {
    let told = refused_lines(message).filter_map(|line| {
        let (_, rest) = line.split_once(SINCE)?;
        let (told, _) = rest.split_once(')')?;
        let (since, budgets) = told.split_once(OF_BUDGET)?;
        Some((budgets.to_owned(), since.parse().ok()?))
    });
    told.collect()
}

/// Whether all that keeps a drain from its end are budgets without room.
pub fn is_held_by_budgets(step: &Step, refused: &BTreeMap<PodName, (Refusal, Timestamp)>) -> bool {
    step.going.is_empty()
        && step.completing.is_empty()
        && !step.evict.is_empty()
        && step
            .evict
            .iter()
            .all(|pod| matches!(refused.get(&pod.name), Some((Refusal::Budget(_), _))))
}

/// How many kinds of refusal a message names. Source: Cluster API.
const KINDS: usize = 5;
/// How many Pods a line names.
const NAMES: usize = 3;

/// The message of a drain that is under way, in the form that other tools parse.
pub fn message(
    started: Timestamp,
    step: &Step,
    refused: &BTreeMap<PodName, (Refusal, Timestamp)>,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> String {
    let mut text = format!("Drain not completed yet (started at {}):", second(started));
    let mut kinds: BTreeMap<&Refusal, (Vec<&PodName>, Timestamp)> = BTreeMap::new();
    for (pod, (refusal, since)) in refused {
        let entry = kinds.entry(refusal).or_insert((Vec::new(), *since));
        entry.0.push(pod);
        entry.1 = entry.1.min(*since);
    }
    let total = kinds.len();
    for (refusal, (pods, since)) in kinds.into_iter().take(KINDS) {
        let why = match refusal {
            Refusal::Budget(room) => room.told(since),
            Refusal::SeveralBudgets(names) => format!(
                "the budgets {} both select it, and the eviction API refuses such Pods for ever; let only one of them select it",
                names.join(" and ")
            ),
            Refusal::NamespaceTerminating => {
                "its namespace is being deleted and it goes with it".to_owned()
            }
            Refusal::Failed(error) => format!("failed to evict Pod, {error}"),
        };
        let _ = write!(
            text,
            "\n* Pod{} {}: {why}",
            plural(pods.len()),
            names(&pods)
        );
    }
    if total > KINDS {
        let _ = write!(text, "\n* … and {} more kinds of refusal", total - KINDS);
    }
    let (mut late, mut in_time) = (Vec::new(), Vec::new());
    for (pod, end) in &step.going {
        if *end < now {
            late.push(pod)
        } else {
            in_time.push(pod)
        }
    }
    if !in_time.is_empty() {
        let _ = write!(
            text,
            "\n* Pod{} {}: deletionTimestamp set, but still not removed from the Node; the last grace period ends at {}",
            plural(in_time.len()),
            names(&in_time),
            second(step.going.iter().map(|(_, end)| *end).max().unwrap_or(now))
        );
    }
    if !late.is_empty() {
        let longest = step
            .going
            .iter()
            .map(|(_, end)| now.duration_since(*end))
            .max()
            .unwrap_or_default();
        let _ = write!(
            text,
            "\n* Pod{} {}: deletionTimestamp set, but still not removed from the Node, {}s past the end of the grace period",
            plural(late.len()),
            names(&late),
            longest.as_secs()
        );
    }
    for (pods, why) in [
        (&step.completing, "waiting for completion"),
        (
            &step.later,
            "evicted after the Pods of lower order have gone",
        ),
    ] {
        if !pods.is_empty() {
            let list: Vec<&PodName> = pods.iter().collect();
            let _ = write!(
                text,
                "\n* Pod{} {}: {why}",
                plural(pods.len()),
                names(&list)
            );
        }
    }
    if let Some(left) = left_behind(&step.skipped) {
        let _ = write!(text, "\n* {left}");
    }
    if let Some(deadline) = deadline {
        let _ = write!(
            text,
            "\n* At {} the drain timeout passes, and the machine is terminated with what is left on it",
            second(deadline)
        );
    }
    text
}

/// Pods that are not waited for although their containers may still run: their Node cannot say.
pub fn left_behind(skipped: &[(PodName, Skipped)]) -> Option<String> {
    let pods: Vec<&PodName> = skipped
        .iter()
        .filter(|(_, why)| *why == Skipped::GoneWithItsNode)
        .map(|(pod, _)| pod)
        .collect();
    (!pods.is_empty()).then(|| {
        format!(
            "Pod{} {}: not waited for, as the Node is unreachable and cannot report their end",
            plural(pods.len()),
            names(&pods)
        )
    })
}

fn names(pods: &[&PodName]) -> String {
    let shown: Vec<String> = pods.iter().take(NAMES).map(ToString::to_string).collect();
    match pods.len().checked_sub(NAMES) {
        Some(more) if more > 0 => format!("{}, ... ({more} more)", shown.join(", ")),
        _ => shown.join(", "),
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn second(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::super::{Node, Owner, Pod, step};
    use super::*;

    const NODE: Node = Node { unreachable: false };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(name: &str) -> Pod {
        Pod {
            name: PodName {
                namespace: "ns".to_owned(),
                name: name.to_owned(),
            },
            uid: name.to_owned(),
            deletion: None,
            finished: false,
            owner: Owner::Other,
            mirror: false,
            label: None,
            rule: None,
        }
    }

    #[test]
    fn the_message_names_pods_budget_and_deadline() {
        let refused = BTreeMap::from([(
            pod("web-1").name,
            (
                Refusal::Budget(NoRoom {
                    text: "The disruption budget web needs 5 healthy pods and has 5 currently"
                        .to_owned(),
                    budgets: vec!["ns/web".to_owned()],
                    unready: vec!["ns/web-2 (CrashLoopBackOff)".to_owned()],
                    ..NoRoom::default()
                }),
                at(60),
            ),
        )]);
        let step = step(
            &[
                pod("web-1"),
                Pod {
                    deletion: Some(at(50)),
                    ..pod("slow")
                },
            ],
            NODE,
            at(100),
        );
        let text = message(at(0), &step, &refused, Some(at(300)), at(100));
        assert_eq!(
            text,
            "Drain not completed yet (started at 1970-01-01T00:00:00Z):\n\
             * Pod ns/web-1: cannot evict pod as it would violate the pod's disruption budget. The disruption budget web needs 5 healthy pods and has 5 currently (since 1970-01-01T00:01:00Z; budget ns/web); not ready of its Pods: ns/web-2 (CrashLoopBackOff)\n\
             * Pod ns/slow: deletionTimestamp set, but still not removed from the Node, 50s past the end of the grace period\n\
             * At 1970-01-01T00:05:00Z the drain timeout passes, and the machine is terminated with what is left on it"
        );
        let told = since_when(&text);
        assert_eq!(told, BTreeMap::from([("ns/web".to_owned(), at(60))]));
    }
}

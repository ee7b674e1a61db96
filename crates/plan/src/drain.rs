//! What a drain does with each Pod of a Node, and what it waits for.
//!
//! Rules are a list of small functions, each answering or passing; the order of the list is the precedence, and is
//! Cluster API's.

pub mod asking;
mod told;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

pub use told::{
    NoRoom, Refusal, is_held_by_budgets, left_behind, message, refused_lines, since_when,
};

/// A Pod by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a drain needs to know of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Which.
    pub name: PodName,
    /// Its uid, so that no namesake is evicted.
    pub uid: String,
    /// When its grace ends, once its deletion was asked for.
    pub deletion: Option<Timestamp>,
    /// Whether it ran to its end.
    pub finished: bool,
    /// What owns it.
    pub owner: Owner,
    /// Whether it is a static Pod's mirror.
    pub mirror: bool,
    /// Its `cluster.x-k8s.io/drain` label.
    pub label: Option<String>,
    /// What the first matching MachineDrainRule says.
    pub rule: Option<Treatment>,
}

/// What owns a Pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// A DaemonSet that exists.
    DaemonSet,
    /// Something else.
    #[default]
    Other,
}

/// How a rule treats a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Evicted, lower orders first.
    Drain {
        /// Its order.
        order: i32,
    },
    /// Left alone.
    Skip,
    /// Waited for until it has completed.
    WaitCompleted,
}

/// What is known of the Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its kubelet does not answer: Ready is Unknown.
    pub unreachable: bool,
}

/// Why a Pod is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skipped {
    /// It is to be gone, but its Node cannot say so.
    GoneWithItsNode,
    /// Its DaemonSet would make it again.
    DaemonSet,
    /// It belongs to the Node itself.
    Static,
    /// Its label says so.
    Label,
    /// A MachineDrainRule says so.
    Rule,
    /// It was to complete, and has.
    Completed,
}

/// What is done with a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, and nobody waits for it.
    Skip(Skipped),
    /// Nothing, until it has completed.
    WaitCompleted,
    /// It is evicted, in this order.
    Evict(i32),
}

/// How long past its grace a Pod on an unreachable Node still counts. Source: Cluster API.
const GONE_AFTER: SignedDuration = SignedDuration::from_secs(2);

type Rule = fn(&Pod, Node, Timestamp) -> Option<Verdict>;

const RULES: &[Rule] = &[gone_with_its_node, daemon_set, mirror, label, rule];

/// What is done with a Pod.
pub fn verdict(pod: &Pod, node: Node, now: Timestamp) -> Verdict {
    RULES
        .iter()
        .find_map(|rule| rule(pod, node, now))
        .unwrap_or(Verdict::Evict(0))
}

fn gone_with_its_node(pod: &Pod, node: Node, now: Timestamp) -> Option<Verdict> {
    let deletion = pod.deletion?;
    (node.unreachable && now.duration_since(deletion) >= GONE_AFTER)
        .then_some(Verdict::Skip(Skipped::GoneWithItsNode))
}

/// A finished DaemonSet Pod is left too: evicting it only makes its DaemonSet start another.
fn daemon_set(pod: &Pod, _: Node, _: Timestamp) -> Option<Verdict> {
    (pod.owner == Owner::DaemonSet).then_some(Verdict::Skip(Skipped::DaemonSet))
}

fn mirror(pod: &Pod, _: Node, _: Timestamp) -> Option<Verdict> {
    pod.mirror.then_some(Verdict::Skip(Skipped::Static))
}

fn label(pod: &Pod, _: Node, _: Timestamp) -> Option<Verdict> {
    let label = pod.label.as_deref()?;
    if label.eq_ignore_ascii_case("skip") {
        Some(Verdict::Skip(Skipped::Label))
    } else if label.eq_ignore_ascii_case("wait-completed") {
        Some(completed_or_wait(pod))
    } else {
        None
    }
}

fn rule(pod: &Pod, _: Node, _: Timestamp) -> Option<Verdict> {
    Some(match pod.rule? {
        Treatment::Skip => Verdict::Skip(Skipped::Rule),
        Treatment::WaitCompleted => completed_or_wait(pod),
        Treatment::Drain { order } => Verdict::Evict(order),
    })
}

fn completed_or_wait(pod: &Pod) -> Verdict {
    if pod.finished {
        Verdict::Skip(Skipped::Completed)
    } else {
        Verdict::WaitCompleted
    }
}

/// What a drain does next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Pods to evict now.
    pub evict: Vec<Pod>,
    /// Pods that are going, with the end of their grace.
    pub going: Vec<(PodName, Timestamp)>,
    /// Pods that are to complete.
    pub completing: Vec<PodName>,
    /// Pods whose turn has not come.
    pub later: Vec<PodName>,
    /// Pods that are left alone.
    pub skipped: Vec<(PodName, Skipped)>,
}

impl Step {
    /// Whether nothing is left to wait for.
    pub fn is_done(&self) -> bool {
        self.evict.is_empty()
            && self.going.is_empty()
            && self.completing.is_empty()
            && self.later.is_empty()
    }
}

/// When Pods that are going cease to count though nobody says so: their Node is unreachable.
pub fn next_to_cease(step: &Step, node: Node) -> Option<Timestamp> {
    let ends = step.going.iter().map(|(_, end)| *end).min();
    let ceases = ends.map(|end| end.saturating_add(GONE_AFTER).unwrap_or(Timestamp::MAX));
    ceases.filter(|_| node.unreachable)
}

/// What a drain does next with the Pods of a Node: only those of the lowest order that is present, the others wait.
pub fn step(pods: &[Pod], node: Node, now: Timestamp) -> Step {
    let mut step = Step::default();
    let mut by_order: BTreeMap<i32, Vec<&Pod>> = BTreeMap::new();
    for pod in pods {
        match verdict(pod, node, now) {
            Verdict::Skip(why) => step.skipped.push((pod.name.clone(), why)),
            // Waiting for completion has the order 0, as evictions without a rule have.
            Verdict::WaitCompleted => {
                by_order.entry(0).or_default().push(pod);
            }
            Verdict::Evict(order) => by_order.entry(order).or_default().push(pod),
        }
    }
    let mut orders = by_order.into_values();
    for pod in orders.next().into_iter().flatten() {
        let waits = verdict(pod, node, now) == Verdict::WaitCompleted;
        match pod.deletion {
            Some(end) => step.going.push((pod.name.clone(), end)),
            None if waits => step.completing.push(pod.name.clone()),
            None => step.evict.push(pod.clone()),
        }
    }
    step.later = orders.flatten().map(|pod| pod.name.clone()).collect();
    step.evict.sort_by(|a, b| a.name.cmp(&b.name));
    step.going.sort();
    step.completing.sort();
    step.later.sort();
    step.skipped.sort();
    step
}

#[cfg(test)]
mod tests {
    use super::*;

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

    const NODE: Node = Node { unreachable: false };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn each_rule_answers_for_what_it_is_for() {
        let skip = |why| Verdict::Skip(why);
        let cases = [
            (pod("plain"), Verdict::Evict(0)),
            (
                Pod {
                    owner: Owner::DaemonSet,
                    ..pod("a")
                },
                skip(Skipped::DaemonSet),
            ),
            (
                Pod {
                    owner: Owner::DaemonSet,
                    finished: true,
                    ..pod("a")
                },
                skip(Skipped::DaemonSet),
            ),
            (
                Pod {
                    mirror: true,
                    ..pod("a")
                },
                skip(Skipped::Static),
            ),
            (
                Pod {
                    label: Some("Skip".to_owned()),
                    ..pod("a")
                },
                skip(Skipped::Label),
            ),
            (
                Pod {
                    label: Some("wait-completed".to_owned()),
                    ..pod("a")
                },
                Verdict::WaitCompleted,
            ),
            (
                Pod {
                    label: Some("wait-completed".to_owned()),
                    finished: true,
                    ..pod("a")
                },
                skip(Skipped::Completed),
            ),
            (
                Pod {
                    label: Some("nonsense".to_owned()),
                    ..pod("a")
                },
                Verdict::Evict(0),
            ),
            (
                Pod {
                    rule: Some(Treatment::Skip),
                    ..pod("a")
                },
                skip(Skipped::Rule),
            ),
            (
                Pod {
                    rule: Some(Treatment::Drain { order: 7 }),
                    ..pod("a")
                },
                Verdict::Evict(7),
            ),
            // The label comes before rules, and a DaemonSet before both.
            (
                Pod {
                    label: Some("skip".to_owned()),
                    rule: Some(Treatment::WaitCompleted),
                    ..pod("a")
                },
                skip(Skipped::Label),
            ),
        ];
        for (pod, expected) in cases {
            assert_eq!(verdict(&pod, NODE, at(0)), expected, "{pod:?}");
        }
        let gone = Pod {
            deletion: Some(at(10)),
            ..pod("a")
        };
        assert_eq!(
            verdict(&gone, Node { unreachable: true }, at(12)),
            skip(Skipped::GoneWithItsNode)
        );
        assert_eq!(
            verdict(&gone, Node { unreachable: true }, at(11)),
            Verdict::Evict(0)
        );
        assert_eq!(verdict(&gone, NODE, at(99)), Verdict::Evict(0));
    }

    #[test]
    fn the_next_order_waits_until_the_last_has_gone() {
        let order = |name: &str, order| Pod {
            rule: Some(Treatment::Drain { order }),
            ..pod(name)
        };
        let going = Pod {
            deletion: Some(at(30)),
            ..order("first", -1)
        };
        let step1 = step(&[order("b", 5), going, pod("c")], NODE, at(0));
        assert!(step1.evict.is_empty());
        assert_eq!(step1.going.len(), 1);
        assert_eq!(step1.later.len(), 2);
        let step2 = step(&[order("b", 5), pod("c")], NODE, at(0));
        assert_eq!(step2.evict[0].name.name, "c");
        assert!(
            step(
                &[Pod {
                    owner: Owner::DaemonSet,
                    ..pod("d")
                }],
                NODE,
                at(0)
            )
            .is_done()
        );
    }
}

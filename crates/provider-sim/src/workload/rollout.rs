//! How far a Deployment's ReplicaSets move in one step: the new one up, the others down, within what the strategy allows.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{wanted_of_deployment, wanted_of_set};

/// What is both wanted of a ReplicaSet and there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) wanted: i32,
    pub(super) available: i32,
    /// Pods that exist, whatever their state.
    pub(super) there: i32,
}

impl Size {
    pub(super) fn of(set: &ReplicaSet) -> Self {
        let status = set.status.as_ref();
        Self {
            wanted: wanted_of_set(set),
            available: status.and_then(|s| s.available_replicas).unwrap_or(0),
            there: status.map_or(0, |s| s.replicas),
        }
    }
}

/// What a Deployment's strategy allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    replicas: i32,
    surge: i32,
    unavailable: i32,
    recreate: bool,
}

impl Limits {
    pub(super) fn of(deployment: &Deployment) -> Self {
        let replicas = wanted_of_deployment(deployment);
        let strategy = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let surge = number(
            rolling.and_then(|rolling| rolling.max_surge.as_ref()),
            replicas,
            true,
        );
        let unavailable = number(
            rolling.and_then(|rolling| rolling.max_unavailable.as_ref()),
            replicas,
            false,
        );
        Self {
            replicas,
            surge,
            // With neither, nothing could ever move. Source: Kubernetes.
            unavailable: if surge == 0 {
                unavailable.max(1)
            } else {
                unavailable.min(replicas)
            },
            recreate: strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate"),
        }
    }

    /// How many Pods have to be available for the Deployment to count as such.
    pub(super) fn least(self) -> i32 {
        let unavailable = if self.recreate { 0 } else { self.unavailable };
        (self.replicas - unavailable).max(0)
    }
}

/// A number or a percentage of `of`, 25 % where nothing is said: surges are rounded up, what may be missing is rounded down.
fn number(value: Option<&IntOrString>, of: i32, up: bool) -> i32 {
    let percent = match value {
        Some(IntOrString::Int(number)) => return (*number).max(0),
        Some(IntOrString::String(text)) => text
            .strip_suffix('%')
            .and_then(|number| number.parse::<i64>().ok())
            .unwrap_or(0),
        None => 25,
    };
    let share = i64::from(of) * percent.max(0);
    i32::try_from(if up { (share + 99) / 100 } else { share / 100 }).unwrap_or(i32::MAX)
}

/// What is to be wanted next of the new ReplicaSet (which may not exist yet) and of the old ones, oldest first.
pub(super) fn step(limits: Limits, new: Size, old: &[Size]) -> (i32, Vec<i32>) {
    let mut next: Vec<i32> = old.iter().map(|set| set.wanted).collect();
    let old_wanted: i32 = next.iter().sum();
    if limits.recreate {
        let gone = old.iter().all(|set| set.there == 0) && old_wanted == 0;
        let new_wanted = if gone { limits.replicas } else { new.wanted };
        return (new_wanted, vec![0; old.len()]);
    }
    let room = limits.replicas + limits.surge - new.wanted - old_wanted;
    let new_wanted = if new.wanted >= limits.replicas {
        limits.replicas
    } else {
        new.wanted + room.clamp(0, limits.replicas - new.wanted)
    };
    if new_wanted != new.wanted {
        return (new_wanted, next);
    }
    let new_missing = (new.wanted - new.available).max(0);
    let mut spare = new.wanted + old_wanted - limits.least() - new_missing;
    // What is not available anyway goes first: nobody misses it.
    for (wanted, set) in next.iter_mut().zip(old) {
        let broken = (set.wanted - set.available).max(0).min(*wanted);
        let down = broken.clamp(0, spare.max(0));
        *wanted -= down;
        spare -= down;
    }
    let available: i32 = new.available + old.iter().map(|set| set.available).sum::<i32>();
    let mut spare = spare.min(available - limits.least());
    for wanted in &mut next {
        let down = (*wanted).clamp(0, spare.max(0));
        *wanted -= down;
        spare -= down;
    }
    (new_wanted, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn limits(replicas: i32, strategy: serde_json::Value) -> Limits {
        let deployment: Deployment = serde_json::from_value(json!({"metadata": {}, "spec": {
            "replicas": replicas, "strategy": strategy, "selector": {}, "template": {}}}))
        .unwrap();
        Limits::of(&deployment)
    }

    fn size(wanted: i32, available: i32) -> Size {
        Size {
            wanted,
            available,
            there: wanted,
        }
    }

    #[test]
    fn a_first_set_is_raised_at_once_and_follows_the_wish() {
        let limits = limits(6, json!({}));
        assert_eq!(step(limits, Size::default(), &[]), (6, vec![]));
        assert_eq!(step(limits, size(9, 9), &[]), (6, vec![]));
        assert_eq!(step(limits, size(6, 0), &[]), (6, vec![]));
    }

    #[test]
    fn surges_are_rounded_up_and_gaps_down() {
        let limits = limits(6, json!({}));
        assert_eq!((limits.surge, limits.unavailable), (2, 1));
        let none = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}});
        assert_eq!(super::tests::limits(6, none).unavailable, 1);
    }

    #[test]
    fn a_rollout_without_surge_lets_old_ones_go_first() {
        let limits = limits(
            4,
            json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
        );
        assert_eq!(step(limits, size(0, 0), &[size(4, 4)]), (0, vec![3]));
        assert_eq!(step(limits, size(0, 0), &[size(3, 3)]), (1, vec![3]));
        assert_eq!(step(limits, size(1, 0), &[size(3, 3)]), (1, vec![3]));
        assert_eq!(step(limits, size(1, 1), &[size(3, 3)]), (1, vec![2]));
    }

    #[test]
    fn old_pods_that_are_not_available_go_first() {
        let limits = limits(
            4,
            json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
        );
        assert_eq!(
            step(limits, size(2, 2), &[size(2, 2), size(1, 0)]),
            (2, vec![2, 0])
        );
    }

    #[test]
    fn recreating_waits_until_the_last_old_pod_is_gone() {
        let limits = limits(3, json!({"type": "Recreate"}));
        assert_eq!(step(limits, size(0, 0), &[size(3, 3)]), (0, vec![0]));
        let going = Size {
            there: 1,
            ..Size::default()
        };
        assert_eq!(step(limits, size(0, 0), &[going]), (0, vec![0]));
        assert_eq!(step(limits, size(0, 0), &[size(0, 0)]), (3, vec![0]));
    }

    #[test]
    fn every_rollout_comes_to_its_end_and_never_exceeds_its_limits() {
        for replicas in 0..12 {
            for surge in 0..4 {
                for unavailable in 0..4 {
                    let limits = limits(
                        replicas,
                        json!({"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}),
                    );
                    let (mut new, mut old) = (size(0, 0), size(replicas, replicas));
                    for _ in 0..100 {
                        let (new_wanted, old_wanted) = step(limits, new, &[old]);
                        // What is scaled down goes at once, what is raised comes up before the next step.
                        old = size(old_wanted[0], old_wanted[0]);
                        assert!(new.available + old.available >= limits.least());
                        assert!(new_wanted + old.wanted <= replicas + limits.surge);
                        new = size(new_wanted, new_wanted);
                    }
                    assert_eq!((new.wanted, old.wanted), (replicas, 0));
                }
            }
        }
    }
}

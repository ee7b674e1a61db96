//! When an eviction is asked for, and when again after a refusal.
//!
//! A refusal holds until something changes that it was based on: the Pod, or what its budgets allow. Asking again before
//! that only burdens the API. So a Pod is asked for at once when its grounds get better, and otherwise seldom, each Pod at
//! a time of its own.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Pod, PodName, Refusal};

/// What an answer to an eviction rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grounds {
    /// Whether the Pod is ready.
    pub ready: bool,
    /// The budgets that select the Pod, by name.
    pub budgets: BTreeMap<String, Room>,
}

/// What a budget allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The generation of its spec.
    pub generation: i64,
    /// Whether it allows a disruption now.
    pub open: bool,
    /// Whether Pods that are not ready may go though it does not.
    pub lets_unready_go: bool,
}

impl Grounds {
    /// Whether an eviction that was refused on `before` may be granted on these.
    fn better_than(&self, before: &Self) -> bool {
        let other_budgets = self.budgets.keys().ne(before.budgets.keys());
        let more = |name: &String, now: &Room| {
            before.budgets.get(name).is_none_or(|was| {
                was.generation != now.generation
                    || (now.open && !was.open)
                    || (now.lets_unready_go && !was.lets_unready_go)
            })
        };
        self.ready != before.ready
            || other_budgets
            || self.budgets.iter().any(|(name, now)| more(name, now))
    }
}

/// The last time that a Pod's eviction was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The Pod's uid: another Pod of that name was not asked for.
    pub uid: String,
    /// When.
    pub at: Timestamp,
    /// How often in a row without a change.
    pub times: u32,
    /// What the answer rested on.
    pub grounds: Grounds,
    /// How it was refused, if it was, and since when it has been.
    pub refused: Option<(Refusal, Timestamp)>,
}

/// Pause after a refusal by a budget. Source: Cluster API.
const PAUSE: SignedDuration = SignedDuration::from_secs(20);
/// Pause after the first failure of another kind, which may pass at any moment.
const SHORT_PAUSE: SignedDuration = SignedDuration::from_secs(2);
/// The longest pause: what no event tells of is noticed after this time at the latest.
const LONGEST: SignedDuration = SignedDuration::from_secs(60);

/// How long after it was last asked for a Pod is asked for again, where nothing changes.
fn pause(asked: &Asked) -> SignedDuration {
    let passing = matches!(asked.refused, Some((Refusal::Failed(_), _)));
    let first = if passing { SHORT_PAUSE } else { PAUSE };
    // Half as much again each time: 20, 30, 45, 60 s.
    let grown = (1..asked.times.min(16)).fold(first, |pause, _| {
        pause.saturating_add(pause / 2).min(LONGEST)
    });
    // Up to a quarter more, by chance of the Pod's uid, so that Pods that were refused together do not come together.
    let salt = asked
        .uid
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
        .wrapping_add(asked.times.wrapping_mul(0x9e37_79b9));
    let share = i32::try_from(salt % 250).unwrap_or(0);
    grown.saturating_add(grown * share / 1000)
}

/// When a Pod is asked for: now, or after this time.
pub fn due(
    pod: &Pod,
    grounds: &Grounds,
    before: Option<&Asked>,
    now: Timestamp,
) -> Option<SignedDuration> {
    let before = before.filter(|asked| asked.uid == pod.uid)?;
    if before.refused.is_some() && grounds.better_than(&before.grounds) {
        return None;
    }
    let left = pause(before).saturating_sub(now.duration_since(before.at));
    left.is_positive().then_some(left)
}

/// What is remembered of a Pod that is not asked for now: grounds that got worse count from when they did.
pub fn waits(mut asked: Asked, grounds: Grounds) -> Asked {
    asked.grounds = grounds;
    asked
}

/// What is remembered of an answer. `told` says since when its budgets have refused as far as that was said before.
pub fn answered(
    pod: &Pod,
    grounds: Grounds,
    before: Option<&Asked>,
    refusal: Option<Refusal>,
    told: &BTreeMap<String, Timestamp>,
    now: Timestamp,
) -> Asked {
    let before = before.filter(|asked| asked.uid == pod.uid);
    let same = before.filter(|asked| !grounds.better_than(&asked.grounds));
    let since = || {
        let before = before.and_then(|asked| asked.refused.as_ref().map(|(_, since)| *since));
        let said = match &refusal {
            Some(Refusal::Budget(room)) => told.get(&room.budgets.join(", ")).copied(),
            _ => None,
        };
        before.or(said).unwrap_or(now)
    };
    let since = since();
    Asked {
        uid: pod.uid.clone(),
        at: now,
        times: same.map_or(1, |asked| asked.times.saturating_add(1)),
        grounds,
        refused: refusal.map(|refusal| (refusal, since)),
    }
}

/// The refusals that hold, by Pod, each with the time since when.
pub fn refusals(asked: &BTreeMap<PodName, Asked>) -> BTreeMap<PodName, (Refusal, Timestamp)> {
    let refused = asked
        .iter()
        .filter_map(|(pod, asked)| Some((pod.clone(), asked.refused.clone()?)));
    refused.collect()
}

#[cfg(test)]
mod tests {
    use super::super::{NoRoom, Owner};
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(uid: &str) -> Pod {
        Pod {
            name: PodName {
                namespace: "ns".to_owned(),
                name: "a".to_owned(),
            },
            uid: uid.to_owned(),
            deletion: None,
            finished: false,
            owner: Owner::Other,
            mirror: false,
            label: None,
            rule: None,
        }
    }

    fn grounds(open: bool) -> Grounds {
        let room = Room {
            generation: 1,
            open,
            lets_unready_go: false,
        };
        Grounds {
            ready: true,
            budgets: BTreeMap::from([("ns/web".to_owned(), room)]),
        }
    }

    fn refused() -> Option<Refusal> {
        let room = NoRoom {
            budgets: vec!["ns/web".to_owned()],
            ..NoRoom::default()
        };
        Some(Refusal::Budget(room))
    }

    #[test]
    fn a_refused_pod_is_asked_for_at_once_when_its_budget_opens_and_else_seldom() {
        let (pod, told) = (pod("u"), BTreeMap::new());
        assert_eq!(due(&pod, &grounds(false), None, at(0)), None);
        let asked = answered(&pod, grounds(false), None, refused(), &told, at(0));
        assert!(due(&pod, &grounds(false), Some(&asked), at(19)).is_some());
        assert_eq!(due(&pod, &grounds(false), Some(&asked), at(25)), None);
        assert_eq!(due(&pod, &grounds(true), Some(&asked), at(1)), None);
        // It was asked for though the budget was seen open: the cache was behind. Closing is no reason to ask, opening is.
        let behind = answered(&pod, grounds(true), None, refused(), &told, at(0));
        assert!(due(&pod, &grounds(true), Some(&behind), at(1)).is_some());
        assert!(due(&pod, &grounds(false), Some(&behind), at(1)).is_some());
        let closed = waits(behind, grounds(false));
        assert_eq!(due(&pod, &grounds(true), Some(&closed), at(2)), None);
        // Another Pod of the name has not been asked for.
        assert_eq!(
            due(
                &super::tests::pod("v"),
                &grounds(false),
                Some(&asked),
                at(1)
            ),
            None
        );
    }

    #[test]
    fn pauses_grow_and_differ_between_pods() {
        let told = BTreeMap::new();
        let mut asked = answered(&pod("u"), grounds(false), None, refused(), &told, at(0));
        let mut last = SignedDuration::ZERO;
        for _ in 0..4 {
            assert!(pause(&asked) > last, "{asked:?}");
            assert!(pause(&asked) <= LONGEST + LONGEST / 4);
            last = pause(&asked) - pause(&asked) / 4;
            asked = answered(
                &pod("u"),
                grounds(false),
                Some(&asked),
                refused(),
                &told,
                at(0),
            );
        }
        let other = answered(&pod("v"), grounds(false), None, refused(), &told, at(0));
        let first = answered(&pod("u"), grounds(false), None, refused(), &told, at(0));
        assert_ne!(pause(&other), pause(&first));
    }

    #[test]
    fn since_when_is_what_was_remembered_or_said() {
        let pod = pod("u");
        let told = BTreeMap::from([("ns/web".to_owned(), at(7))]);
        let first = answered(&pod, grounds(false), None, refused(), &told, at(100));
        assert_eq!(first.refused.as_ref().unwrap().1, at(7));
        let told = BTreeMap::new();
        let next = answered(
            &pod,
            grounds(false),
            Some(&first),
            refused(),
            &told,
            at(200),
        );
        assert_eq!(next.refused.unwrap().1, at(7));
    }
}

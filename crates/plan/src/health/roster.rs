//! The targets of one check with what was found about each, kept so that a change of one Machine costs a look at that one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Verdict;

/// What was found about one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The verdict.
    pub verdict: Verdict,
    /// It is being deleted.
    pub leaving: bool,
    /// A repairer outside has a request for it that is not done.
    pub handed_over: bool,
    /// Its zone, as far as it is known.
    pub zone: Option<String>,
    /// Until when its Node may not have fallen silent alone.
    pub settles: Option<Timestamp>,
}

impl Found {
    fn is_healthy(&self) -> bool {
        self.verdict == Verdict::Healthy && !self.leaving && !self.handed_over
    }

    fn is_sick(&self) -> bool {
        matches!(self.verdict, Verdict::Unhealthy { .. })
    }

    fn next(&self) -> Option<Timestamp> {
        [self.verdict.next(), self.settles]
            .into_iter()
            .flatten()
            .min()
    }
}

/// All targets of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    targets: BTreeMap<String, Found>,
    sick: BTreeSet<String>,
    healthy: usize,
    clocks: BTreeSet<(Timestamp, String)>,
    /// How many targets that are not healthy each zone has.
    ailing: BTreeMap<String, usize>,
}

impl Roster {
    /// Notes what was found about a target; answers what was before.
    pub fn set(&mut self, name: &str, found: Found) -> Option<Found> {
        let before = self.remove(name);
        self.healthy += usize::from(found.is_healthy());
        if found.is_sick() {
            self.sick.insert(name.to_owned());
        }
        if let Some(next) = found.next() {
            self.clocks.insert((next, name.to_owned()));
        }
        if let (false, Some(zone)) = (found.is_healthy(), &found.zone) {
            *self.ailing.entry(zone.clone()).or_default() += 1;
        }
        self.targets.insert(name.to_owned(), found);
        before
    }

    /// Forgets a Machine that is no target any more.
    pub fn remove(&mut self, name: &str) -> Option<Found> {
        let found = self.targets.remove(name)?;
        self.healthy -= usize::from(found.is_healthy());
        self.sick.remove(name);
        if let Some(next) = found.next() {
            self.clocks.remove(&(next, name.to_owned()));
        }
        if let (false, Some(zone)) = (found.is_healthy(), &found.zone)
            && let Some(count) = self.ailing.get_mut(zone)
        {
            *count -= 1;
            if *count == 0 {
                self.ailing.remove(zone);
            }
        }
        Some(found)
    }

    /// What was found about a target.
    pub fn get(&self, name: &str) -> Option<&Found> {
        self.targets.get(name)
    }

    /// The names of all targets, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.targets.keys().map(String::as_str)
    }

    /// How many targets there are.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// How many are healthy: they have a Node, no fault, none that is about to be one, are not being deleted, and are in
    /// nobody's hands to be repaired.
    pub fn healthy(&self) -> usize {
        self.healthy
    }

    /// The names of those that are at fault, sorted.
    pub fn sick(&self) -> impl Iterator<Item = &str> {
        self.sick.iter().map(String::as_str)
    }

    /// The zones with a target that is not healthy.
    pub fn ailing_zones(&self) -> impl Iterator<Item = &str> {
        self.ailing.keys().map(String::as_str)
    }

    /// When the next look at some target is due.
    pub fn next(&self) -> Option<Timestamp> {
        self.clocks.first().map(|(at, _)| *at)
    }

    /// The targets at which a look is due.
    pub fn due(&self, now: Timestamp) -> Vec<String> {
        self.clocks
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, name)| name.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reason;
    use super::*;
    use proptest::prelude::*;

    fn found() -> impl Strategy<Value = Found> {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let verdict = prop_oneof![
            Just(Verdict::Healthy),
            Just(Verdict::Unseen),
            prop::option::of(0..50_i64).prop_map(move |next| Verdict::Suspect(next.map(at))),
            Just(Verdict::Unhealthy {
                reason: Reason::UnhealthyNode,
                why: vec!["x".to_owned()],
            }),
        ];
        (
            verdict,
            any::<bool>(),
            any::<bool>(),
            prop::option::of("[ab]"),
            prop::option::of(0..50_i64),
        )
            .prop_map(
                move |(verdict, leaving, handed_over, zone, settles)| Found {
                    verdict,
                    leaving,
                    handed_over,
                    zone,
                    settles: settles.map(at),
                },
            )
    }

    proptest! {
        /// What is kept step by step is what a count of everything gives, whatever came before.
        #[test]
        fn counts_that_follow_changes_are_counts_of_everything(changes in prop::collection::vec((0..6_u8, prop::option::of(found())), 0..60)) {
            let mut kept = Roster::default();
            let mut all = BTreeMap::new();
            for (name, change) in changes {
                let name = format!("m{name}");
                match change {
                    Some(found) => {
                        prop_assert_eq!(kept.set(&name, found.clone()), all.insert(name, found));
                    }
                    None => {
                        prop_assert_eq!(kept.remove(&name), all.remove(&name));
                    }
                }
            }
            let mut anew = Roster::default();
            for (name, found) in &all {
                anew.set(name, found.clone());
            }
            prop_assert_eq!(&kept, &anew);
            prop_assert_eq!(kept.healthy(), all.values().filter(|f| f.is_healthy()).count());
            prop_assert_eq!(kept.sick().count(), all.values().filter(|f| f.is_sick()).count());
            prop_assert_eq!(kept.next(), all.values().filter_map(Found::next).min());
            for second in [0, 25, 50] {
                let now = Timestamp::from_second(second).unwrap();
                let mut due = kept.due(now);
                due.sort();
                let expected: Vec<String> = all.iter().filter(|(_, f)| f.next().is_some_and(|at| at <= now)).map(|(n, _)| n.clone()).collect();
                prop_assert_eq!(due, expected);
            }
        }
    }
}

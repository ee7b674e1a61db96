//! Which drains of a cluster may go on, and which wait: a limit, a place left to go, and no two that starve each other.
//!
//! A drain asks on each of its passes; the answer depends on what the others of its cluster asked before. The order is that
//! of the deletions. A drain that was let in stays in, but for one case: when two are stuck under budgets whose Pods find no
//! Node, the later one steps back, so that its Node can take those Pods, and goes on when the earlier has ended.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

/// How long two drains are stuck before the later one steps back.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// How long a drain steps back at most: the one it makes way for may be stuck for a reason that no room helps.
pub const STEP_BACK: SignedDuration = SignedDuration::from_mins(5);

/// A drain's place in the order: when the deletion was asked for, then the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place<K> {
    /// When the deletion was asked for.
    pub asked: Timestamp,
    /// Whose deletion it is.
    pub of: K,
}

/// What a drain tells of itself when it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    /// It was let in before, by this process or one before it.
    pub began: bool,
    /// It cannot wait: the cloud takes the instance at a set time.
    pub urgent: bool,
    /// Its Node takes no new Pods already.
    pub cordoned: bool,
    /// Since when all that is left on its Node is refused by budgets whose other Pods find no Node.
    pub stuck: Option<Timestamp>,
    /// Nodes of the cluster that take new Pods, its own included if it does.
    pub open_nodes: usize,
}

/// Whether a drain goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn<K> {
    /// It does.
    Go,
    /// As many as may be are under way.
    Full {
        /// How many may be.
        limit: usize,
    },
    /// No other Node would take the Pods while those before it are drained.
    NowhereToGo,
    /// It makes way for another, for each waits for room that the other's Node has.
    MakesWay {
        /// Whose drain goes first.
        to: K,
        /// When it goes on at the latest.
        until: Timestamp,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inside {
    cordoned: bool,
    stuck: Option<Timestamp>,
    /// It made way once; it does not again before this time.
    immune_until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Back<K> {
    to: Place<K>,
    until: Timestamp,
}

/// The drains of one cluster. A drain is in one of the three at a time.
#[derive(Clone, Debug)]
pub struct Turns<K> {
    limit: usize,
    waiting: BTreeSet<Place<K>>,
    inside: BTreeMap<Place<K>, Inside>,
    back: BTreeMap<Place<K>, Back<K>>,
}

impl<K: Ord + Clone> Turns<K> {
    /// No drains yet, and how many may be under way at once; at least one always may.
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            waiting: BTreeSet::new(),
            inside: BTreeMap::new(),
            back: BTreeMap::new(),
        }
    }

    /// Whether a drain goes on now.
    pub fn ask(&mut self, place: &Place<K>, asking: Asking, now: Timestamp) -> Turn<K> {
        if let Some(state) = self.inside.get_mut(place) {
            state.cordoned = asking.cordoned;
            state.stuck = asking.stuck;
            return self.make_way(place, asking, now);
        }
        if let Some(back) = self.back.get(place) {
            if now < back.until {
                return Turn::MakesWay {
                    to: back.to.of.clone(),
                    until: back.until,
                };
            }
            self.back.remove(place);
            let immune = now.saturating_add(STEP_BACK * 2).unwrap_or(Timestamp::MAX);
            return self.enter(place, asking, immune);
        }
        if !asking.began
            && !asking.urgent
            && let Some(why) = self.full(place, asking)
        {
            self.waiting.insert(place.clone());
            return why;
        }
        self.enter(place, asking, Timestamp::MIN)
    }

    fn enter(&mut self, place: &Place<K>, asking: Asking, immune_until: Timestamp) -> Turn<K> {
        self.waiting.remove(place);
        let state = Inside {
            cordoned: asking.cordoned,
            stuck: None,
            immune_until,
        };
        self.inside.insert(place.clone(), state);
        Turn::Go
    }

    /// Why a drain that waits cannot begin.
    fn full(&self, place: &Place<K>, asking: Asking) -> Option<Turn<K>> {
        if self.inside.is_empty() {
            return None;
        }
        let free = self.limit.saturating_sub(self.inside.len());
        if self.waiting.range(..place).take(free).count() == free {
            return Some(Turn::Full { limit: self.limit });
        }
        // Those inside that are not cordoned yet will be, and so will its own Node.
        let about_to_close = self.inside.values().filter(|state| !state.cordoned).count();
        let open = asking.open_nodes.saturating_sub(about_to_close);
        (open <= 1 && !asking.cordoned).then_some(Turn::NowhereToGo)
    }

    /// Lets an earlier drain go first when both are stuck for want of room.
    fn make_way(&mut self, place: &Place<K>, asking: Asking, now: Timestamp) -> Turn<K> {
        let long = |since: &Option<Timestamp>| {
            since.is_some_and(|since| now.duration_since(since) >= PATIENCE)
        };
        let immune = self
            .inside
            .get(place)
            .is_some_and(|state| now < state.immune_until);
        if asking.urgent || immune || !long(&asking.stuck) {
            return Turn::Go;
        }
        let mut before = self.inside.range(..place);
        let Some((first, _)) = before.find(|(_, state)| long(&state.stuck)) else {
            return Turn::Go;
        };
        let to = first.clone();
        let until = now.saturating_add(STEP_BACK).unwrap_or(Timestamp::MAX);
        let turn = Turn::MakesWay {
            to: to.of.clone(),
            until,
        };
        self.inside.remove(place);
        self.back.insert(place.clone(), Back { to, until });
        turn
    }

    /// Whether nobody drains or waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.inside.is_empty() && self.back.is_empty()
    }

    /// A drain ended, or is none any more; those that may go on now are to ask again.
    pub fn leave(&mut self, place: &Place<K>) -> Vec<K> {
        let known = self.waiting.remove(place)
            | self.inside.remove(place).is_some()
            | self.back.remove(place).is_some();
        if !known {
            return Vec::new();
        }
        let mut wake: Vec<K> = Vec::new();
        for (other, back) in self.back.iter_mut().filter(|(_, back)| back.to == *place) {
            back.until = Timestamp::MIN;
            wake.push(other.of.clone());
        }
        let free = self.limit.saturating_sub(self.inside.len());
        wake.extend(self.waiting.iter().take(free).map(|place| place.of.clone()));
        wake
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn place(of: u32) -> Place<u32> {
        Place { asked: at(0), of }
    }

    const ASKING: Asking = Asking {
        began: false,
        urgent: false,
        cordoned: false,
        stuck: None,
        open_nodes: 100,
    };

    #[test]
    fn no_more_than_the_limit_drain_at_once_and_the_next_is_woken() {
        let mut turns = Turns::new(2);
        assert_eq!(turns.ask(&place(1), ASKING, at(0)), Turn::Go);
        assert_eq!(turns.ask(&place(2), ASKING, at(0)), Turn::Go);
        let full = Turn::Full { limit: 2 };
        assert_eq!(turns.ask(&place(3), ASKING, at(0)), full);
        assert_eq!(turns.leave(&place(1)), [3]);
        assert_eq!(turns.ask(&place(3), ASKING, at(1)), Turn::Go);
        assert_eq!(turns.leave(&place(1)), [0_u32; 0], "leaving twice is once");
    }

    #[test]
    fn what_the_cloud_takes_and_what_began_before_a_restart_does_not_wait() {
        let mut turns = Turns::new(1);
        assert_eq!(turns.ask(&place(1), ASKING, at(0)), Turn::Go);
        let urgent = Asking {
            urgent: true,
            ..ASKING
        };
        assert_eq!(turns.ask(&place(2), urgent, at(0)), Turn::Go);
        let began = Asking {
            began: true,
            ..ASKING
        };
        assert_eq!(turns.ask(&place(3), began, at(0)), Turn::Go);
    }

    #[test]
    fn one_node_at_least_is_left_to_go_to_but_the_last_may_drain_alone() {
        let mut turns = Turns::new(20);
        let three = Asking {
            open_nodes: 3,
            ..ASKING
        };
        assert_eq!(turns.ask(&place(1), three, at(0)), Turn::Go);
        assert_eq!(turns.ask(&place(2), three, at(0)), Turn::Go);
        assert_eq!(turns.ask(&place(3), three, at(0)), Turn::NowhereToGo);
        turns.leave(&place(1));
        turns.leave(&place(2));
        let one = Asking {
            open_nodes: 1,
            ..ASKING
        };
        assert_eq!(turns.ask(&place(3), one, at(0)), Turn::Go);
    }

    #[test]
    fn of_two_drains_that_starve_each_other_the_later_makes_way_until_the_first_is_over() {
        let mut turns = Turns::new(20);
        let stuck = Asking {
            stuck: Some(at(10)),
            cordoned: true,
            ..ASKING
        };
        for machine in [1, 2] {
            turns.ask(&place(machine), ASKING, at(0));
            assert_eq!(turns.ask(&place(machine), stuck, at(60)), Turn::Go);
        }
        assert_eq!(turns.ask(&place(1), stuck, at(70)), Turn::Go);
        let back = turns.ask(&place(2), stuck, at(70));
        assert_eq!(
            back,
            Turn::MakesWay {
                to: 1,
                until: at(370)
            }
        );
        assert_eq!(turns.ask(&place(2), ASKING, at(100)), back);
        assert_eq!(turns.leave(&place(1)), [2]);
        assert_eq!(turns.ask(&place(2), ASKING, at(101)), Turn::Go);
    }

    #[test]
    fn a_drain_does_not_make_way_for_ever_nor_at_once_again() {
        let mut turns = Turns::new(20);
        let stuck = |since| Asking {
            stuck: Some(at(since)),
            ..ASKING
        };
        for machine in [1, 2] {
            turns.ask(&place(machine), ASKING, at(0));
        }
        turns.ask(&place(1), stuck(0), at(60));
        assert!(matches!(
            turns.ask(&place(2), stuck(0), at(60)),
            Turn::MakesWay { .. }
        ));
        assert_eq!(turns.ask(&place(2), ASKING, at(360)), Turn::Go);
        assert_eq!(turns.ask(&place(2), stuck(360), at(500)), Turn::Go);
        assert!(matches!(
            turns.ask(&place(2), stuck(360), at(960)),
            Turn::MakesWay { .. }
        ));
    }

    proptest! {
        /// Whatever happens, the limit holds for those that did not push in, and when all that are in leave again and
        /// again, everybody has been in once.
        #[test]
        fn everybody_gets_a_turn_and_nobody_passes_the_limit(
            limit in 1_usize..5,
            machines in 1_u32..20,
            steps in proptest::collection::vec((0_u32..20, any::<bool>()), 0..200),
        ) {
            let mut turns = Turns::new(limit);
            let mut inside = std::collections::BTreeSet::new();
            let mut done = std::collections::BTreeSet::new();
            let mut time = 0;
            let round: Vec<(u32, bool)> = (0..machines).flat_map(|m| [(m, false), (m, true)]).collect();
            let rounds = round.iter().cycle().take(round.len() * usize::try_from(machines).unwrap() + 1);
            for (machine, leaves) in steps.iter().chain(rounds) {
                time += 1;
                let machine = machine % machines;
                if done.contains(&machine) {
                    continue;
                }
                if *leaves {
                    if inside.remove(&machine) {
                        done.insert(machine);
                        turns.leave(&place(machine));
                    }
                } else if turns.ask(&place(machine), ASKING, at(time)) == Turn::Go {
                    inside.insert(machine);
                }
                prop_assert!(inside.len() <= limit);
            }
            prop_assert_eq!(done.len(), usize::try_from(machines).unwrap());
        }
    }
}

//! What is found about Machines, by check and together; shared with the reconcilers that act on it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use muster_api::MachineHealthCheck;
use muster_informers::{Key, Queue};
use muster_plan::health::roster::{Found, Roster};
use muster_plan::health::trigger::Trigger;
use muster_plan::health::{Verdict, together};

use super::Work;

/// After how long without a sign of life this process counts as having been stopped.
const STOPPED: SignedDuration = SignedDuration::from_secs(15);

/// What all checks that are for a Machine say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Opinion {
    /// Together.
    pub(crate) verdict: Verdict,
    /// The checks that find it at fault, by name.
    pub(crate) by: Vec<String>,
    /// A check that finds it at fault lets its owner repair it.
    pub(crate) repair: bool,
}

/// How a check has Machines repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// When.
    pub(super) trigger: Trigger,
    /// By whom.
    pub(super) by: Repairer,
}

/// Who repairs a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repairer {
    /// Its owner.
    Owner,
    /// Somebody outside, by a request.
    Outside,
}

/// How a Machine is with a repairer outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Handed {
    /// A request is made.
    Over,
    /// The template of requests cannot be read, for that reason.
    NoTemplate(String),
    /// A request could not be made, for that reason.
    Failed(String),
}

/// What is found about all Machines. Lost with the process, and found again by one look at each.
pub(crate) struct Health {
    pub(crate) queue: Queue<Work>,
    /// Machines whose requests to a repairer outside are to be looked at.
    pub(super) requests: Queue<Key>,
    known: Mutex<Known>,
}

struct Known {
    rosters: HashMap<Key, Roster>,
    /// The checks whose target a Machine is.
    checks: HashMap<Key, BTreeSet<Key>>,
    /// Checks that have Machines repaired, and on which terms.
    allowed: HashMap<Key, Terms>,
    /// Checks whose limit was found passed since they were allowed to have Machines repaired.
    overtaken: HashSet<Key>,
    /// What is known of requests to repairers outside, by Machine; nothing about those that were not looked at.
    requests: HashMap<Key, Option<Handed>>,
    /// Zones that are lost, by check, and since when.
    lost: HashMap<Key, BTreeMap<String, Timestamp>>,
    /// When the last lost zone of a check came back.
    zones_back: HashMap<Key, Timestamp>,
    /// Machines that were looked at since this process began.
    looked_at: HashSet<Key>,
    /// When this process last gave a sign of life, and when it went on after it had been stopped.
    beat: Timestamp,
    resumed: Timestamp,
}

impl Health {
    /// Nothing yet.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            queue: Queue::default(),
            requests: Queue::default(),
            known: Mutex::new(Known {
                rosters: HashMap::new(),
                checks: HashMap::new(),
                allowed: HashMap::new(),
                overtaken: HashSet::new(),
                requests: HashMap::new(),
                lost: HashMap::new(),
                zones_back: HashMap::new(),
                looked_at: HashSet::new(),
                beat: now,
                resumed: now,
            }),
        }
    }

    // Nothing under this lock can panic half-way through an update.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process runs; one that was stopped in between has seen nothing meanwhile.
    pub(super) fn beat(&self, now: Timestamp) {
        self.known().beat(now);
    }

    /// Since when a cluster has been looked at without interruption, that has been connected since then.
    pub(super) fn watched(&self, connected: Timestamp, now: Timestamp) -> Timestamp {
        let mut known = self.known();
        known.beat(now);
        known.resumed.max(connected)
    }

    /// What is said of a Machine; nothing of one that is nobody's target.
    pub(crate) fn opinion(&self, machine: &Key) -> Option<Opinion> {
        let mut known = self.known();
        let checks = known.checks.get(machine)?.clone();
        let repair = checks
            .iter()
            .any(|check| known.may(check, machine, Repairer::Owner));
        let found = |check: &Key| known.rosters.get(check)?.get(&machine.name);
        let verdicts = checks
            .iter()
            .filter_map(|check| Some(found(check)?.verdict.clone()));
        let verdict = together(verdicts);
        let at_fault = |check: &&Key| {
            let verdict = found(check).map(|found| &found.verdict);
            matches!(verdict, Some(Verdict::Unhealthy { .. }))
        };
        let at_fault: Vec<&Key> = checks.iter().filter(at_fault).collect();
        let by = at_fault.iter().map(|check| check.name.clone()).collect();
        Some(Opinion {
            verdict,
            by,
            repair,
        })
    }

    /// What a check says of its target, and whether it may be handed to a repairer outside.
    pub(super) fn may_hand_over(&self, check: &Key, machine: &Key) -> Option<(Found, bool)> {
        let mut known = self.known();
        let found = known.rosters.get(check)?.get(&machine.name)?.clone();
        Some((found, known.may(check, machine, Repairer::Outside)))
    }

    /// Takes note of how a Machine is with repairers outside; whether that is other than before.
    pub(super) fn hand(&self, machine: &Key, handed: Option<Handed>) -> bool {
        let before = self
            .known()
            .requests
            .insert(machine.clone(), handed.clone());
        before != Some(handed)
    }

    /// How a Machine is with repairers outside; nothing while that is not known.
    pub(crate) fn handed(&self, machine: &Key) -> Option<Option<Handed>> {
        self.known().requests.get(machine).cloned()
    }

    /// Whether a Machine was looked at: only then nothing said of it means that nobody checks it.
    pub(crate) fn has_looked_at(&self, machine: &Key) -> bool {
        self.known().looked_at.contains(machine)
    }

    /// A Machine was looked at by all checks that are for it, or is gone; whether that is the first time.
    pub(super) fn looked_at(&self, machine: &Key, is_there: bool) -> bool {
        let mut known = self.known();
        if is_there {
            known.looked_at.insert(machine.clone())
        } else {
            known.requests.remove(machine);
            known.looked_at.remove(machine);
            false
        }
    }

    /// Notes what a check finds about a Machine, or that it is no target; whether anything is other than before.
    pub(super) fn note(&self, check: &Key, machine: &Key, found: Option<Found>) -> bool {
        let mut known = self.known();
        let roster = known.rosters.entry(check.clone()).or_default();
        let before = match &found {
            Some(found) => roster.set(&machine.name, found.clone()),
            None => roster.remove(&machine.name),
        };
        let changed = before != found;
        match found {
            Some(_) => {
                let checks = known.checks.entry(machine.clone()).or_default();
                checks.insert(check.clone());
            }
            None => known.unlink(machine, check),
        }
        changed
    }

    /// A Machine is the target of none but these checks at most; the checks that lost it.
    pub(super) fn forget_others(
        &self,
        machine: &Key,
        checks: &[Arc<MachineHealthCheck>],
    ) -> Vec<Key> {
        let mut known = self.known();
        let stays = |check: &Key| {
            let mut checks = checks.iter();
            checks.any(|found| found.name_any() == check.name)
        };
        let had = known.checks.get(machine).cloned().unwrap_or_default();
        let lost: Vec<Key> = had.into_iter().filter(|check| !stays(check)).collect();
        for check in &lost {
            if let Some(roster) = known.rosters.get_mut(check) {
                roster.remove(&machine.name);
            }
            known.unlink(machine, check);
        }
        lost
    }

    /// A check is gone; the Machines that were its targets.
    pub(super) fn forget(&self, check: &Key) -> Vec<Key> {
        let mut known = self.known();
        known.allowed.remove(check);
        known.overtaken.remove(check);
        known.lost.remove(check);
        known.zones_back.remove(check);
        let roster = known.rosters.remove(check).unwrap_or_default();
        let machines: Vec<Key> = roster
            .names()
            .map(|name| Key::new(check.namespace.clone(), name))
            .collect();
        for machine in &machines {
            known.unlink(machine, check);
        }
        machines
    }

    /// The targets of a check, as they are now.
    pub(super) fn roster<R>(&self, check: &Key, read: impl FnOnce(&Roster) -> R) -> R {
        let mut known = self.known();
        read(known.rosters.entry(check.clone()).or_default())
    }

    /// The zones of a check's targets that are lost.
    pub(super) fn lost_zones(&self, check: &Key) -> BTreeMap<String, Timestamp> {
        self.known().lost.get(check).cloned().unwrap_or_default()
    }

    /// When the last lost zone of a check's targets came back.
    pub(super) fn zones_back(&self, check: &Key) -> Option<Timestamp> {
        self.known().zones_back.get(check).copied()
    }

    /// Takes note of the zones that are lost, and that one came back; whether clocks begin anew.
    pub(super) fn set_lost_zones(
        &self,
        check: &Key,
        lost: BTreeMap<String, Timestamp>,
        back: Option<Timestamp>,
    ) -> bool {
        let mut known = self.known();
        known.lost.insert(check.clone(), lost);
        match back {
            Some(back) => known.zones_back.insert(check.clone(), back) != Some(back),
            None => false,
        }
    }

    /// Takes note on which terms a check has Machines repaired, if any; the Machines about which that changes something.
    pub(super) fn allow(&self, check: &Key, terms: Option<Terms>) -> Vec<Key> {
        let mut known = self.known();
        let before = match terms {
            Some(terms) => known.allowed.insert(check.clone(), terms),
            None => known.allowed.remove(check),
        };
        let changed = known.overtaken.remove(check) || before != terms;
        let roster = known.rosters.get(check).filter(|_| changed);
        let sick = roster.into_iter().flat_map(Roster::sick);
        sick.map(|name| Key::new(check.namespace.clone(), name))
            .collect()
    }
}

impl Known {
    fn beat(&mut self, now: Timestamp) {
        if now.duration_since(self.beat) > STOPPED {
            self.resumed = now;
        }
        self.beat = self.beat.max(now);
    }

    /// Whether a check has its target repaired in that way.
    fn may(&mut self, check: &Key, machine: &Key, by: Repairer) -> bool {
        let terms = self.allowed.get(check).filter(|terms| terms.by == by);
        let (Some(terms), Some(roster)) = (terms, self.rosters.get(check)) else {
            return false;
        };
        // Until it is known whether its Node fell silent alone, its zone may be lost.
        let settled = |found: &&Found| found.settles.is_none();
        let found = roster.get(&machine.name).filter(settled);
        if !found.is_some_and(|found| matches!(found.verdict, Verdict::Unhealthy { .. })) {
            return false;
        }
        // The check's next pass is only on its way where this one made it one too many.
        let within = terms.trigger.decide_for(roster).allowed;
        if !within {
            self.overtaken.insert(check.clone());
        }
        within
    }

    fn unlink(&mut self, machine: &Key, check: &Key) {
        if let Some(checks) = self.checks.get_mut(machine) {
            checks.remove(check);
            if checks.is_empty() {
                self.checks.remove(machine);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_process_that_was_stopped_has_watched_since_it_goes_on() {
        let health = Health::new(at(0));
        for second in (5..=60).step_by(5) {
            health.beat(at(second));
        }
        assert_eq!(
            health.watched(at(10), at(62)),
            at(10),
            "since it was connected"
        );
        // Nothing for ten minutes; what is due first after that must not be judged by what was before.
        assert_eq!(health.watched(at(10), at(662)), at(662));
        health.beat(at(665));
        assert_eq!(health.watched(at(10), at(667)), at(662));
        // A clock that is set back is no sign of anything.
        health.beat(at(100));
        assert_eq!(health.watched(at(700), at(668)), at(700));
    }

    #[test]
    fn a_machine_is_repaired_when_one_check_says_so_and_its_node_fell_silent_alone() {
        use muster_plan::health::Reason;
        let health = Health::new(at(0));
        let (check, machine) = (Key::new("ns", "c"), Key::new("ns", "m"));
        let sick = |settles| Found {
            verdict: Verdict::Unhealthy {
                reason: Reason::UnhealthyNode,
                why: vec!["x".to_owned()],
            },
            leaving: false,
            handed_over: false,
            zone: None,
            settles,
        };
        assert_eq!(health.opinion(&machine), None);
        assert!(health.note(&check, &machine, Some(sick(Some(at(40))))));
        let terms = Terms {
            trigger: Trigger::default(),
            by: Repairer::Owner,
        };
        health.allow(&check, Some(terms));
        assert!(!health.opinion(&machine).unwrap().repair);
        assert!(health.note(&check, &machine, Some(sick(None))));
        assert!(
            !health.note(&check, &machine, Some(sick(None))),
            "nothing new"
        );
        assert!(health.opinion(&machine).unwrap().repair);
        assert_eq!(health.allow(&check, None), std::slice::from_ref(&machine));
        assert!(!health.opinion(&machine).unwrap().repair);
        assert_eq!(health.forget(&check), std::slice::from_ref(&machine));
        assert_eq!(health.opinion(&machine), None);
    }
}

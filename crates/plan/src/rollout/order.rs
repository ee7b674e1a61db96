//! Which outdated machine goes next.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Member, Pool};
use crate::allowance::Standing;

/// Why a machine goes before others; the first variant goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Because {
    /// It was marked for this with the `delete-machine` annotation.
    Marked,
    /// A health check finds fault with it.
    Unhealthy,
    /// It is not available, so its going costs nothing.
    NotAvailable,
    /// Its zone has more outdated machines than others.
    Zone,
    /// It is the oldest.
    Age,
}

impl Because {
    /// The reason as a sentence's end: "goes now because it …".
    pub fn told(self) -> &'static str {
        match self {
            Self::Marked => "carries the delete-machine annotation",
            Self::Unhealthy => "is unhealthy",
            Self::NotAvailable => "is not available",
            Self::Zone => "is in the zone with the most machines that are out of date",
            Self::Age => "is the oldest",
        }
    }
}

/// Outdated machines in the order in which they go.
///
/// Among equals the zone with the most outdated ones is first, so that zones take turns and each is refilled by the cloud
/// before it is short of more. Where several have as many, the one with the fewest machines is: the surplus of a surge is
/// in the fullest zone, and the last to go, which has no successor, has to come from there for zones to end even.
pub(super) struct Queue<'a> {
    balanced: bool,
    /// How many machines stay in each zone, and how many of these are outdated.
    zones: BTreeMap<&'a str, (usize, usize)>,
    /// By whether it is held, why it goes and its zone; the last is next.
    lines: BTreeMap<(bool, Because, &'a str), Vec<&'a Member>>,
}

impl<'a> Queue<'a> {
    pub(super) fn new(pool: &Pool, members: &'a [Member]) -> Self {
        let mut zones: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        let mut lines: BTreeMap<(bool, Because, &str), Vec<&Member>> = BTreeMap::new();
        for member in members.iter().filter(|m| !m.is_leaving()) {
            let counts = zones.entry(member.zone()).or_default();
            counts.0 += 1;
            if member.is_outdated() {
                counts.1 += 1;
                let place = (
                    member.held && !member.marked,
                    because(member),
                    member.zone(),
                );
                lines.entry(place).or_default().push(member);
            }
        }
        for line in lines.values_mut() {
            line.sort_by_key(|m| Reverse((m.created, &m.name)));
        }
        Self {
            balanced: pool.balanced,
            zones,
            lines,
        }
    }

    /// The next in order of those that there is room for, taken from its line.
    pub(super) fn next(
        &mut self,
        has_room: impl Fn(Standing) -> bool,
    ) -> Option<(&'a Member, Because)> {
        let (_, place) = self
            .lines
            .iter()
            .filter_map(|(place, line)| {
                let head = line.last().filter(|head| has_room(head.standing))?;
                let (held, why, zone) = *place;
                let turn = self.balanced.then(|| {
                    let (all, outdated) = self.zones.get(zone).copied().unwrap_or_default();
                    (Reverse(outdated), all, Reverse(zone))
                });
                Some((((held, why), turn, head.created, &head.name), *place))
            })
            .min()?;
        let member = self.lines.get_mut(&place)?.pop()?;
        let here = self.zones.get(place.2).map_or(0, |counts| counts.1);
        let other = |(_, outdated): &&(usize, usize)| (1..here).contains(outdated);
        let because = match place.1 {
            Because::Age if self.balanced && self.zones.values().any(|c| other(&c)) => {
                Because::Zone
            }
            because => because,
        };
        Some((member, because))
    }

    pub(super) fn take(&mut self, member: &Member) {
        if let Some(counts) = self.zones.get_mut(member.zone()) {
            counts.0 = counts.0.saturating_sub(1);
            counts.1 = counts.1.saturating_sub(1);
        }
    }
}

/// Why a machine goes before others, apart from zones.
fn because(member: &Member) -> Because {
    if member.marked {
        Because::Marked
    } else if member.standing == Standing::Sick {
        Because::Unhealthy
    } else if !member.is_up() {
        Because::NotAvailable
    } else {
        Because::Age
    }
}

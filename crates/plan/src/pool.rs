//! Which machines of a pool go when its size goes down.
//!
//! The order is a type: [`Because`] derives its `Ord`, and the first variant goes first. Within one reason the balance of
//! zones and then the policy's order decide, and at last the name, so that equal input gives an equal answer.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use crate::disruption::Disruption;

/// Which of otherwise equal machines go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Those whose going disturbs least.
    #[default]
    LeastDisruption,
    /// The youngest.
    Newest,
    /// The oldest.
    Oldest,
    /// By chance, the same for the same machines.
    Random,
}

/// How much the balance of zones counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Zones are never left more than one apart while there is a choice, whatever else speaks for a machine but that it
    /// is leaving or was asked for.
    Required,
    /// Balance comes before the order among machines that are equal otherwise.
    #[default]
    Preferred,
    /// Zones do not count.
    Ignored,
}

/// What is decided about.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// How many machines are wanted.
    pub desired: u32,
    /// Which of otherwise equal machines go first.
    pub order: Order,
    /// How much the balance of zones counts.
    pub balance: Balance,
}

/// What is known of a machine.
#[derive(Clone, Debug)]
pub struct Member {
    /// Name, unique in the pool.
    pub name: String,
    /// When it was created.
    pub created: Timestamp,
    /// The zone it is in, once known.
    pub zone: Option<String>,
    /// Its deletion was asked for already.
    pub leaving: bool,
    /// It carries the `delete-machine` annotation.
    pub marked: bool,
    /// It is, or was, a Node.
    pub has_node: bool,
    /// It failed for good.
    pub failed: bool,
    /// A health check finds fault with it.
    pub unhealthy: bool,
    /// It is ready.
    pub ready: bool,
    /// It is what the pool's template asks for.
    pub up_to_date: bool,
    /// A hook or `skip-remediation` asks that it be left alone.
    pub held: bool,
    /// What its going would disturb.
    pub disruption: Disruption,
    /// A Pod of it has a volume that only machines of its zone can reach.
    pub zone_bound: bool,
}

/// Why a machine goes; first goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Because {
    /// It is going already.
    AlreadyLeaving,
    /// It was marked for this with the `delete-machine` annotation.
    Marked,
    /// It never became a Node, or failed.
    NoNode,
    /// A health check finds fault with it.
    Unhealthy,
    /// It is not ready.
    NotReady,
    /// It is not what the template asks for.
    OutOfDate,
    /// Its zone has more than the others.
    ZoneSurplus,
    /// The order of the policy.
    Order,
}

impl Because {
    /// The reason as a sentence's end: "was chosen because it …".
    pub fn told(self) -> &'static str {
        match self {
            Self::AlreadyLeaving => "is being deleted already",
            Self::Marked => "carries the delete-machine annotation",
            Self::NoNode => "has no Node",
            Self::Unhealthy => "is unhealthy",
            Self::NotReady => "is not ready",
            Self::OutOfDate => "is out of date",
            Self::ZoneSurplus => "is in the zone with the most machines",
            Self::Order => "is first in the policy's order",
        }
    }
}

/// A choice: every machine is either a victim or kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Those that go, in order, with the rule that chose each.
    pub victims: Vec<(String, Because)>,
    /// Those that stay.
    pub kept: Vec<String>,
}

impl Choice {
    /// The victims that are not going yet.
    pub fn new_victims(&self) -> impl Iterator<Item = (&str, Because)> {
        self.victims
            .iter()
            .filter(|(_, because)| *because != Because::AlreadyLeaving)
            .map(|(name, because)| (name.as_str(), *because))
    }
}

/// Chooses who goes so that `desired` remain. Machines that are going already always count as victims, so that a drain
/// under way never makes another machine go.
///
/// Costs one sort of the machines, and for each victim a step in an order of zones.
pub fn scale_down(pool: &Pool, members: &[Member]) -> Choice {
    let excess = excess(pool, members.len());
    let mut choice = Choice::default();
    let mut rest: Vec<&Member> = Vec::with_capacity(members.len());
    let mut zones = Zones::default();
    for member in members {
        if member.leaving {
            let name = member.name.clone();
            choice.victims.push((name, Because::AlreadyLeaving));
            zones.know(zone_of(member));
        } else {
            rest.push(member);
            zones.add(zone_of(member));
        }
    }
    choice.victims.sort();
    if choice.victims.len() < excess {
        rest.sort_unstable_by(|a, b| compare(pool, a, b));
        let mut chosen = vec![false; rest.len()];
        let mut from = 0;
        for group in rest.chunk_by(|a, b| group(pool, a) == group(pool, b)) {
            choose_of_group(pool, group, excess, &mut zones, &mut choice, |at| {
                chosen[from + at] = true;
            });
            from += group.len();
        }
        let mut chosen = chosen.into_iter();
        rest.retain(|_| chosen.next() != Some(true));
    }
    choice.kept = rest.iter().map(|member| member.name.clone()).collect();
    choice.kept.sort();
    choice
}

/// Whether somebody has to be chosen at all: more go than are going already. Answers without a look at what is on the
/// machines.
pub fn needs_choice(pool: &Pool, machines: usize, leaving: usize) -> bool {
    excess(pool, machines) > leaving
}

fn excess(pool: &Pool, machines: usize) -> usize {
    machines.saturating_sub(usize::try_from(pool.desired).unwrap_or(usize::MAX))
}

/// Chooses among machines that are equal before zones are looked at, in their standing's order.
fn choose_of_group(
    pool: &Pool,
    group: &[&Member],
    excess: usize,
    zones: &mut Zones,
    choice: &mut Choice,
    mut chosen: impl FnMut(usize),
) {
    if choice.victims.len() >= excess {
        return;
    }
    let mut queues: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for (at, member) in group.iter().enumerate() {
        queues.entry(zone_of(member)).or_default().push_back(at);
    }
    // The first of each zone; a victim changes the place of its own zone's and of no other.
    let front = |zone: &str, at: usize, zones: &Zones| {
        let count = zones.count(zone);
        let weight = match pool.balance {
            Balance::Ignored => 0,
            Balance::Required | Balance::Preferred => count,
        };
        let strands = pool.order == Order::LeastDisruption && count == 1 && group[at].zone_bound;
        (Reverse(weight), strands, at)
    };
    let mut fronts: BTreeMap<(Reverse<usize>, bool, usize), &str> = queues
        .iter()
        .filter_map(|(zone, queue)| Some((front(zone, *queue.front()?, zones), *zone)))
        .collect();
    while choice.victims.len() < excess
        && let Some(((_, _, at), zone)) = fronts.pop_first()
    {
        let surplus = pool.balance != Balance::Ignored && zones.is_fullest(zone);
        let because = match reason(group[at]) {
            Because::Order if surplus => Because::ZoneSurplus,
            because => because,
        };
        zones.take(zone);
        choice.victims.push((group[at].name.clone(), because));
        chosen(at);
        let next = queues.get_mut(zone).and_then(|queue| {
            queue.pop_front();
            queue.front().copied()
        });
        if let Some(next) = next {
            fronts.insert(front(zone, next, zones), zone);
        }
    }
}

fn zone_of(member: &Member) -> &str {
    member.zone.as_deref().unwrap_or_default()
}

/// How many machines stay in each zone, and how many zones there are of each number.
#[derive(Debug, Default)]
struct Zones<'a> {
    counts: BTreeMap<&'a str, usize>,
    zones_of: BTreeMap<usize, usize>,
}

impl<'a> Zones<'a> {
    fn know(&mut self, zone: &'a str) {
        if !self.counts.contains_key(zone) {
            self.counts.insert(zone, 0);
            *self.zones_of.entry(0).or_default() += 1;
        }
    }

    fn add(&mut self, zone: &'a str) {
        self.know(zone);
        self.change(zone, |count| count + 1);
    }

    fn take(&mut self, zone: &str) {
        self.change(zone, |count| count.saturating_sub(1));
    }

    fn change(&mut self, zone: &str, to: impl FnOnce(usize) -> usize) {
        let Some(count) = self.counts.get_mut(zone) else {
            return;
        };
        let before = std::mem::replace(count, to(*count));
        *self.zones_of.entry(*count).or_default() += 1;
        if let Some(zones) = self.zones_of.get_mut(&before) {
            *zones -= 1;
            if *zones == 0 {
                self.zones_of.remove(&before);
            }
        }
    }

    fn count(&self, zone: &str) -> usize {
        self.counts.get(zone).copied().unwrap_or(0)
    }

    /// Whether a zone has more than another and none has more.
    fn is_fullest(&self, zone: &str) -> bool {
        let most = self.zones_of.keys().next_back().copied().unwrap_or(0);
        self.zones_of.len() > 1 && self.count(zone) == most
    }
}

/// Why a machine would go, apart from zones.
fn reason(member: &Member) -> Because {
    if member.leaving {
        Because::AlreadyLeaving
    } else if member.marked {
        Because::Marked
    } else if !member.has_node || member.failed {
        Because::NoNode
    } else if member.unhealthy {
        Because::Unhealthy
    } else if !member.ready {
        Because::NotReady
    } else if !member.up_to_date {
        Because::OutOfDate
    } else {
        Because::Order
    }
}

/// What is decided before zones are looked at: whether something asks to leave it alone, and the reason to go. Where
/// balance is required, only being marked comes before it.
type Group = (bool, Because);

fn group(pool: &Pool, member: &Member) -> Group {
    match (pool.balance, reason(member)) {
        (Balance::Required, because) if because > Because::Marked => (false, Because::Order),
        (_, because) => (spared(member), because),
    }
}

/// Whether something asks to leave a machine alone that nobody asked for.
fn spared(member: &Member) -> bool {
    member.held && !member.marked
}

/// Everything but zones: what is decided before them, the reason, the policy's order, the name.
fn standing<'a>(
    pool: &Pool,
    member: &'a Member,
) -> (
    Group,
    bool,
    Because,
    Disruption,
    Reverse<i64>,
    i64,
    u64,
    &'a str,
) {
    let second = member.created.as_second();
    let (disruption, youngest, oldest, chance) = match pool.order {
        Order::LeastDisruption => (member.disruption, second, 0, 0),
        Order::Newest => (Disruption::default(), second, 0, 0),
        Order::Oldest => (Disruption::default(), 0, second, 0),
        Order::Random => (Disruption::default(), 0, 0, hash(&member.name)),
    };
    (
        group(pool, member),
        spared(member),
        reason(member),
        disruption,
        Reverse(youngest),
        oldest,
        chance,
        &member.name,
    )
}

fn compare(pool: &Pool, a: &Member, b: &Member) -> Ordering {
    #[cfg(test)]
    tests::COMPARISONS.with(|count| count.set(count.get() + 1));
    standing(pool, a).cmp(&standing(pool, b))
}

/// FNV-1a: the same on every machine and in every version.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;

//! How a pool's outdated machines are replaced: how many more there are to be meanwhile, which goes next, what is waited
//! for, and when it stops.
//!
//! Nothing is remembered between decisions. Each starts from what the pool is now, so a template that changes in the midst
//! of a rollout, a size that changes, a machine that fails or a process that dies need no way of their own.

mod budgets;
mod limits;
mod order;
mod outdated;
mod preview;
mod skew;
#[cfg(test)]
mod tests;
mod told;

use jiff::Timestamp;

use crate::allowance::{Census, Standing};

use budgets::{Closed, LOOKED_AT};
use order::Queue;

pub use budgets::{Ask, Budget, NoPods, Pods};
pub use limits::Limits;
pub use order::Because;
pub use outdated::{Outdated, Source, outdated};
pub use preview::{Wave, waves};
pub use skew::is_newer;

/// Who replaces outdated machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Muster, within the limits.
    Rolling(Limits),
    /// Whoever deletes them.
    #[default]
    OnDelete,
}

/// What is decided about, apart from its machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// How many machines are wanted.
    pub desired: u32,
    /// Who replaces outdated machines.
    pub strategy: Strategy,
    /// How many machines may be down by repair and rollout together.
    pub disruption: u32,
    /// Whether the group can have more machines than the pool's size for a while.
    pub can_surge: bool,
    /// Whether the balance of zones counts.
    pub balanced: bool,
    /// Why nothing may go at all, as a sentence.
    pub refused: Option<String>,
}

/// What is known of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Name, unique in the pool.
    pub name: String,
    /// When it was created.
    pub created: Timestamp,
    /// The zone it is in, once known.
    pub zone: Option<String>,
    /// How it stands.
    pub standing: Standing,
    /// It was marked to go first.
    pub marked: bool,
    /// Something asks that it be left alone: a hook, or a word against its repair.
    pub held: bool,
    /// In what it is not what the pool wants; nothing when it is up to date.
    pub outdated: Vec<Outdated>,
    /// It did not become available in the time that a start may take.
    pub failed_to_start: bool,
}

impl Member {
    fn is_outdated(&self) -> bool {
        !self.outdated.is_empty()
    }

    fn is_leaving(&self) -> bool {
        self.standing == Standing::Leaving
    }

    fn is_up(&self) -> bool {
        self.standing == Standing::Up
    }

    fn zone(&self) -> &str {
        self.zone.as_deref().unwrap_or_default()
    }
}

/// Why no further machine goes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The rollout may not begin or go on, as a sentence.
    Refused(String),
    /// Outdated machines go when somebody deletes them.
    OnDelete,
    /// New machines did not become available in time; what they are made from is to be corrected.
    Stopped {
        /// These did not.
        failed: Vec<String>,
    },
    /// The size goes down first.
    ScaleDown {
        /// By so many.
        surplus: u32,
    },
    /// The limits allow no machine to go before others are available.
    Machines {
        /// Up to date and not available yet.
        starting: Vec<String>,
        /// On their way out.
        leaving: Vec<String>,
        /// So many are wanted that are not there yet.
        missing: u32,
    },
    /// The limits leave no room at all, whatever happens; the sentence says which and what to change.
    NoRoom(String),
    /// Budgets of Pods have no room for what would have to move.
    Budgets(Vec<Budget>),
    /// Nothing: all that is outdated is going.
    Nothing,
}

/// How many machines stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them, those that are leaving included.
    pub total: u32,
    /// Up to date and not leaving.
    pub up_to_date: u32,
    /// Up to date, not leaving, and not available.
    pub starting: u32,
    /// Outdated and not leaving.
    pub outdated: u32,
    /// Outdated and leaving.
    pub leaving: u32,
}

/// What a rollout does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How many machines more than the pool's size there are to be.
    pub surge: u32,
    /// Those that go now, in order, with the rule that chose each.
    pub next: Vec<(String, Because)>,
    /// Why it is not more.
    pub waiting: Waiting,
    /// How many stand where, before this decision.
    pub counts: Counts,
}

impl Decision {
    /// Whether there is anything left to roll.
    pub fn is_over(&self) -> bool {
        self.counts.outdated == 0 && self.counts.leaving == 0
    }
}

/// How many machines more than its size a group is to have, when so many of its machines are outdated and not leaving. One
/// that is on its way out needs no place of its own any more: the machine that is there in its stead takes it.
pub fn surge(strategy: Strategy, outdated: u32) -> u32 {
    match strategy {
        Strategy::Rolling(limits) => limits.max_surge.min(outdated),
        Strategy::OnDelete => 0,
    }
}

/// Decides what a rollout does now.
pub fn decide(pool: &Pool, members: &[Member], pods: &mut impl Pods) -> Decision {
    let counts = count(members);
    let allowed_surge = match (&pool.refused, pool.can_surge) {
        (None, true) => surge(pool.strategy, counts.outdated),
        _ => 0,
    };
    let stay = |waiting| Decision {
        surge: allowed_surge,
        next: Vec::new(),
        waiting,
        counts,
    };
    if counts.outdated == 0 {
        return stay(Waiting::Nothing);
    }
    let limits = match pool.strategy {
        Strategy::OnDelete => return stay(Waiting::OnDelete),
        Strategy::Rolling(limits) => limits,
    };
    if let Some(why) = &pool.refused {
        return stay(Waiting::Refused(why.clone()));
    }
    let failed: Vec<String> = members
        .iter()
        .filter(|m| m.failed_to_start && !m.is_leaving() && !m.is_outdated())
        .map(|m| m.name.clone())
        .collect();
    if !failed.is_empty() {
        return stay(Waiting::Stopped { failed });
    }
    let down = pool.disruption.min(limits.max_unavailable);
    if allowed_surge == 0 && down == 0 {
        return stay(Waiting::NoRoom(told::no_room(pool, limits)));
    }
    let staying = counts.up_to_date + counts.outdated;
    let surplus = staying.saturating_sub(pool.desired.saturating_add(allowed_surge));
    if surplus > 0 {
        return stay(Waiting::ScaleDown { surplus });
    }
    let mut room = Room::new(pool, limits.max_unavailable, members, counts);
    let mut next = Vec::new();
    let mut closed = Closed::new(pods, members);
    let mut queue = Queue::new(pool, members);
    let mut looked_at = 0;
    while looked_at < LOOKED_AT {
        let Some((member, because)) = queue.next(|standing| room.is_for(standing)) else {
            break;
        };
        if member.is_up() {
            looked_at += 1;
            if !closed.let_go(pods, &member.name) {
                continue;
            }
        }
        room.take(member.standing);
        queue.take(member);
        next.push((member.name.clone(), because));
    }
    let waiting = if next.len() == usize::try_from(counts.outdated).unwrap_or(usize::MAX) {
        Waiting::Nothing
    } else if !closed.blocked.is_empty() && next.is_empty() {
        let budgets = closed.blocked.keys().filter_map(|at| pods.budget(*at));
        Waiting::Budgets(budgets.cloned().collect())
    } else {
        waits_for_machines(pool, members, &next, allowed_surge)
    };
    Decision {
        surge: allowed_surge,
        next,
        waiting,
        counts,
    }
}

/// How many more machines may go, by how they stand.
struct Room {
    /// Of machines that are neither leaving nor new and on their way up, so many beyond what must be left. As a
    /// MachineDeployment has it. Source: Cluster API.
    settled: u32,
    /// Of machines that are up, so many beyond what must be left.
    up: u32,
    /// The budget that rollouts share with repairs.
    census: Census,
    limit: u32,
}

impl Room {
    fn new(pool: &Pool, max_unavailable: u32, members: &[Member], counts: Counts) -> Self {
        let census = Census::of(pool.desired, members.iter().map(|m| m.standing));
        let least = pool.desired.saturating_sub(max_unavailable);
        let settled = counts.up_to_date + counts.outdated - counts.starting;
        Self {
            settled: settled.saturating_sub(least),
            up: census.up.saturating_sub(least),
            census,
            limit: pool.disruption,
        }
    }

    fn is_for(&self, standing: Standing) -> bool {
        let allowed = self.census.allows(self.limit);
        self.settled > 0
            && match standing {
                Standing::Leaving => false,
                Standing::Up => self.up > 0 && allowed.ups > 0,
                Standing::Sick | Standing::Down => allowed.downs > 0,
                // It has a place among those that are on their way already, and its successor takes that.
                Standing::Starting => self.census.leaving < self.limit || self.census.surplus() > 0,
            }
    }

    fn take(&mut self, standing: Standing) {
        self.settled = self.settled.saturating_sub(1);
        if standing == Standing::Up {
            self.up = self.up.saturating_sub(1);
        }
        self.census.begin(standing);
    }
}

fn count(members: &[Member]) -> Counts {
    let mut counts = Counts::default();
    for member in members {
        counts.total += 1;
        match (member.is_outdated(), member.is_leaving()) {
            (true, true) => counts.leaving += 1,
            (true, false) => counts.outdated += 1,
            (false, true) => {}
            (false, false) => {
                counts.up_to_date += 1;
                counts.starting += u32::from(!member.is_up());
            }
        }
    }
    counts
}

fn waits_for_machines(
    pool: &Pool,
    members: &[Member],
    next: &[(String, Because)],
    surge: u32,
) -> Waiting {
    let names = |which: &dyn Fn(&Member) -> bool| -> Vec<String> {
        let chosen = members.iter().filter(|m| which(m));
        chosen.map(|m| m.name.clone()).collect()
    };
    let mut leaving = names(&|m| m.is_leaving());
    leaving.extend(next.iter().map(|(name, _)| name.clone()));
    let staying = members.iter().filter(|m| !m.is_leaving()).count();
    let wanted = pool.desired.saturating_add(surge);
    Waiting::Machines {
        starting: names(&|m| !m.is_leaving() && !m.is_up() && !m.is_outdated()),
        missing: wanted.saturating_sub(u32::try_from(staying).unwrap_or(u32::MAX)),
        leaving,
    }
}

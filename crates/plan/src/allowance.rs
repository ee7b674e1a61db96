//! How many machines of a pool may be down by Muster's own will: one budget for repair and rollout together.
//!
//! A [`Census`] says how the pool's machines stand, a limit how many may be down, and an [`Allowance`] what may be begun
//! now. It is decided anew from what is there before each beginning, so that a crash between two loses nothing and repeats
//! nothing: a machine that Muster began with is *leaving*, and its successor is *missing* until it is up.
//!
//! - A sick machine is down already; what its repair costs is a place among the machines that are on their way. So there
//!   are never more repairs under way than the limit, however many machines turn sick at once.
//! - A rollout takes machines down that are up, and so never below the pool's size less the limit. Whatever is down
//!   already, for whatever reason, counts; the sick ones that wait for repair too, which is how repair goes first.
//! - What users delete and what a lowered size takes is counted and never held back.

use crate::share::Share;

/// The share of a pool that may be down where neither `disruption.maxUnavailable` nor the rollout's says.
pub const DEFAULT: Share = Share::Percent(10);

/// The limit as a number of machines: what the policy's budget says, else the rollout's `maxUnavailable`, else
/// [`DEFAULT`]; of the last two whichever is more. A percentage is at least one machine, unless it is 0%.
pub fn limit(disruption: Option<Share>, rollout: Option<Share>, desired: u32) -> u32 {
    disruption.map_or_else(
        || {
            let rollout = rollout.map_or(0, |share| share.at_least_one(desired));
            DEFAULT.at_least_one(desired).max(rollout)
        },
        |share| share.at_least_one(desired),
    )
}

/// How one machine of a pool stands; each counts once, and the first that applies is what counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Its deletion was asked for, by whomever, or Muster is about to ask for it.
    Leaving,
    /// Up.
    Up,
    /// A health check finds fault with it and asks for its repair.
    Sick,
    /// It is on its way to be up for the first time.
    Starting,
    /// Down, and nobody is about to do anything about it.
    Down,
}

/// How the machines of a pool stand, as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// How many are wanted.
    pub desired: u32,
    /// How many are [`Standing::Leaving`].
    pub leaving: u32,
    /// How many are [`Standing::Up`].
    pub up: u32,
    /// How many are [`Standing::Sick`].
    pub sick: u32,
    /// How many are [`Standing::Starting`].
    pub starting: u32,
    /// How many are [`Standing::Down`].
    pub down: u32,
}

impl Census {
    /// Counts machines.
    pub fn of(desired: u32, machines: impl IntoIterator<Item = Standing>) -> Self {
        let mut census = Self {
            desired,
            ..Self::default()
        };
        for standing in machines {
            *census.place(standing) += 1;
        }
        census
    }

    /// Takes note that a machine begins to leave that stood so.
    pub fn begin(&mut self, stood: Standing) {
        let place = self.place(stood);
        *place = place.saturating_sub(1);
        self.leaving += 1;
    }

    fn place(&mut self, standing: Standing) -> &mut u32 {
        match standing {
            Standing::Leaving => &mut self.leaving,
            Standing::Up => &mut self.up,
            Standing::Sick => &mut self.sick,
            Standing::Starting => &mut self.starting,
            Standing::Down => &mut self.down,
        }
    }

    /// How many machines are on their way: going, or to come in the place of one that went. One that goes while its
    /// successor comes is one.
    pub fn under_way(&self) -> u32 {
        let settled = self.up + self.sick + self.down;
        self.desired.saturating_sub(settled).max(self.leaving)
    }

    /// How many machines there are beyond the size, not counting those that leave.
    pub fn surplus(&self) -> u32 {
        let staying = self.up + self.sick + self.starting + self.down;
        staying.saturating_sub(self.desired)
    }

    /// What may be begun now.
    pub fn allows(&self, limit: u32) -> Allowance {
        let under_way = self.under_way();
        let room = limit.saturating_sub(under_way);
        // Machines that are down and that nobody repairs must not keep those from repair that can be repaired.
        let least = u32::from(limit > 0 && under_way == 0);
        Allowance {
            repairs: room.saturating_sub(self.down).max(least).min(self.sick),
            ups: (self.up + limit).saturating_sub(self.desired).min(self.up),
            downs: room.max(self.surplus()),
        }
    }
}

/// How many machines of each standing Muster may begin to delete now. Each beginning changes what is allowed after it:
/// [`Census::begin`] takes note of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Sick ones, to repair them.
    pub repairs: u32,
    /// Ones that are up, to roll them.
    pub ups: u32,
    /// Ones that are not up, to roll them: that takes nothing down.
    pub downs: u32,
}

#[cfg(test)]
mod tests;

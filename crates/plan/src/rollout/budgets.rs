//! Budgets of Pods: whether what a machine runs finds room elsewhere.

use std::collections::BTreeMap;

use super::Member;

/// Pods of a machine that a budget has to have room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The budget, as a place in the list of [`Budget`]s.
    pub budget: usize,
    /// How many Pods.
    pub pods: u32,
}

/// A PodDisruptionBudget as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// As `namespace/name`.
    pub name: String,
    /// How many Pods may be evicted now.
    pub allowed: u32,
    /// It never allows a disruption, so it is not waited for: a drain's own time limit is what ends that.
    pub never: bool,
    /// Pods of it that are not ready, each with what is wrong.
    pub unready: Vec<String>,
}

/// The Pods that have to move, looked up only for machines that come into question.
pub trait Pods {
    /// What the going of a machine asks of budgets.
    fn asks(&mut self, machine: &str) -> Vec<Ask>;

    /// A budget that was asked for.
    fn budget(&self, place: usize) -> Option<&Budget>;
}

/// No Pods anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPods;

impl Pods for NoPods {
    fn asks(&mut self, _: &str) -> Vec<Ask> {
        Vec::new()
    }

    fn budget(&self, _: usize) -> Option<&Budget> {
        None
    }
}

/// How many machines are looked at for their Pods in one decision; a bound for its cost.
pub(super) const LOOKED_AT: usize = 512;

/// What budgets have no room for any more.
pub(super) struct Closed {
    /// What is left of budgets that were asked for.
    left: BTreeMap<usize, u32>,
    /// Budgets that kept a machine.
    pub(super) blocked: BTreeMap<usize, ()>,
}

impl Closed {
    /// Pods of machines that are leaving have the first claim.
    pub(super) fn new(pods: &mut impl Pods, members: &[Member]) -> Self {
        let mut closed = Self {
            left: BTreeMap::new(),
            blocked: BTreeMap::new(),
        };
        for member in members.iter().filter(|m| m.is_leaving()).take(LOOKED_AT) {
            for ask in pods.asks(&member.name) {
                closed.claim(pods, &ask);
            }
        }
        closed
    }

    fn claim(&mut self, pods: &impl Pods, ask: &Ask) {
        let Some(budget) = pods.budget(ask.budget) else {
            return;
        };
        let left = self.left.entry(ask.budget).or_insert(budget.allowed);
        *left = left.saturating_sub(ask.pods);
    }

    /// Whether every budget that a machine's Pods ask has room for one of them at least; takes the room if so. That all of
    /// them find room at once is not asked for: a drain moves them one after another.
    pub(super) fn let_go(&mut self, pods: &mut impl Pods, machine: &str) -> bool {
        let asks = pods.asks(machine);
        let mut free = true;
        for ask in &asks {
            let Some(budget) = pods.budget(ask.budget) else {
                continue;
            };
            let left = *self.left.entry(ask.budget).or_insert(budget.allowed);
            if left == 0 && !budget.never && ask.pods > 0 {
                self.blocked.insert(ask.budget, ());
                free = false;
            }
        }
        if free {
            for ask in &asks {
                self.claim(pods, ask);
            }
        }
        free
    }
}

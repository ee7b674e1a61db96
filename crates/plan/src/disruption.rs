//! What a machine's going would disturb: how many Pods move, whether their budgets have room, and what cannot move at all.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::drain::PodName;

/// What a machine's going would disturb; less goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Disruption {
    /// A Pod has a volume that only this Node can reach, and would find no other place.
    pub strands: bool,
    /// Not all of its Pods can be evicted now: a budget has no room for them, or one is to complete first.
    pub blocked: bool,
    /// How many Pods would be evicted.
    pub pods: u32,
    /// The highest priority among them.
    pub priority: i32,
}

/// A PodDisruptionBudget as it stands now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Namespace and name, as `namespace/name`.
    pub name: String,
    /// How many Pods may be evicted now.
    pub allowed: u32,
    /// Pods that are not ready may go without room.
    pub lets_unready_go: bool,
    /// Since when it has had no room, if it has none.
    pub no_room_since: Option<Timestamp>,
    /// What in it keeps it from ever allowing a disruption.
    pub never: Option<String>,
}

/// What of a Pod's volumes says where it can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// Nothing.
    #[default]
    Nowhere,
    /// A volume of its zone.
    Zone,
    /// A volume of its Node.
    Node,
}

/// A Pod that a drain would evict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evictee {
    /// Which.
    pub name: PodName,
    /// Its priority.
    pub priority: i32,
    /// It is ready.
    pub ready: bool,
    /// No budget is asked for it: it does not run yet or any more, or goes already. Source: Kubernetes.
    pub free: bool,
    /// The budgets that select it, as places in a list of [`Budget`]s.
    pub budgets: Vec<usize>,
    /// Where its volumes let it run.
    pub bound: Bound,
}

impl Evictee {
    /// The budget that has to have room for it.
    pub fn asks(&self, budgets: &[Budget]) -> Option<usize> {
        let [only] = self.budgets.as_slice() else {
            return None;
        };
        let budget = budgets.get(*only)?;
        (!self.free && (self.ready || !budget.lets_unready_go)).then_some(*only)
    }

    /// Whether the eviction API refuses it for ever, as more than one budget selects it. Source: Kubernetes.
    pub fn is_refused(&self) -> bool {
        !self.free && self.budgets.len() > 1
    }
}

/// What is on a Node and would have to move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Pods that would be evicted.
    pub evicted: Vec<Evictee>,
    /// Pods that are waited for until they complete.
    pub completing: Vec<PodName>,
}

impl Load {
    /// What the going of this would disturb.
    pub fn disruption(&self, budgets: &[Budget]) -> Disruption {
        let mut asked: BTreeMap<usize, u32> = BTreeMap::new();
        for pod in &self.evicted {
            if let Some(budget) = pod.asks(budgets) {
                *asked.entry(budget).or_default() += 1;
            }
        }
        let no_room = asked.iter().any(|(at, pods)| {
            budgets
                .get(*at)
                .is_some_and(|budget| *pods > budget.allowed)
        });
        Disruption {
            strands: self.evicted.iter().any(|pod| pod.bound == Bound::Node),
            blocked: no_room
                || !self.completing.is_empty()
                || self.evicted.iter().any(Evictee::is_refused),
            pods: u32::try_from(self.evicted.len()).unwrap_or(u32::MAX),
            priority: self
                .evicted
                .iter()
                .map(|pod| pod.priority)
                .max()
                .unwrap_or(0),
        }
    }

    /// Whether a Pod can only run in this zone.
    pub fn is_zone_bound(&self) -> bool {
        self.evicted.iter().any(|pod| pod.bound == Bound::Zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, budgets: &[usize]) -> Evictee {
        Evictee {
            name: PodName {
                namespace: "ns".to_owned(),
                name: name.to_owned(),
            },
            priority: 0,
            ready: true,
            free: false,
            budgets: budgets.to_vec(),
            bound: Bound::Nowhere,
        }
    }

    fn allows(allowed: u32) -> Budget {
        Budget {
            allowed,
            ..Budget::default()
        }
    }

    fn blocked(pods: Vec<Evictee>, budgets: &[Budget]) -> bool {
        let load = Load {
            evicted: pods,
            completing: Vec::new(),
        };
        load.disruption(budgets).blocked
    }

    #[test]
    fn pods_can_all_be_evicted_now_only_if_each_budget_has_room_for_all_of_its_own() {
        let budgets = [allows(1), allows(0)];
        assert!(!blocked(vec![pod("a", &[0]), pod("b", &[])], &budgets));
        assert!(blocked(vec![pod("a", &[0]), pod("b", &[0])], &budgets));
        assert!(blocked(vec![pod("a", &[1])], &budgets));
        assert!(blocked(vec![pod("a", &[0, 1])], &[allows(1), allows(1)]));
    }

    #[test]
    fn a_pod_that_no_budget_is_asked_for_blocks_nothing() {
        let free = Evictee {
            free: true,
            ..pod("a", &[0, 1])
        };
        assert!(!blocked(vec![free], &[allows(0), allows(0)]));
        let unready = Evictee {
            ready: false,
            ..pod("a", &[0])
        };
        assert!(blocked(vec![unready.clone()], &[allows(0)]));
        let lenient = Budget {
            lets_unready_go: true,
            ..allows(0)
        };
        assert!(!blocked(vec![unready], &[lenient]));
    }

    #[test]
    fn what_has_to_complete_blocks_and_what_is_bound_to_the_node_is_worst() {
        let completing = Load {
            completing: vec![pod("job", &[]).name],
            ..Load::default()
        };
        let many = Load {
            evicted: (0..9).map(|n| pod(&n.to_string(), &[])).collect(),
            completing: Vec::new(),
        };
        let bound = Load {
            evicted: vec![Evictee {
                bound: Bound::Node,
                ..pod("a", &[])
            }],
            completing: Vec::new(),
        };
        let of = |load: &Load| load.disruption(&[]);
        assert!(of(&completing).blocked);
        assert!(of(&Load::default()) < of(&many) && of(&many) < of(&completing));
        assert!(of(&completing) < of(&bound));
    }
}

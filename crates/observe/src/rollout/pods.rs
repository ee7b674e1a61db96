//! The Pods that would have to move, and the budgets that have a say, looked up for the Machines that come into question.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use muster_api::{Cluster, Machine};
use muster_plan::drain;
use muster_plan::rollout::{Ask, Budget, Pods};

use super::Judged;
use crate::View;
use crate::drain::Rules;
use crate::load::{Budgets, on_node};

/// What is on the Nodes of a pool's Machines.
pub struct OnNodes<'a> {
    view: &'a dyn View,
    rules: &'a Rules,
    cluster: Option<&'a Cluster>,
    now: Timestamp,
    machines: HashMap<String, &'a Arc<Machine>>,
    budgets: Budgets<'a>,
    list: Vec<Budget>,
}

impl<'a> OnNodes<'a> {
    /// Those of a pool's Machines, in their workload cluster.
    pub fn new(
        view: &'a dyn View,
        rules: &'a Rules,
        cluster: Option<&'a Cluster>,
        machines: &'a [Judged],
        now: Timestamp,
    ) -> Self {
        Self {
            view,
            rules,
            cluster,
            now,
            machines: machines
                .iter()
                .map(|judged| (judged.machine.name_any(), &judged.machine))
                .collect(),
            budgets: Budgets::new(view),
            list: Vec::new(),
        }
    }
}

impl Pods for OnNodes<'_> {
    fn asks(&mut self, machine: &str) -> Vec<Ask> {
        let Some(machine) = self.machines.get(machine) else {
            return Vec::new();
        };
        // Rules that cannot be read hold the drain, which says so; no budget is asked before.
        let (Some(node), Ok(rules)) = (
            machine.node_name(),
            self.rules.of_machine(machine, self.cluster),
        ) else {
            return Vec::new();
        };
        let state = drain::Node { unreachable: false };
        let found = on_node(node, state, &rules, self.view, &mut self.budgets, self.now);
        let mut pods: BTreeMap<usize, u32> = BTreeMap::new();
        for evictee in &found.load.evicted {
            if let Some(budget) = evictee.asks(self.budgets.list()) {
                *pods.entry(budget).or_default() += 1;
            }
        }
        let known = self.list.len();
        self.list
            .extend(self.budgets.list().iter().skip(known).map(|budget| Budget {
                name: budget.name.clone(),
                allowed: budget.allowed,
                never: budget.never.is_some(),
                unready: Vec::new(),
            }));
        pods.into_iter()
            .map(|(budget, pods)| Ask { budget, pods })
            .collect()
    }

    fn budget(&self, place: usize) -> Option<&Budget> {
        self.list.get(place)
    }
}

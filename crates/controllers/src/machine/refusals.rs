//! What is remembered of a drain between its passes: refused evictions, and since when nothing else is left.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use muster_informers::Key;
use muster_plan::drain::asking::{Asked, refusals};
use muster_plan::drain::{PodName, Refusal};

/// Refusals by Pod, with the time of the first.
pub(super) type OfPods = BTreeMap<PodName, (Refusal, Timestamp)>;

/// What is remembered of one drain.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// The Pods whose eviction was asked for.
    pub(super) asked: BTreeMap<PodName, Asked>,
    /// Since when budgets without room are all that is left, and their other Pods find no Node.
    pub(super) stuck: Option<Timestamp>,
}

impl Held {
    /// The refusals that hold.
    pub(super) fn refused(&self) -> OfPods {
        refusals(&self.asked)
    }
}

/// What is remembered of all drains. Lost with the process, and learnt again at the next try; since when a budget refuses
/// is said in the Machine's condition too, and read from there.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<HashMap<Key, Held>>);

impl Refusals {
    pub(super) fn of(&self, machine: &Key) -> Held {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.get(machine).cloned().unwrap_or_default()
    }

    pub(super) fn set(&self, machine: &Key, held: Held) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.asked.is_empty() {
            map.remove(machine);
        } else {
            map.insert(machine.clone(), held);
        }
    }

    /// The Machines of which Pods of a namespace of their cluster are refused.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<Key> {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let concerned = |held: &Held| {
            let mut refused = held
                .asked
                .iter()
                .filter(|(_, asked)| asked.refused.is_some());
            refused.any(|(pod, _)| pod.namespace == namespace)
        };
        let machines = map.iter().filter(|(_, held)| concerned(held));
        machines.map(|(machine, _)| machine.clone()).collect()
    }
}

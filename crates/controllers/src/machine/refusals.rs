//! What is remembered of a drain between its passes: refused evictions, and since when nothing else is left.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use muster_informers::Key;
use muster_plan::drain::{PodName, Refusal};

/// Refusals by Pod, with the time of the first.
pub(super) type OfPods = BTreeMap<PodName, (Refusal, Timestamp)>;

/// What is remembered of one drain.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    pub(super) refused: OfPods,
    /// Since when budgets without room are all that is left, and their other Pods find no Node.
    pub(super) stuck: Option<Timestamp>,
}

/// What is remembered of all drains. Lost with the process, and learnt again at the next try.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<HashMap<Key, Held>>);

impl Refusals {
    pub(super) fn of(&self, machine: &Key) -> Held {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.get(machine).cloned().unwrap_or_default()
    }

    pub(super) fn set(&self, machine: &Key, held: Held) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.refused.is_empty() {
            map.remove(machine);
        } else {
            map.insert(machine.clone(), held);
        }
    }
}

//! Turns of the drains of each cluster; who goes is decided in `plan`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use muster_informers::Key;
use muster_plan::turns::{Asking, Place, Turn, Turns};

/// The drains of all clusters. Lost with the process: those that began say so when they ask again.
pub(crate) struct Drains {
    limit: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_cluster: HashMap<Key, Turns<Key>>,
    /// The cluster and the place of each Machine that asked.
    places: HashMap<Key, (Key, Place<Key>)>,
}

impl Drains {
    /// At most so many at once in each cluster.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            known: Mutex::default(),
        }
    }

    /// Whether the drain of a Machine's Node goes on now.
    pub(super) fn ask(
        &self,
        cluster: &Key,
        machine: &Key,
        asked: Timestamp,
        asking: Asking,
        now: Timestamp,
    ) -> Turn<Key> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Place {
            asked,
            of: machine.clone(),
        };
        known
            .places
            .insert(machine.clone(), (cluster.clone(), place.clone()));
        known
            .by_cluster
            .entry(cluster.clone())
            .or_insert_with(|| Turns::new(self.limit))
            .ask(&place, asking, now)
    }

    /// A Machine drains no more; the Machines that are to ask again.
    pub(super) fn leave(&self, machine: &Key) -> Vec<Key> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((cluster, place)) = known.places.remove(machine) else {
            return Vec::new();
        };
        let Some(turns) = known.by_cluster.get_mut(&cluster) else {
            return Vec::new();
        };
        let wake = turns.leave(&place);
        if turns.is_empty() {
            known.by_cluster.remove(&cluster);
        }
        wake
    }
}

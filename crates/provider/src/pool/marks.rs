//! Marks on Machines that a choice of victims must know of, as they are written and not as they are cached.
//!
//! A mark and the lower size that follows it come by two watches, and nothing says which comes first. So before a Machine
//! that nobody marked is chosen, the marks are read from the API: once per choice, not per event.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use muster_api::{Machine, MachinePool, names};
use muster_informers::Key;
use muster_plan::marks::Lowered;
use muster_plan::pool::Member;

use super::{Context, PassError, api};

/// Sizes that ask for machines to go, by pool.
#[derive(Default)]
pub(super) struct Patience(Mutex<HashMap<Key, Lowered>>);

impl Patience {
    /// How long machines of a pool that nobody marked are still left alone.
    pub(super) fn left(&self, pool: &Key, desired: u32, now: Timestamp) -> Option<Duration> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lowered = Lowered::seen(all.get(pool).copied(), desired, now);
        all.insert(pool.clone(), lowered);
        Duration::try_from(lowered.patience_left(now)?).ok()
    }

    /// Nobody has to go.
    pub(super) fn forget(&self, pool: &Key) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(pool);
    }
}

/// Whether an autoscaler has a say in a pool's size: it has both of the autoscaler's bounds.
pub(super) fn is_autoscaled(pool: &MachinePool) -> bool {
    names::AUTOSCALER_MIN_SIZE.is_on(pool) && names::AUTOSCALER_MAX_SIZE.is_on(pool)
}

/// Brings marks and deletions up to what is written.
pub(super) async fn refresh<S>(
    context: &Context<S>,
    pool: &MachinePool,
    members: &mut [Member],
) -> Result<(), PassError> {
    let namespace = pool.namespace().unwrap_or_default();
    let machines: Api<Machine> = Api::namespaced(context.client.clone(), &namespace);
    let of_pool = format!(
        "{}={}",
        names::POOL_NAME,
        names::pool_label(&pool.name_any())
    );
    let written = machines
        .list_metadata(&ListParams::default().labels(&of_pool))
        .await
        .map_err(api("reading the marks of the pool's Machines"))?
        .items;
    let named = |wanted: &dyn Fn(&kube::core::PartialObjectMeta<Machine>) -> bool| {
        let chosen = written.iter().filter(|machine| wanted(machine));
        chosen.map(ResourceExt::name_any).collect::<HashSet<_>>()
    };
    let marked = named(&|machine| names::DELETE_MACHINE.is_on(machine));
    let leaving = named(&|machine| machine.metadata.deletion_timestamp.is_some());
    for member in members {
        member.marked = marked.contains(&member.name);
        member.leaving |= leaving.contains(&member.name);
    }
    Ok(())
}

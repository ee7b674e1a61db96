//! A pool's size together with the memory of which Machines' going it follows: read, changed and written as one.
//!
//! `plan::size` says why the two belong together. Here is the only place that writes them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use muster_api::names::{self, SizeOwner};
use muster_api::{Machine, MachinePool};
use muster_caches::Management;
use muster_informers::Key;
use muster_plan::size::{Counted, Outcome, Replacement, Size};
use serde_json::json;

/// Changes sizes of pools; cheap to clone.
#[derive(Clone)]
pub struct Sizes(Arc<Inner>);

struct Inner {
    client: Client,
    caches: Management,
    /// Per pool, who takes the next turn.
    turns: Mutex<HashMap<Key, Arc<Turn>>>,
}

/// Deletions of one pool that wait to be counted: whoever has the turn counts all of them in one write.
#[derive(Default)]
struct Turn {
    waiting: Mutex<Vec<(String, Replacement)>>,
    told: Mutex<HashMap<String, Outcome>>,
    lock: tokio::sync::Mutex<()>,
}

/// A pool's size as it is written.
pub fn read(pool: &MachinePool) -> Size {
    Size {
        replicas: pool.desired_replicas(),
        counted: Counted::parse(names::COUNTED_DELETIONS.text(pool).unwrap_or_default()),
        minimum: names::AUTOSCALER_MIN_SIZE.read(pool).ok().flatten(),
        outside: SizeOwner::of(pool) == SizeOwner::Outside,
    }
}

impl Sizes {
    /// Sizes of the pools in these caches.
    pub fn new(client: Client, caches: Management) -> Self {
        Self(Arc::new(Inner {
            client,
            caches,
            turns: Mutex::default(),
        }))
    }

    /// Counts the deletion of a Machine into the size of its pool, once however often it is asked for. A pool that is
    /// not there, or that is being deleted itself, keeps its size.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn count(
        &self,
        pool: &Key,
        machine: &Machine,
        wish: Replacement,
    ) -> Result<Outcome, kube::Error> {
        let Some(uid) = machine.uid() else {
            return Ok(Outcome::Replaced);
        };
        if self.0.caches.pools.get(pool).is_none_or(|pool| {
            // What needs no write needs no turn.
            pool.is_deleting() || read(&pool).count(&uid, wish) == Outcome::Replaced
        }) {
            return Ok(Outcome::Replaced);
        }
        let turn = {
            let mut turns = lock(&self.0.turns);
            Arc::clone(turns.entry(pool.clone()).or_default())
        };
        lock(&turn.waiting).push((uid.clone(), wish));
        let _mine = turn.lock.lock().await;
        if let Some(outcome) = lock(&turn.told).remove(&uid) {
            return Ok(outcome);
        }
        let mut all = std::mem::take(&mut *lock(&turn.waiting));
        if !all.iter().any(|(waiting, _)| *waiting == uid) {
            // Somebody's turn took it along and failed.
            all.push((uid.clone(), wish));
        }
        let mut outcomes = HashMap::new();
        self.change(pool, |size| {
            outcomes = all
                .iter()
                .map(|(uid, wish)| (uid.clone(), size.count(uid, *wish)))
                .collect();
        })
        .await?;
        let mine = outcomes.remove(&uid).unwrap_or(Outcome::Counted);
        lock(&turn.told).extend(outcomes);
        Ok(mine)
    }

    /// Remembers Machines whose going the size follows already, since it was lowered first: a scale-down's victims.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn remember(&self, pool: &Key, uids: &[String]) -> Result<(), kube::Error> {
        self.change(pool, |size| {
            for uid in uids {
                size.counted.add(uid);
            }
        })
        .await
    }

    /// Forgets Machines that are gone, and those that were to go but whose deletion was never asked for. Walks the pool,
    /// but only while anything is remembered.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn tidy_walking_pool(&self, pool: &Key) -> Result<(), kube::Error> {
        let Some(object) = self.0.caches.pools.get(pool) else {
            return Ok(());
        };
        let counted = read(&object).counted;
        if counted.is_empty() {
            return Ok(());
        }
        let machines = self.0.caches.machines_of(&pool.namespace, &pool.name);
        let mut going = Vec::new();
        for machine in &machines {
            let Some(uid) = machine.uid().filter(|uid| counted.has(uid)) else {
                continue;
            };
            // The cache may be behind the pool's: whether its deletion was never asked for is asked of the API.
            let goes = machine.is_deleting() || {
                let api: Api<Machine> = Api::namespaced(self.0.client.clone(), &pool.namespace);
                let fresh = api.get_opt(&machine.name_any()).await?;
                fresh.is_some_and(|m| m.metadata.uid == machine.metadata.uid && m.is_deleting())
            };
            if goes {
                going.push(uid);
            }
        }
        self.change(pool, |size| {
            size.counted.keep_only(going.iter().map(String::as_str));
        })
        .await
    }

    /// Changes a size from what it is now: a change by anybody else in between makes it start again from there.
    async fn change(
        &self,
        key: &Key,
        mut change: impl FnMut(&mut Size),
    ) -> Result<(), kube::Error> {
        let api: Api<MachinePool> = Api::namespaced(self.0.client.clone(), &key.namespace);
        let Some(mut pool) = self.0.caches.pools.get(key) else {
            return Ok(());
        };
        loop {
            let before = read(&pool);
            let mut after = before.clone();
            change(&mut after);
            if after == before {
                return Ok(());
            }
            let mut patch = json!({"metadata": {"resourceVersion": pool.resource_version()}});
            if after.counted != before.counted {
                let text = (!after.counted.is_empty()).then(|| after.counted.to_string());
                patch["metadata"]["annotations"] = json!({names::COUNTED_DELETIONS.key(): text});
            }
            if after.replicas != before.replicas {
                patch["spec"] = json!({"replicas": after.replicas});
            }
            match api
                .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
                .await
            {
                Ok(written) => {
                    self.0.caches.pools.absorb(written);
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.is_conflict() => {
                    let Some(fresh) = api.get_opt(&key.name).await? else {
                        return Ok(());
                    };
                    self.0.caches.pools.absorb(fresh.clone());
                    pool = Arc::new(fresh);
                }
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

// What the locks guard is whole after every statement.
fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

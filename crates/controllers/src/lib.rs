//! The reconcilers of Cluster API's kinds: clusters, pools, machines.
//!
//! A reconciler observes (caches only), decides (`muster-plan`), acts, and writes its status last. Objects of providers
//! are reached through [`objects`], workload clusters through [`workload`].

pub mod cluster;
mod health;
pub mod machine;
pub mod machine_pool;
pub mod objects;
mod ownership;
mod policy;
pub mod workload;

use std::sync::Arc;

use kube::Client;
use muster_caches::Management;
use muster_clock::Clock;
use muster_informers::{Key, Queue};
use muster_observe::Clusters;
use muster_provider::events::Events;
use muster_provider::sizes::Sizes;
use muster_provider::workload::Connector;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use health::Health;
use machine::refusals::Refusals;
use machine::turns::Drains;
use objects::Objects;
use workload::{Told, Workloads};

/// What the reconcilers need.
pub struct Config {
    /// A client of the management cluster.
    pub client: Client,
    /// Its caches.
    pub caches: Management,
    /// The time.
    pub clock: Clock,
    /// Makes clients of workload clusters.
    pub connector: Arc<dyn Connector>,
    /// Told which workload clusters can be looked into.
    pub workloads: Clusters,
    /// How the controllers behave, where there is a choice.
    pub settings: Settings,
    /// Ends everything.
    pub stop: CancellationToken,
}

/// How the controllers behave, where there is a choice.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many Nodes of one cluster are drained at once.
    pub concurrent_drains: usize,
    /// What goes from Machines to Nodes beside what always does.
    pub additional_sync: machine::node_sync::Additional,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrent_drains: 20,
            additional_sync: Default::default(),
        }
    }
}

/// What all reconcilers share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) caches: Management,
    pub(crate) clock: Clock,
    pub(crate) objects: Objects,
    pub(crate) workloads: Workloads,
    pub(crate) events: Events,
    pub(crate) sizes: Sizes,
    pub(crate) settings: Settings,
    pub(crate) drains: Drains,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) health: Health,
    pub(crate) clusters: Queue<Key>,
    pub(crate) pools: Queue<Key>,
    pub(crate) machines: Queue<Key>,
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// An API refused.
    #[error("{what}: {source}")]
    Api {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: kube::Error,
    },
    /// Something else is in the way.
    #[error("{0}")]
    Blocked(String),
}

pub(crate) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> PassError {
    let what = what.into();
    move |source| PassError::Api { what, source }
}

/// The merge patch that makes `after` of `before`; what is no longer there becomes null.
pub(crate) fn difference(
    before: &impl serde::Serialize,
    after: &impl serde::Serialize,
) -> serde_json::Value {
    fn diff(before: &serde_json::Value, after: &serde_json::Value) -> Option<serde_json::Value> {
        use serde_json::Value;
        match (before, after) {
            (before, after) if before == after => None,
            (Value::Object(old), Value::Object(new)) => {
                let mut patch = serde_json::Map::new();
                for (key, value) in new {
                    if let Some(below) = diff(old.get(key).unwrap_or(&Value::Null), value) {
                        patch.insert(key.clone(), below);
                    }
                }
                for key in old.keys().filter(|key| !new.contains_key(*key)) {
                    patch.insert(key.clone(), Value::Null);
                }
                Some(Value::Object(patch))
            }
            (_, after) => Some(after.clone()),
        }
    }
    diff(&serde_json::json!(before), &serde_json::json!(after))
        .unwrap_or_else(|| serde_json::json!({}))
}

/// Starts the reconcilers.
pub fn start(config: Config) -> TaskTracker {
    let (clusters, pools, machines) = (Queue::default(), Queue::default(), Queue::default());
    let refusals: Arc<Refusals> = Arc::default();
    let health = Health::new(config.clock.now());
    let objects = Objects::new(config.client.clone(), config.caches.clone());
    let context = Arc::new(Context {
        workloads: Workloads::new(
            config.connector,
            config.caches.clone(),
            Told {
                clusters: clusters.clone(),
                pools: pools.clone(),
                machines: machines.clone(),
                health: health.queue.clone(),
                refusals: Arc::clone(&refusals),
            },
            config.clock.clone(),
            config.workloads,
        ),
        drains: Drains::new(config.settings.concurrent_drains),
        refusals,
        health,
        settings: config.settings,
        events: Events::new(config.client.clone(), "muster"),
        sizes: Sizes::new(config.client.clone(), config.caches.clone()),
        client: config.client,
        caches: config.caches,
        clock: config.clock,
        objects,
        clusters,
        pools,
        machines,
    });
    let tracker = TaskTracker::new();
    let stop = config.stop;
    tracker.spawn(cluster::run(Arc::clone(&context), stop.clone()));
    tracker.spawn(machine_pool::run(Arc::clone(&context), stop.clone()));
    tracker.spawn(health::run(Arc::clone(&context), stop.clone()));
    tracker.spawn(policy::run(Arc::clone(&context), stop.clone()));
    tracker.spawn(machine::run(context, stop));
    tracker.close();
    tracker
}

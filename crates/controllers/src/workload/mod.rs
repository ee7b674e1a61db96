//! Workload clusters: a connection to each from its kubeconfig Secret, with caches of what drains and Node binding need.
//!
//! Each cluster has caches of its own; one that does not answer costs the others nothing.

mod caches;
mod reach;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::config::Kubeconfig;
use muster_api::names;
use muster_api::provider_id::identity;
use muster_caches::{Management, in_cluster, in_namespace};
use muster_clock::Clock;
use muster_informers::{Key, Queue};
use muster_observe::{Clusters, View};
use muster_provider::workload::Connector;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use crate::health;
use crate::machine::refusals::Refusals;

pub use caches::{OPEN, Workload};

/// How long the first lists of a cluster may take before it counts as not answering.
const FIRST_LISTS: Duration = Duration::from_secs(10);

/// All workload clusters; cheap to clone.
#[derive(Clone)]
pub struct Workloads(Arc<Inner>);

struct Inner {
    connector: Arc<dyn Connector>,
    caches: Management,
    told: Told,
    clock: Clock,
    readable: Clusters,
    connected: Mutex<HashMap<Key, Connection>>,
}

/// Who is told of changes in workload clusters.
pub(crate) struct Told {
    /// Clusters whose connection comes or goes.
    pub(crate) clusters: Queue<Key>,
    /// Pools whose Nodes come, go or come anew.
    pub(crate) pools: Queue<Key>,
    /// Machines whose Node, Pods, volumes or budgets change.
    pub(crate) machines: Queue<Key>,
    /// Machines whose health is to be looked at, for their Nodes changed.
    pub(crate) health: Queue<health::Work>,
    /// Which Machines wait for which budgets.
    pub(crate) refusals: Arc<Refusals>,
}

/// A connection, with what keeps it alive; both end with it.
struct Connection {
    workload: Arc<Workload>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Workloads {
    /// No connections yet; `readable` is told which clusters can be looked into.
    pub(crate) fn new(
        connector: Arc<dyn Connector>,
        caches: Management,
        told: Told,
        clock: Clock,
        readable: Clusters,
    ) -> Self {
        Self(Arc::new(Inner {
            connector,
            caches,
            told,
            clock,
            readable,
            connected: Mutex::default(),
        }))
    }

    /// The connection to a cluster, if there is one that answers and its caches are complete.
    pub fn get(&self, cluster: &Key) -> Option<Arc<Workload>> {
        self.connection(cluster)
            .filter(|workload| workload.reachability.lost().is_none())
    }

    /// Since when a cluster that was connected has not answered.
    pub fn lost(&self, cluster: &Key) -> Option<Timestamp> {
        self.connection(cluster)?.reachability.lost()
    }

    fn connection(&self, cluster: &Key) -> Option<Arc<Workload>> {
        let connected = self
            .0
            .connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&connected.get(cluster)?.workload))
    }

    /// Connects to a cluster, unless it is with the present kubeconfig.
    ///
    /// # Errors
    /// Why it cannot be reached, in a sentence.
    pub async fn connect(&self, cluster: &Key) -> Result<Arc<Workload>, String> {
        let done = self.connect_anew(cluster).await;
        if done.is_err() {
            self.0
                .readable
                .unreadable(&cluster.namespace, &cluster.name);
        }
        done
    }

    async fn connect_anew(&self, cluster: &Key) -> Result<Arc<Workload>, String> {
        let secret = names::kubeconfig_secret(&cluster.name);
        let found = self
            .0
            .caches
            .secrets
            .get(&Key::new(&cluster.namespace, &secret));
        let bytes = found
            .as_ref()
            .and_then(|secret| secret.data.as_ref()?.get(names::SECRET_VALUE))
            .map(|value| value.0.clone())
            .ok_or_else(|| {
                format!(
                    "waiting for Secret {}/{secret} with the kubeconfig under the key \"value\"",
                    cluster.namespace
                )
            })?;
        if let Some(workload) = self.connection(cluster)
            && workload.kubeconfig == bytes
        {
            return match workload.reachability.lost() {
                None => Ok(workload),
                Some(since) => Err(format!(
                    "the API of Cluster {cluster} has not answered since {since}; it is tried again every {}s",
                    reach::PERIOD.as_secs()
                )),
            };
        }
        let text = String::from_utf8(bytes.clone()).map_err(|_| {
            format!(
                "the kubeconfig in Secret {}/{secret} is not text",
                cluster.namespace
            )
        })?;
        let kubeconfig = Kubeconfig::from_yaml(&text).map_err(|error| {
            format!(
                "the kubeconfig in Secret {}/{secret} cannot be read: {error}",
                cluster.namespace
            )
        })?;
        let client = self
            .0
            .connector
            .connect(&kubeconfig)
            .await
            .map_err(|error| error.to_string())?;
        let workload = Arc::new(Workload::start(client, bytes, self.0.clock.now()));
        let ready = tokio::time::timeout(FIRST_LISTS, workload.synced()).await;
        if !matches!(ready, Ok(true)) {
            return Err(format!("the API of Cluster {cluster} does not answer"));
        }
        let connection = Connection {
            workload: Arc::clone(&workload),
            _tasks: [
                AbortOnDropHandle::new(self.feed(cluster, &workload)),
                AbortOnDropHandle::new(self.probe(cluster, &workload)),
            ],
        };
        {
            let mut connected = self
                .0
                .connected
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            connected.insert(cluster.clone(), connection);
        }
        let view: Arc<dyn View> = Arc::clone(&workload) as _;
        let readable = &self.0.readable;
        readable.connected(&cluster.namespace, &cluster.name, view);
        self.wake(cluster);
        Ok(workload)
    }

    /// Ends the connection to a cluster that is gone.
    pub fn forget(&self, cluster: &Key) {
        let mut connected = self
            .0
            .connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connected.remove(cluster);
        self.0.readable.forget(&cluster.namespace, &cluster.name);
    }

    /// Turns changes of Nodes and Pods into Machines to look at.
    fn feed(&self, cluster: &Key, workload: &Arc<Workload>) -> JoinHandle<()> {
        let inner = Arc::clone(&self.0);
        let key = cluster.clone();
        let (mut nodes, mut pods) = (workload.nodes.subscribe(), workload.pods.subscribe());
        let mut attachments = workload.attachments.subscribe();
        let mut budgets = workload.budgets.subscribe();
        tokio::spawn(async move {
            let of_node = |name: &str| {
                let value = in_cluster(&key.namespace, &key.name, name);
                inner
                    .caches
                    .machines
                    .by(inner.caches.machines_by_node, &value)
            };
            loop {
                tokio::select! {
                    Some(change) = nodes.recv() => {
                        // A pool's list of its Nodes has their uids.
                        let uid = |node: &Option<Arc<Node>>| node.as_ref().and_then(|node| node.uid());
                        let anew = uid(&change.old) != uid(&change.new);
                        for node in change.either() {
                            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
                            let value = in_cluster(&key.namespace, &key.name, &identity(&id));
                            let bound = inner.caches.machines.by(inner.caches.machines_by_provider_id, &value);
                            for machine in bound.iter().chain(&of_node(&node.name_any())) {
                                inner.told.machines.add(Key::of(&**machine));
                                inner.told.health.add(health::Work::Machine(Key::of(&**machine)));
                                if let Some(pool) = inner.caches.pool_key_of(machine).filter(|_| anew) {
                                    inner.told.pools.add(pool);
                                }
                            }
                        }
                    }
                    Some(change) = budgets.recv() => {
                        // Budgets matter to Machines of which Pods were refused.
                        let namespace = change.either().last().and_then(|budget| budget.namespace());
                        let held = namespace.map(|namespace| inner.told.refusals.in_namespace(&namespace));
                        let ours = |machine: &Key| {
                            let machine = inner.caches.machines.get(machine);
                            machine.is_some_and(|m| m.spec.cluster_name == key.name)
                        };
                        for machine in held.into_iter().flatten().filter(ours) {
                            inner.told.machines.add(machine);
                        }
                    }
                    Some(change) = pods.recv() => {
                        // Pods matter to Machines that are being drained.
                        let node = change.either().last().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
                        for machine in node.iter().flat_map(|node| of_node(node)).filter(|m| m.is_deleting()) {
                            inner.told.machines.add(Key::of(&*machine));
                        }
                    }
                    Some(change) = attachments.recv() => {
                        let node = change.either().last().map(|attachment| attachment.spec.node_name.clone());
                        for machine in node.iter().flat_map(|node| of_node(node)).filter(|m| m.is_deleting()) {
                            inner.told.machines.add(Key::of(&*machine));
                        }
                    }
                    else => return,
                }
            }
        })
    }

    /// Asks the cluster again and again whether it answers, and tells whoever that concerns when that changes.
    fn probe(&self, cluster: &Key, workload: &Arc<Workload>) -> JoinHandle<()> {
        let (workloads, cluster, workload) = (self.clone(), cluster.clone(), Arc::clone(workload));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(reach::PERIOD).await;
                let answers = reach::answers(&workload.client).await;
                let now = workloads.0.clock.now();
                match workload.reachability.note(answers, now) {
                    reach::News::None => {}
                    reach::News::Lost => {
                        tracing::warn!(%cluster, "the API of the workload cluster does not answer");
                        workloads.wake(&cluster);
                    }
                    reach::News::Back => {
                        tracing::info!(%cluster, "the API of the workload cluster answers again");
                        // Watches that were under way may hang for minutes yet: it is connected to anew, with new caches.
                        workloads.forget(&cluster);
                        workloads.0.told.clusters.add(cluster);
                        return;
                    }
                }
            }
        })
    }

    /// Everything of a cluster is looked at: its connection came or went.
    fn wake(&self, cluster: &Key) {
        self.0.told.clusters.add(cluster.clone());
        let value = in_namespace(&cluster.namespace, &cluster.name);
        for pool in self
            .0
            .caches
            .pools
            .by(self.0.caches.pools_by_cluster, &value)
        {
            self.0.told.pools.add(Key::of(&*pool));
        }
        for machine in self
            .0
            .caches
            .machines
            .by(self.0.caches.machines_by_cluster, &value)
        {
            self.0.told.machines.add(Key::of(&*machine));
            let work = health::Work::Machine(Key::of(&*machine));
            self.0.told.health.add(work);
        }
    }
}

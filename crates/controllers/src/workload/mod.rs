//! Workload clusters: a connection to each from its kubeconfig Secret, with caches of what drains and Node binding need.
//!
//! Each cluster has caches of its own; one that does not answer costs the others nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::config::Kubeconfig;
use kube::{Api, Client, ResourceExt};
use muster_api::names;
use muster_api::provider_id::{identity, likeness};
use muster_caches::{Management, in_cluster, in_namespace};
use muster_informers::{Index, Informer, Key, Queue};
use muster_provider::workload::Connector;

/// How long the first lists of a cluster may take before it counts as not answering.
const FIRST_LISTS: Duration = Duration::from_secs(10);

/// The one value of the index of Nodes that take new Pods.
pub const OPEN: &str = "open";

/// How `status.volumesAttached` of a Node names a volume of a CSI driver. Source: Kubernetes.
pub fn csi(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// A connected workload cluster.
pub struct Workload {
    /// A client of its API.
    pub client: Client,
    /// Nodes.
    pub nodes: Informer<Node>,
    /// Nodes by their provider ID's [`identity`].
    pub nodes_by_provider_id: Index,
    /// Nodes by their provider ID's [`likeness`].
    pub nodes_by_likeness: Index,
    /// Nodes that are ready and take new Pods, under [`OPEN`].
    pub nodes_open: Index,
    /// Pods.
    pub pods: Informer<Pod>,
    /// Pods by their Node's name.
    pub pods_by_node: Index,
    /// Pods that are neither ready nor finished, by namespace.
    pub pods_unready: Index,
    /// DaemonSets.
    pub daemon_sets: Informer<DaemonSet>,
    /// PersistentVolumes.
    pub volumes: Informer<PersistentVolume>,
    /// PersistentVolumes of CSI drivers by [`csi`].
    pub volumes_by_handle: Index,
    /// Namespaces.
    pub namespaces: Informer<Namespace>,
    /// Budgets.
    pub budgets: Informer<PodDisruptionBudget>,
    /// Budgets by namespace.
    pub budgets_by_namespace: Index,
    /// VolumeAttachments.
    pub attachments: Informer<VolumeAttachment>,
    /// VolumeAttachments by their Node's name.
    pub attachments_by_node: Index,
    kubeconfig: Vec<u8>,
}

/// All workload clusters; cheap to clone.
#[derive(Clone)]
pub struct Workloads(Arc<Inner>);

struct Inner {
    connector: Arc<dyn Connector>,
    caches: Management,
    clusters: Queue<Key>,
    pools: Queue<Key>,
    machines: Queue<Key>,
    connected: Mutex<HashMap<Key, Arc<Workload>>>,
}

impl Workloads {
    /// No connections yet. Changes in workload clusters put Clusters, pools and Machines on the queues.
    pub fn new(
        connector: Arc<dyn Connector>,
        caches: Management,
        clusters: Queue<Key>,
        pools: Queue<Key>,
        machines: Queue<Key>,
    ) -> Self {
        Self(Arc::new(Inner {
            connector,
            caches,
            clusters,
            pools,
            machines,
            connected: Mutex::default(),
        }))
    }

    /// The connection to a cluster, if there is one and its caches are complete.
    pub fn get(&self, cluster: &Key) -> Option<Arc<Workload>> {
        let connected = self
            .0
            .connected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        connected.get(cluster).cloned()
    }

    /// Connects to a cluster, unless it is with the present kubeconfig.
    ///
    /// # Errors
    /// Why it cannot be reached, in a sentence.
    pub async fn connect(&self, cluster: &Key) -> Result<Arc<Workload>, String> {
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
        if let Some(workload) = self.get(cluster)
            && workload.kubeconfig == bytes
        {
            return Ok(workload);
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
        let workload = Arc::new(Workload::start(client, bytes));
        let ready = tokio::time::timeout(FIRST_LISTS, async {
            workload.nodes.synced().await.is_ok()
                && workload.pods.synced().await.is_ok()
                && workload.namespaces.synced().await.is_ok()
                && workload.budgets.synced().await.is_ok()
                && workload.attachments.synced().await.is_ok()
                && workload.daemon_sets.synced().await.is_ok()
                && workload.volumes.synced().await.is_ok()
        })
        .await;
        if !matches!(ready, Ok(true)) {
            return Err(format!("the API of Cluster {cluster} does not answer"));
        }
        {
            let mut connected = self
                .0
                .connected
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            connected.insert(cluster.clone(), Arc::clone(&workload));
        }
        self.feed(cluster, &workload);
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
    }

    /// Turns changes of Nodes and Pods into Machines to look at.
    fn feed(&self, cluster: &Key, workload: &Arc<Workload>) {
        let inner = Arc::clone(&self.0);
        let key = cluster.clone();
        let (mut nodes, mut pods) = (workload.nodes.subscribe(), workload.pods.subscribe());
        let mut attachments = workload.attachments.subscribe();
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
                        for node in change.either() {
                            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
                            let value = in_cluster(&key.namespace, &key.name, &identity(&id));
                            let bound = inner.caches.machines.by(inner.caches.machines_by_provider_id, &value);
                            for machine in bound.iter().chain(&of_node(&node.name_any())) {
                                inner.machines.add(Key::of(&**machine));
                            }
                        }
                    }
                    Some(change) = pods.recv() => {
                        // Pods matter to Machines that are being drained.
                        let node = change.either().last().and_then(|pod| pod.spec.as_ref()?.node_name.clone());
                        for machine in node.iter().flat_map(|node| of_node(node)).filter(|m| m.is_deleting()) {
                            inner.machines.add(Key::of(&*machine));
                        }
                    }
                    Some(change) = attachments.recv() => {
                        let node = change.either().last().map(|attachment| attachment.spec.node_name.clone());
                        for machine in node.iter().flat_map(|node| of_node(node)).filter(|m| m.is_deleting()) {
                            inner.machines.add(Key::of(&*machine));
                        }
                    }
                    else => return,
                }
            }
        });
        // What waited for the connection goes on.
        self.0.clusters.add(cluster.clone());
        let value = in_namespace(&cluster.namespace, &cluster.name);
        for pool in self
            .0
            .caches
            .pools
            .by(self.0.caches.pools_by_cluster, &value)
        {
            self.0.pools.add(Key::of(&*pool));
        }
        for machine in self
            .0
            .caches
            .machines
            .by(self.0.caches.machines_by_cluster, &value)
        {
            self.0.machines.add(Key::of(&*machine));
        }
    }
}

impl Workload {
    fn start(client: Client, kubeconfig: Vec<u8>) -> Self {
        let mut nodes = Informer::builder(Api::<Node>::all(client.clone()));
        let nodes_by_provider_id = nodes.index(|node| {
            node.spec
                .iter()
                .filter_map(|spec| spec.provider_id.as_deref().map(identity))
                .collect()
        });
        let nodes_by_likeness = nodes.index(|node| {
            node.spec
                .iter()
                .filter_map(|spec| spec.provider_id.as_deref().map(likeness))
                .collect()
        });
        let nodes_open =
            nodes.index(|node| is_open(node).then(|| OPEN.to_owned()).into_iter().collect());
        let mut pods = Informer::builder(Api::<Pod>::all(client.clone()));
        let pods_by_node = pods.index(|pod| {
            pod.spec
                .iter()
                .filter_map(|spec| spec.node_name.clone())
                .collect()
        });
        let pods_unready = pods.index(|pod| {
            let waits = !is_ready(pod) && !is_finished(pod);
            pod.namespace().filter(|_| waits).into_iter().collect()
        });
        let mut volumes = Informer::builder(Api::<PersistentVolume>::all(client.clone()));
        let volumes_by_handle = volumes.index(|volume| {
            let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
            source
                .map(|source| csi(&source.driver, &source.volume_handle))
                .into_iter()
                .collect()
        });
        let mut budgets = Informer::builder(Api::<PodDisruptionBudget>::all(client.clone()));
        let budgets_by_namespace = budgets.index(|budget| budget.namespace().into_iter().collect());
        let mut attachments = Informer::builder(Api::<VolumeAttachment>::all(client.clone()));
        let attachments_by_node =
            attachments.index(|attachment| vec![attachment.spec.node_name.clone()]);
        Self {
            nodes: nodes.start(),
            nodes_by_provider_id,
            nodes_by_likeness,
            nodes_open,
            pods: pods.start(),
            pods_by_node,
            pods_unready,
            daemon_sets: Informer::builder(Api::<DaemonSet>::all(client.clone())).start(),
            volumes: volumes.start(),
            volumes_by_handle,
            namespaces: Informer::builder(Api::<Namespace>::all(client.clone())).start(),
            budgets: budgets.start(),
            budgets_by_namespace,
            attachments: attachments.start(),
            attachments_by_node,
            client,
            kubeconfig,
        }
    }

    /// The Nodes of an instance; more than one is a fault.
    pub fn nodes_of(&self, provider_id: &str) -> Vec<Arc<Node>> {
        self.nodes
            .by(self.nodes_by_provider_id, &identity(provider_id))
    }

    /// The provider IDs of Nodes that look like this one and are another, for a message that helps.
    pub fn alike(&self, provider_id: &str) -> Vec<String> {
        let nodes = self
            .nodes
            .by(self.nodes_by_likeness, &likeness(provider_id));
        nodes
            .iter()
            .filter_map(|node| node.spec.as_ref()?.provider_id.clone())
            .collect()
    }
}

/// Whether a Node is ready and takes new Pods.
fn is_open(node: &Node) -> bool {
    let closed = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let ready = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && !closed && node.metadata.deletion_timestamp.is_none()
}

fn is_ready(pod: &Pod) -> bool {
    pod.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether a Pod ran to its end.
pub fn is_finished(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

//! The caches of one workload cluster: what drains and Node binding need, with the indexes they look through.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::{Api, Client, ResourceExt};
use muster_api::provider_id::{identity, likeness};
use muster_informers::{Index, Informer};
use tokio::sync::Semaphore;

use super::reach::Reachability;

/// The one value of the index of Nodes that take new Pods.
pub const OPEN: &str = "open";

/// How `status.volumesAttached` of a Node names a volume of a CSI driver. Source: Kubernetes.
pub fn csi(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// How many passes talk to one cluster at once.
const LANE: usize = 16;

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
    /// Passes that talk to this cluster hold a place; what does not answer holds only these.
    pub lane: Semaphore,
    pub(super) reachability: Reachability,
    pub(super) kubeconfig: Vec<u8>,
}

impl Workload {
    pub(super) fn start(client: Client, kubeconfig: Vec<u8>) -> Self {
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
            lane: Semaphore::new(LANE),
            reachability: Reachability::default(),
            client,
            kubeconfig,
        }
    }

    /// Waits until every cache is complete.
    pub(super) async fn synced(&self) -> bool {
        self.nodes.synced().await.is_ok()
            && self.pods.synced().await.is_ok()
            && self.namespaces.synced().await.is_ok()
            && self.budgets.synced().await.is_ok()
            && self.attachments.synced().await.is_ok()
            && self.daemon_sets.synced().await.is_ok()
            && self.volumes.synced().await.is_ok()
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

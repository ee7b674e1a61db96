//! The caches of one workload cluster: what drains and Node binding need, with the indexes they look through.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::{Api, Client, ResourceExt};
use muster_api::provider_id::{identity, likeness};
use muster_informers::{Index, Informer, Key};
use muster_observe::View;
use muster_observe::drain::{is_finished, is_ready};
use muster_observe::volumes::{claim_of, handle_of};
use muster_plan::volumes::Claim;
use tokio::sync::Semaphore;

use super::reach::Reachability;

/// The one value of the index of Nodes that take new Pods.
pub const OPEN: &str = "open";

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
    /// PersistentVolumes of CSI drivers by [`handle_of`].
    pub volumes_by_handle: Index,
    /// PersistentVolumes by the claim that they are bound to, as `namespace/name`.
    pub volumes_by_claim: Index,
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
    /// Since when it has been looked at without interruption.
    pub watched_since: Timestamp,
    pub(super) reachability: Reachability,
    pub(super) kubeconfig: Vec<u8>,
}

impl Workload {
    pub(super) fn start(client: Client, kubeconfig: Vec<u8>, now: Timestamp) -> Self {
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
        let volumes_by_handle = volumes.index(|volume| handle_of(volume).into_iter().collect());
        let volumes_by_claim = volumes.index(|volume| {
            let claim = claim_of(volume);
            claim.iter().map(of_claim).collect()
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
            volumes_by_claim,
            namespaces: Informer::builder(Api::<Namespace>::all(client.clone())).start(),
            budgets: budgets.start(),
            budgets_by_namespace,
            attachments: attachments.start(),
            attachments_by_node,
            lane: Semaphore::new(LANE),
            watched_since: now,
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

/// Index value of a claim.
fn of_claim(claim: &Claim) -> String {
    format!("{}/{}", claim.namespace, claim.name)
}

impl View for Workload {
    fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.pods.by(self.pods_by_node, node)
    }

    fn daemon_set(&self, namespace: &str, name: &str) -> Option<Arc<DaemonSet>> {
        self.daemon_sets.get(&Key::new(namespace, name))
    }

    fn namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        self.namespaces.get(&Key::new("", name))
    }

    fn budgets_in(&self, namespace: &str) -> Vec<Arc<PodDisruptionBudget>> {
        self.budgets.by(self.budgets_by_namespace, namespace)
    }

    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>> {
        self.volumes.get(&Key::new("", name))
    }

    fn volume_of(&self, claim: &Claim) -> Option<Arc<PersistentVolume>> {
        let found = self.volumes.by(self.volumes_by_claim, &of_claim(claim));
        found.into_iter().next()
    }

    fn volume_by_handle(&self, handle: &str) -> Option<Arc<PersistentVolume>> {
        let found = self.volumes.by(self.volumes_by_handle, handle);
        found.into_iter().next()
    }

    fn attachments_on(&self, node: &str) -> Vec<Arc<VolumeAttachment>> {
        self.attachments.by(self.attachments_by_node, node)
    }

    fn is_current(&self) -> bool {
        self.reachability.lost().is_none()
    }
}

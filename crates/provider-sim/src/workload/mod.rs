//! Workload clusters: what runs in them besides the API.
//!
//! One `Workload` per logical cluster holds the caches and a queue of `Work`; events become keys, and each key is
//! handled in the file of its name. [`Agents`] are the machines' side: kubelets that register Nodes and answer.

mod agents;
mod attach;
mod budget;
mod daemon_set;
mod deployment;
mod kubelet;
mod replica_set;
mod rollout;
mod scheduler;
mod stateful_set;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use muster_clock::Clock;
use muster_informers::{Change, Index, Informer, Key, Options, Queue};
use muster_observe::volumes::claims_of;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use agents::Agents;
pub(crate) use agents::{ARCHITECTURE, OPERATING_SYSTEM};

/// Something in a workload cluster to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Work {
    Deployment(Key),
    ReplicaSet(Key),
    DaemonSet(Key),
    StatefulSet(Key),
    Budget(Key),
    Pod(Key),
    /// The volumes of a Node.
    Attach(String),
    Schedule,
}

/// Why a piece of work failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WorkError(#[from] kube::Error);

/// The caches and controllers of one workload cluster.
pub(crate) struct Workload {
    client: Client,
    clock: Clock,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    pods_by_node: Index,
    pods_by_owner: Index,
    pods_by_namespace: Index,
    pods_unbound: Index,
    deployments: Informer<Deployment>,
    replica_sets: Informer<ReplicaSet>,
    replica_sets_by_owner: Index,
    daemon_sets: Informer<DaemonSet>,
    stateful_sets: Informer<StatefulSet>,
    budgets: Informer<PodDisruptionBudget>,
    budgets_by_namespace: Index,
    volumes: Informer<PersistentVolume>,
    volumes_by_claim: Index,
    attachments: Informer<VolumeAttachment>,
    attachments_by_node: Index,
    attachments_by_volume: Index,
    queue: Queue<Work>,
    /// Nodes whose kubelet answers.
    alive: Mutex<HashMap<String, bool>>,
    /// Where Pods were bound to, by UID, until the cache shows it.
    assumed: Mutex<HashMap<String, String>>,
    /// When something with a Pod began: to start, or to stop.
    began: Mutex<HashMap<String, Instant>>,
}

/// The UID of an object's controlling owner.
fn controller_uid(object: &impl Resource) -> Vec<String> {
    object
        .owner_references()
        .iter()
        .filter(|owner| owner.controller == Some(true))
        .map(|owner| owner.uid.clone())
        .collect()
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec
        .as_ref()?
        .node_name
        .as_deref()
        .filter(|name| !name.is_empty())
}

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// How many Pods a Deployment wants.
fn wanted_of_deployment(deployment: &Deployment) -> i32 {
    deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

/// How many Pods a ReplicaSet wants.
fn wanted_of_set(set: &ReplicaSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

fn is_deleting(object: &impl Resource) -> bool {
    object.meta().deletion_timestamp.is_some()
}

fn is_ready(pod: &Pod) -> bool {
    !is_deleting(pod)
        && pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_node_ready(node: &Node) -> bool {
    node.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

impl Workload {
    /// Starts the controllers of a cluster.
    pub(crate) fn start(client: Client, clock: Clock, stop: CancellationToken) -> Arc<Self> {
        let mut pods = Informer::builder(Api::<Pod>::all(client.clone()));
        let pods_by_node = pods.index(|pod| node_of(pod).map(str::to_owned).into_iter().collect());
        let pods_by_owner = pods.index(controller_uid);
        let pods_by_namespace = pods.index(|pod| pod.namespace().into_iter().collect());
        let pods_unbound = pods.index(|pod| {
            let waits = node_of(pod).is_none() && !is_deleting(pod) && !is_finished(pod);
            waits.then(String::new).into_iter().collect()
        });
        let mut replica_sets = Informer::builder(Api::<ReplicaSet>::all(client.clone()));
        let replica_sets_by_owner = replica_sets.index(controller_uid);
        let mut budgets = Informer::builder(Api::<PodDisruptionBudget>::all(client.clone()));
        let budgets_by_namespace = budgets.index(|budget| budget.namespace().into_iter().collect());
        let mut volumes = Informer::builder(Api::<PersistentVolume>::all(client.clone()));
        let volumes_by_claim = volumes.index(attach::claim_index);
        let mut attachments = Informer::builder(Api::<VolumeAttachment>::all(client.clone()));
        let attachments_by_node = attachments
            .index(|attachment: &VolumeAttachment| vec![attachment.spec.node_name.clone()]);
        let attachments_by_volume = attachments.index(attach::volume_index);
        let workload = Arc::new(Self {
            clock,
            nodes: Informer::builder(Api::<Node>::all(client.clone())).start(),
            pods: pods.start(),
            pods_by_node,
            pods_by_owner,
            pods_by_namespace,
            pods_unbound,
            deployments: Informer::builder(Api::<Deployment>::all(client.clone())).start(),
            replica_sets: replica_sets.start(),
            replica_sets_by_owner,
            daemon_sets: Informer::builder(Api::<DaemonSet>::all(client.clone())).start(),
            stateful_sets: Informer::builder(Api::<StatefulSet>::all(client.clone())).start(),
            budgets: budgets.start(),
            budgets_by_namespace,
            volumes: volumes.start(),
            volumes_by_claim,
            attachments: attachments.start(),
            attachments_by_node,
            attachments_by_volume,
            queue: Queue::default(),
            alive: Mutex::default(),
            assumed: Mutex::default(),
            began: Mutex::default(),
            client,
        });
        tokio::spawn(Arc::clone(&workload).run(stop));
        workload
    }

    async fn run(self: Arc<Self>, stop: CancellationToken) {
        let ready = async {
            self.nodes.synced().await.is_ok()
                && self.pods.synced().await.is_ok()
                && self.deployments.synced().await.is_ok()
                && self.replica_sets.synced().await.is_ok()
                && self.daemon_sets.synced().await.is_ok()
                && self.stateful_sets.synced().await.is_ok()
                && self.budgets.synced().await.is_ok()
                && self.volumes.synced().await.is_ok()
                && self.attachments.synced().await.is_ok()
        };
        tokio::select! {
            ready = ready => if !ready { return },
            () = stop.cancelled() => return,
        }
        let feed = tokio::spawn(Arc::clone(&self).feed());
        let ticks = tokio::spawn(Arc::clone(&self).heartbeats());
        let options = Options {
            concurrency: 32,
            ..Options::new("sim-workload")
        };
        let worker = Arc::clone(&self);
        self.queue
            .run(options, stop, move |work| {
                let workload = Arc::clone(&worker);
                async move {
                    match work {
                        Work::Deployment(key) => deployment::pass(&workload, &key).await,
                        Work::ReplicaSet(key) => replica_set::pass(&workload, &key).await,
                        Work::DaemonSet(key) => daemon_set::pass(&workload, &key).await,
                        Work::StatefulSet(key) => stateful_set::pass(&workload, &key).await,
                        Work::Budget(key) => budget::pass(&workload, &key).await,
                        Work::Pod(key) => kubelet::pass(&workload, &key).await,
                        Work::Attach(node) => attach::pass(&workload, &node).await,
                        Work::Schedule => scheduler::pass(&workload).await,
                    }
                }
            })
            .await;
        feed.abort();
        ticks.abort();
    }

    /// Turns changes into work.
    async fn feed(self: Arc<Self>) {
        let mut pods = self.pods.subscribe();
        let mut nodes = self.nodes.subscribe();
        let mut deployments = self.deployments.subscribe();
        let mut sets = self.replica_sets.subscribe();
        let mut daemons = self.daemon_sets.subscribe();
        let mut stateful = self.stateful_sets.subscribe();
        let mut budgets = self.budgets.subscribe();
        let mut volumes = self.volumes.subscribe();
        let mut attachments = self.attachments.subscribe();
        let q = &self.queue;
        loop {
            tokio::select! {
                Some(change) = pods.recv() => self.pod_changed(&change),
                Some(change) = nodes.recv() => self.node_changed(&change),
                Some(change) = deployments.recv() => keys(&change).for_each(|key| q.add(Work::Deployment(key))),
                Some(change) = sets.recv() => {
                    keys(&change).for_each(|key| q.add(Work::ReplicaSet(key)));
                    owners(&change, "Deployment").for_each(|key| q.add(Work::Deployment(key)));
                }
                Some(change) = daemons.recv() => keys(&change).for_each(|key| q.add(Work::DaemonSet(key))),
                Some(change) = stateful.recv() => keys(&change).for_each(|key| q.add(Work::StatefulSet(key))),
                Some(change) = budgets.recv() => keys(&change).for_each(|key| q.add(Work::Budget(key))),
                Some(change) = volumes.recv() => self.volume_changed(&change),
                Some(change) = attachments.recv() => self.attachment_changed(&change),
                else => return,
            }
        }
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        let q = &self.queue;
        keys(change).for_each(|key| q.add(Work::Pod(key)));
        owners(change, "ReplicaSet").for_each(|key| q.add(Work::ReplicaSet(key)));
        owners(change, "DaemonSet").for_each(|key| q.add(Work::DaemonSet(key)));
        owners(change, "StatefulSet").for_each(|key| q.add(Work::StatefulSet(key)));
        // A Pod that waits for a place, or one that leaves a place free.
        let frees = change.new.as_ref().is_none_or(|pod| is_finished(pod));
        let waits = change
            .new
            .as_ref()
            .is_some_and(|pod| node_of(pod).is_none() && !is_deleting(&**pod));
        if waits || frees && self.pods.count(self.pods_unbound, "") > 0 {
            q.add(Work::Schedule);
        }
        if let Some(pod) = change.either().last() {
            let namespace = pod.namespace().unwrap_or_default();
            for budget in self.budgets.by(self.budgets_by_namespace, &namespace) {
                q.add(Work::Budget(Key::of(&*budget)));
            }
        }
        // Only Pods with claims have to do with volumes.
        for pod in change.either().filter(|pod| !claims_of(pod).is_empty()) {
            if let Some(node) = node_of(pod) {
                q.add(Work::Attach(node.to_owned()));
            }
        }
        match &change.new {
            Some(pod) if node_of(pod).is_some() => self.assume_no_more(pod),
            Some(_) => {}
            None => change.old.iter().for_each(|pod| self.forget(pod)),
        }
    }

    /// A volume came, or was bound: the Pods of its namespace may have waited for it.
    fn volume_changed(&self, change: &Change<PersistentVolume>) {
        let claim = |volume: &PersistentVolume| volume.spec.as_ref()?.claim_ref.clone();
        for claim in change.either().filter_map(|volume| claim(volume)) {
            let namespace = claim.namespace.unwrap_or_default();
            for pod in self.pods.by(self.pods_by_namespace, &namespace) {
                if let Some(node) = node_of(&pod) {
                    self.queue.add(Work::Attach(node.to_owned()));
                }
            }
        }
    }

    /// A volume was attached, so that Pods can start, or is free for another Node.
    fn attachment_changed(&self, change: &Change<VolumeAttachment>) {
        let Some(attachment) = change.either().last() else {
            return;
        };
        self.look_at_pods_of(&attachment.spec.node_name);
        self.queue
            .add(Work::Attach(attachment.spec.node_name.clone()));
        let volume = attachment.spec.source.persistent_volume_name.as_ref();
        let freed = volume.filter(|_| change.new.is_none());
        let found = freed.and_then(|name| self.volumes.get(&Key::new("", name)));
        if let Some(volume) = found {
            let new = Some(volume);
            self.volume_changed(&Change { old: None, new });
        }
    }

    fn node_changed(&self, change: &Change<Node>) {
        if self.pods.count(self.pods_unbound, "") > 0 {
            self.queue.add(Work::Schedule);
        }
        for set in self.daemon_sets.walk_all() {
            self.queue.add(Work::DaemonSet(Key::of(&*set)));
        }
        let back = matches!((&change.old, &change.new), (Some(old), Some(new)) if is_node_ready(old) != is_node_ready(new));
        if let Some(node) = change.either().last()
            && (change.new.is_none() || back)
        {
            self.queue.add(Work::Attach(node.name_any()));
            self.look_at_pods_of(&node.name_any());
        }
    }

    fn look_at_pods_of(&self, node: &str) {
        for pod in self.pods.by(self.pods_by_node, node) {
            self.queue.add(Work::Pod(Key::of(&*pod)));
        }
    }

    fn is_alive(&self, node: &str) -> bool {
        lock(&self.alive).get(node).copied().unwrap_or(false)
    }

    fn assume(&self, pod: &Pod, node: String) {
        if let Some(uid) = pod.uid() {
            lock(&self.assumed).insert(uid, node);
        }
    }

    fn assume_no_more(&self, pod: &Pod) {
        if let Some(uid) = &pod.metadata.uid {
            lock(&self.assumed).remove(uid);
        }
    }

    fn assumed_place(&self, pod: &Pod) -> Option<String> {
        lock(&self.assumed).get(pod.metadata.uid.as_ref()?).cloned()
    }

    /// Forgets what was remembered of a Pod that is gone.
    fn forget(&self, pod: &Pod) {
        self.assume_no_more(pod);
        if let Some(uid) = &pod.metadata.uid {
            let mut began = lock(&self.began);
            for what in ["start", "run", "stop"] {
                began.remove(&format!("{what}/{uid}"));
            }
        }
    }

    /// How long ago something with this Pod was first waited for.
    fn since(&self, uid: &str) -> Duration {
        lock(&self.began)
            .entry(uid.to_owned())
            .or_insert_with(Instant::now)
            .elapsed()
    }

    fn is_over(&self, uid: &str) {
        lock(&self.began).remove(uid);
    }
}

/// How many writes are under way at once for one piece of work.
const PARALLEL: usize = 16;

/// Carries out writes side by side, so many at a time; the first failure is told once all are done.
async fn together(writes: Vec<BoxFuture<'_, Result<(), WorkError>>>) -> Result<(), WorkError> {
    let done: Vec<Result<(), WorkError>> = futures::stream::iter(writes)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    done.into_iter().collect()
}

// Nothing under these locks can panic half-way through an update.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keys<K: Resource>(change: &Change<K>) -> impl Iterator<Item = Key> + use<K> {
    change
        .either()
        .last()
        .map(|object| Key::of(&**object))
        .into_iter()
}

fn owners<K: Resource>(change: &Change<K>, kind: &str) -> impl Iterator<Item = Key> {
    let object = change.either().last();
    let owner = object.and_then(|object| {
        object
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true) && owner.kind == kind)
            .map(|owner| {
                Key::new(
                    object.meta().namespace.clone().unwrap_or_default(),
                    &owner.name,
                )
            })
    });
    owner.into_iter()
}

/// Deletes this very Pod, as whoever owns it does.
async fn delete(workload: &Workload, pod: &Pod) -> Result<(), WorkError> {
    let api: Api<Pod> = Api::namespaced(
        workload.client.clone(),
        &pod.namespace().unwrap_or_default(),
    );
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(&pod.name_any(), &params).await {
        Ok(either::Either::Left(pod)) => workload.pods.absorb(pod),
        Ok(either::Either::Right(_)) => {}
        Err(error) if moved_on(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// A short hash of a template, the same whenever it is computed.
fn hash(template: &serde_json::Value) -> String {
    let text = template.to_string();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{:010x}", hash & 0xff_ffff_ffff)
}

/// Whether a failed write only says that the object moved on meanwhile; the cache brings what it is now.
fn moved_on(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found() || status.is_conflict() || status.is_already_exists())
}

//! The machines' side: each running instance has a kubelet that registers its Node, keeps its Lease and answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use muster_apiserver::Host;
use muster_clock::Clock;
use muster_informers::Key;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Workload, is_node_ready};
use crate::cloud::types::CloudInstance;

/// How often a kubelet renews its Lease.
const RENEW: Duration = Duration::from_secs(20);
/// After how long without a renewal a Node counts as unreachable; as Kubernetes' node monitor has it.
const GRACE: Duration = Duration::from_secs(50);
/// How often the node monitor looks.
const TICK: Duration = Duration::from_secs(10);
/// Taint of a Node whose kubelet is not heard of any more.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// How many Leases are renewed at once.
const PARALLEL: usize = 16;

/// Architecture that every simulated Node reports.
pub(crate) const ARCHITECTURE: &str = "amd64";
/// Operating system that every simulated Node reports.
pub(crate) const OPERATING_SYSTEM: &str = "linux";

/// The agents of all instances, by workload cluster; cheap to clone.
#[derive(Clone)]
pub struct Agents(Arc<Inner>);

struct Inner {
    host: Host,
    clock: Clock,
    stop: CancellationToken,
    clusters: Mutex<HashMap<String, Running>>,
}

struct Running {
    workload: Arc<Workload>,
    stop: CancellationToken,
}

impl Agents {
    /// No agents yet.
    pub fn new(host: Host, clock: Clock, stop: CancellationToken) -> Self {
        Self(Arc::new(Inner {
            host,
            clock,
            stop,
            clusters: Mutex::default(),
        }))
    }

    /// Starts the controllers of a workload cluster, unless they run.
    pub fn ensure_cluster(&self, logical: &str) {
        let _ = self.workload(logical);
    }

    fn workload(&self, logical: &str) -> Option<Arc<Workload>> {
        let mut clusters = self
            .0
            .clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = clusters.get(logical) {
            return Some(Arc::clone(&running.workload));
        }
        let client = self.0.host.existing(logical)?.client();
        let stop = self.0.stop.child_token();
        let workload = Workload::start(client, self.0.clock.clone(), stop.clone());
        clusters.insert(
            logical.to_owned(),
            Running {
                workload: Arc::clone(&workload),
                stop,
            },
        );
        Some(workload)
    }

    /// Ends the controllers of a workload cluster that is going.
    pub fn stop(&self, logical: &str) {
        let mut clusters = self
            .0
            .clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = clusters.remove(logical) {
            running.stop.cancel();
        }
    }

    /// Registers the Node of an instance that has booted. A cluster that is gone has no Nodes.
    pub(crate) async fn join(&self, instance: &CloudInstance) -> Result<(), kube::Error> {
        match self.workload(&instance.spec.cluster) {
            Some(workload) => workload.register(instance).await,
            None => Ok(()),
        }
    }

    /// Takes over whether an instance's kubelet answers.
    pub(crate) fn set_alive(&self, instance: &CloudInstance) {
        if let Some(workload) = self.workload(&instance.spec.cluster) {
            workload.set_alive(&instance.name_any(), instance.is_alive());
        }
    }

    /// Forgets an instance that is gone.
    pub(crate) fn forget(&self, instance: &CloudInstance) {
        let clusters = self
            .0
            .clusters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = clusters.get(&instance.spec.cluster) {
            let mut alive = running
                .workload
                .alive
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            alive.remove(&instance.name_any());
        }
    }

    /// Makes a namespace in the cloud's API.
    pub(crate) async fn ensure_namespace(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<(), kube::Error> {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))
            .expect("a Namespace of this form deserializes");
        match Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn condition(type_: &str, status: &str, reason: &str, now: Timestamp) -> Value {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    json!({"type": type_, "status": status, "reason": reason, "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now})
}

/// The status of a Node whose kubelet answers.
fn healthy(instance: &CloudInstance, now: Timestamp) -> Value {
    let template = &instance.spec.template;
    let capacity = template.machine.node_capacity();
    let version = template
        .version
        .clone()
        .unwrap_or_else(|| "v1.37.2".to_owned());
    let id = instance.name_any();
    json!({
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": crate::cloud::provider::addresses(&id),
        "nodeInfo": {
            "architecture": ARCHITECTURE, "operatingSystem": OPERATING_SYSTEM, "osImage": "Simulated Linux",
            "kernelVersion": "6.12.0-sim", "containerRuntimeVersion": "sim://1.0", "kubeletVersion": version,
            "kubeProxyVersion": "", "machineID": id, "systemUUID": id, "bootID": id,
        },
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", now),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", now),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", now),
            condition("Ready", "True", "KubeletReady", now),
        ],
    })
}

impl Workload {
    async fn register(&self, instance: &CloudInstance) -> Result<(), kube::Error> {
        let id = instance.name_any();
        let mut labels = json!({
            "kubernetes.io/hostname": id,
            "kubernetes.io/os": OPERATING_SYSTEM,
            "kubernetes.io/arch": ARCHITECTURE,
            "topology.kubernetes.io/zone": instance.spec.zone,
            "node.kubernetes.io/instance-type": "sim",
        });
        for (name, value) in &instance.spec.template.machine.node_labels {
            labels[name] = value.as_str().into();
        }
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": id, "labels": labels},
            "spec": {"providerID": instance.provider_id(), "taints": instance.spec.template.machine.taints},
        }))
        .expect("a Node of this form deserializes");
        let nodes: Api<Node> = Api::all(self.client.clone());
        match nodes.create(&PostParams::default(), &node).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error),
        }
        let status = json!({"status": healthy(instance, self.clock.now())});
        let node = nodes
            .patch_status(&id, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        self.nodes.absorb(node);
        self.renew(&id).await
    }

    fn set_alive(&self, node: &str, alive: bool) {
        let before = {
            let mut map = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
            map.insert(node.to_owned(), alive)
        };
        if before != Some(alive) {
            self.look_at_pods_of(node);
        }
    }

    /// Renews the Leases of Nodes that answer, and marks those that have not for too long.
    pub(super) async fn heartbeats(self: Arc<Self>) {
        let mut last: HashMap<String, Instant> = HashMap::new();
        let mut ticks = tokio::time::interval(TICK);
        loop {
            ticks.tick().await;
            let nodes: HashMap<String, bool> = super::lock(&self.alive).clone();
            last.retain(|node, _| nodes.contains_key(node));
            let now = Instant::now();
            let mut due = Vec::new();
            for (node, alive) in nodes {
                let renewed = *last.entry(node.clone()).or_insert(now);
                let silent = now.duration_since(renewed);
                if alive && (silent >= RENEW || renewed == now) {
                    last.insert(node.clone(), now);
                    due.push(self.answers(node).boxed());
                } else if !alive && silent >= GRACE {
                    due.push(self.is_silent(node).boxed());
                }
            }
            futures::stream::iter(due)
                .buffer_unordered(PARALLEL)
                .collect::<Vec<()>>()
                .await;
        }
    }

    async fn answers(&self, node: String) {
        if let Err(error) = self.answer(&node).await {
            tracing::debug!(node, %error, "a kubelet could not report");
        }
    }

    async fn is_silent(&self, node: String) {
        if let Err(error) = self.mark_unreachable(&node).await {
            tracing::debug!(node, %error, "the Node could not be marked");
        }
    }

    async fn answer(&self, node: &str) -> Result<(), kube::Error> {
        let Some(current) = self.nodes.get(&Key::new("", node)) else {
            return Ok(());
        };
        self.mark(&current, "True", "KubeletReady", false).await?;
        self.renew(node).await
    }

    async fn renew(&self, node: &str) -> Result<(), kube::Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": node},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": GRACE.as_secs(),
                "renewTime": format!("{:.6}", self.clock.now())},
        });
        let params = PatchParams::apply("kubelet").force();
        leases.patch(node, &params, &Patch::Apply(lease)).await?;
        Ok(())
    }

    async fn mark_unreachable(&self, node: &str) -> Result<(), kube::Error> {
        let Some(current) = self.nodes.get(&Key::new("", node)) else {
            return Ok(());
        };
        self.mark(&current, "Unknown", "NodeStatusUnknown", true)
            .await?;
        for pod in self.pods.by(self.pods_by_node, node) {
            super::kubelet::not_ready(self, &pod).await?;
        }
        Ok(())
    }

    /// Brings conditions and taint of a Node to what its kubelet's silence means; each is written only where it differs, so
    /// that a pass that ended between the two is made good by the next.
    async fn mark(
        &self,
        node: &Node,
        ready: &str,
        reason: &str,
        unreachable: bool,
    ) -> Result<(), kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let name = node.name_any();
        let now = Timestamp::from_second(self.clock.now().as_second()).unwrap_or_default();
        if is_node_ready(node) == unreachable {
            let conditions = marked(node, ready, reason, now);
            let status = json!({"status": {"conditions": conditions}});
            let patched = nodes
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
                .await?;
            self.nodes.absorb(patched);
        }
        let Some(node) = self.nodes.get(&Key::new("", &name)) else {
            return Ok(());
        };
        let mut taints = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.clone())
            .unwrap_or_default();
        if taints.iter().any(|taint| taint.key == UNREACHABLE) == unreachable {
            return Ok(());
        }
        if unreachable {
            taints.push(Taint {
                key: UNREACHABLE.to_owned(),
                effect: "NoSchedule".to_owned(),
                time_added: Some(Time(now)),
                value: None,
            });
        } else {
            taints.retain(|taint| taint.key != UNREACHABLE);
        }
        // Taints are one list to a merge: only onto the state that was read.
        let patch = json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {"taints": taints}});
        let patched = nodes
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        self.nodes.absorb(patched);
        Ok(())
    }
}

/// The Node's conditions when its kubelet answers again, or is not heard of any more and nothing is known.
fn marked(node: &Node, ready: &str, reason: &str, now: Timestamp) -> Vec<Value> {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .map(|condition| {
            let status = match (condition.type_.as_str(), ready) {
                ("Ready", _) | (_, "Unknown") => ready,
                _ => "False",
            };
            let mut value = json!(condition);
            if condition.status != status {
                value["status"] = status.into();
                value["lastTransitionTime"] = json!(now);
            }
            if condition.type_ == "Ready" || ready == "Unknown" {
                value["reason"] = reason.into();
            }
            value
        })
        .collect()
}

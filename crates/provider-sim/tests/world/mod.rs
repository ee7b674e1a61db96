//! A world in one process and in virtual time: management cluster, simulated cloud, one workload cluster with a pool.
//!
//! Nobody makes Machines here: what controllers do to the objects that the simulation reads is done by hand.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use muster_api::{Cluster, MachinePool, SimCluster, SimMachinePool};
use muster_apiserver::{Host, Persistence};
use muster_caches::Management;
use muster_clock::Clock;
use muster_provider_sim::cloud::{self, types::CloudInstance};
use muster_provider_sim::{Config, KubeconfigSource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// For how long, in virtual time, something is waited for.
const PATIENCE: Duration = Duration::from_secs(600);

struct Kubeconfigs;

impl KubeconfigSource for Kubeconfigs {
    fn endpoint(&self) -> (String, i32) {
        ("embedded".to_owned(), 443)
    }

    fn kubeconfig(&self, logical: &str, name: &str) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": format!("https://embedded/clusters/{logical}")}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": ""}}],
        })
        .to_string()
    }
}

pub struct World {
    pub host: Host,
    pub clock: Clock,
    pub management: Client,
    pub cloud: Client,
    pub workload: Client,
    stop: CancellationToken,
    running: TaskTracker,
}

impl World {
    /// Cluster `c` with zones a, b and c, and its pool `p` of so many, booted in two seconds and terminated in one.
    pub async fn with_pool(replicas: i32) -> Self {
        Self::with_template(
            replicas,
            json!({"bootDuration": "2s", "terminationDuration": "1s"}),
        )
        .await
    }

    pub async fn with_template(replicas: i32, template: Value) -> Self {
        let clock = Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap());
        let host = Host::open(Persistence::Memory, clock.clone())
            .await
            .unwrap();
        let management = host.cluster("management").await.unwrap().client();
        let definitions: Vec<_> = muster_api::crds::all()
            .into_iter()
            .map(|crd| serde_json::from_value(crd).unwrap())
            .collect();
        cloud::types::define(&management, &definitions)
            .await
            .unwrap();
        let (stop, running) = run(&host, &management, &clock).await;
        furnish(&management, replicas, template).await;
        let clusters: Api<SimCluster> = Api::default_namespaced(management.clone());
        until(&clusters, |clusters: &[SimCluster]| {
            clusters
                .iter()
                .any(|c| c.status.as_ref().is_some_and(|s| s.ready))
        })
        .await;
        let all: Api<Cluster> = Api::default_namespaced(management.clone());
        let status = json!({"status": {"initialization": {"infrastructureProvisioned": true},
            "failureDomains": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}});
        all.patch_status("c", &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
        let world = Self {
            workload: host.existing("default.c").unwrap().client(),
            cloud: host.existing(cloud::CLUSTER).unwrap().client(),
            host,
            clock,
            management,
            stop,
            running,
        };
        // Watches that began while the clusters were being made have settled.
        tokio::time::sleep(Duration::from_secs(10)).await;
        world
    }

    /// Waits until so many Nodes are ready; returns them.
    pub async fn ready_nodes(&self, count: usize) -> Vec<Node> {
        until(&self.nodes(), |nodes: &[Node]| {
            nodes.len() == count && nodes.iter().all(is_ready_node)
        })
        .await
    }

    /// Ends everything that runs and starts it again over the same stored objects.
    pub async fn restart(&mut self) {
        self.stop.cancel();
        self.running.wait().await;
        (self.stop, self.running) = run(&self.host, &self.management, &self.clock).await;
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.workload.clone())
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.workload.clone())
    }

    pub fn instances(&self) -> Api<CloudInstance> {
        Api::default_namespaced(self.cloud.clone())
    }

    pub async fn scale(&self, replicas: i32) {
        let pools: Api<MachinePool> = Api::default_namespaced(self.management.clone());
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        pools
            .patch("p", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub async fn make<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
        K::DynamicType: Default,
    {
        create(&self.workload, object).await
    }

    /// A Deployment `web`, each Pod asking for a processor, and a budget of one that may be down.
    pub async fn web(&self, replicas: i32) {
        let template = pod_template("web", json!({}));
        let _: k8s_openapi::api::apps::v1::Deployment = self
            .make(json!({"metadata": {"name": "web"}, "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}}))
            .await;
        let _: k8s_openapi::api::policy::v1::PodDisruptionBudget = self
            .make(json!({"metadata": {"name": "web"}, "spec": {
                "maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}}))
            .await;
        let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
            Api::default_namespaced(self.workload.clone());
        until(
            &budgets,
            |budgets: &[k8s_openapi::api::policy::v1::PodDisruptionBudget]| {
                budgets.iter().any(|b| {
                    b.status
                        .as_ref()
                        .is_some_and(|s| s.disruptions_allowed == Some(1))
                })
            },
        )
        .await;
    }
}

pub fn pod_template(app: &str, annotations: Value) -> Value {
    json!({"metadata": {"labels": {"app": app}, "annotations": annotations}, "spec": {"containers": [
        {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1"}}}]}})
}

async fn run(host: &Host, management: &Client, clock: &Clock) -> (CancellationToken, TaskTracker) {
    let stop = CancellationToken::new();
    let running = muster_provider_sim::start(Config {
        client: management.clone(),
        host: host.clone(),
        caches: Management::start(management, None),
        workloads: muster_observe::Clusters::default(),
        clock: clock.clone(),
        seed: 7,
        kubeconfigs: Arc::new(Kubeconfigs),
        stop: stop.clone(),
    })
    .await
    .unwrap();
    (stop, running)
}

async fn create<K>(client: &Client, object: Value) -> K
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize,
    K::DynamicType: Default,
{
    let api: Api<K> = Api::default_namespaced(client.clone());
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

async fn furnish(client: &Client, replicas: i32, template: Value) {
    let owner = |kind: &str, name: &str, uid: Option<String>| json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": uid, "controller": true}]);
    let infra = |kind: &str, name: &str| json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name});
    let cluster: Cluster = create(
        client,
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "c"}, "spec": {"infrastructureRef": infra("SimCluster", "c")}}),
    )
    .await;
    let _: SimCluster = create(
        client,
        json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "SimCluster",
        "metadata": {"name": "c", "ownerReferences": owner("Cluster", "c", cluster.uid())},
        "spec": {"failureDomains": ["a", "b", "c"]}}),
    )
    .await;
    let _: Secret = create(
        client,
        json!({"metadata": {"name": "p-bootstrap"}, "type": "cluster.x-k8s.io/secret",
        "stringData": {"value": "#"}}),
    )
    .await;
    let pool: MachinePool = create(client, json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool",
        "metadata": {"name": "p"},
        "spec": {"clusterName": "c", "replicas": replicas, "template": {"spec": {
            "clusterName": "c", "version": "v1.37.2", "bootstrap": {"dataSecretName": "p-bootstrap"},
            "infrastructureRef": infra("SimMachinePool", "p")}}}}))
    .await;
    let _: SimMachinePool = create(
        client,
        json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "SimMachinePool",
        "metadata": {"name": "p", "ownerReferences": owner("MachinePool", "p", pool.uid())},
        "spec": {"template": template}}),
    )
    .await;
}

/// Follows what `api` reaches until `holds` of it, in virtual time; returns it then.
pub async fn until<K>(api: &Api<K>, holds: impl Fn(&[K]) -> bool) -> Vec<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let events = watcher(api.clone(), watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events.boxed());
    let mut seen: std::collections::BTreeMap<String, K> = std::collections::BTreeMap::new();
    let mut complete = false;
    let waited = tokio::time::timeout(PATIENCE, async {
        while let Some(event) = events.try_next().await.unwrap() {
            match event {
                watcher::Event::Init => seen.clear(),
                watcher::Event::InitDone => complete = true,
                watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
                    seen.insert(object.name_any(), object);
                }
                watcher::Event::Delete(object) => {
                    seen.remove(&object.name_any());
                }
            }
            let all: Vec<K> = seen.values().cloned().collect();
            if complete && holds(&all) {
                return all;
            }
        }
        unreachable!("a watch does not end")
    })
    .await;
    match waited {
        Ok(all) => all,
        Err(_) => panic!("it did not come to that; there is: {:#?}", seen.values()),
    }
}

pub fn is_ready_node(node: &Node) -> bool {
    ready(
        node.status
            .as_ref()
            .and_then(|s| s.conditions.as_ref())
            .into_iter()
            .flatten()
            .map(|c| (&c.type_, &c.status)),
    )
}

pub fn is_ready_pod(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && ready(
            pod.status
                .as_ref()
                .and_then(|s| s.conditions.as_ref())
                .into_iter()
                .flatten()
                .map(|c| (&c.type_, &c.status)),
        )
}

fn ready<'a>(mut conditions: impl Iterator<Item = (&'a String, &'a String)>) -> bool {
    conditions.any(|(type_, status)| type_ == "Ready" && status == "True")
}

pub fn node_of(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .unwrap()
        .node_name
        .as_deref()
        .unwrap_or_default()
}

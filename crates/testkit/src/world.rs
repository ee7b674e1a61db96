//! A whole world in one process: embedded API in memory, controllers, simulated cloud. With tokio's time paused an hour of
//! it takes as long as its work takes.

mod acts;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use muster_api::{Machine, MachinePool};
use muster_apiserver::{Host, Persistence};
use muster_caches::Management;
use muster_clock::Clock;
use muster_controllers::Settings;
use muster_informers::Key;
use muster_observe::Clusters;
use muster_provider_sim::cloud::types::{CloudInstance, define};
use muster_provider_sim::{Config, EmbeddedConnector, KubeconfigSource, cloud, console};
use tokio_util::sync::CancellationToken;

use crate::fault::Fate;
use crate::outage::{Faulty, Reach, Reaches};

pub use acts::{LATER, SOON, condition_status, instance_of};

/// Kubeconfigs that only the connector of the same process understands.
struct Embedded;

impl KubeconfigSource for Embedded {
    fn endpoint(&self) -> (String, i32) {
        ("embedded".to_owned(), 443)
    }

    fn kubeconfig(&self, logical: &str, name: &str) -> String {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": format!("https://embedded/clusters/{logical}")}}],
            "users": [{"name": name, "user": {"token": "none"}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        })
        .to_string()
    }
}

/// A world.
pub struct World {
    /// The embedded API.
    pub host: Host,
    /// A client of the management cluster.
    pub client: Client,
    /// Its caches.
    pub caches: Management,
    /// The time.
    pub clock: Clock,
    /// When the process of controllers and cloud dies.
    pub fate: Fate,
    /// How workload clusters are reached.
    reaches: Reaches,
    settings: Settings,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    /// A world without clusters.
    ///
    /// # Errors
    /// When a part cannot be started.
    pub async fn start() -> anyhow::Result<Self> {
        Self::with(Settings::default()).await
    }

    /// A world without clusters whose controllers behave so.
    ///
    /// # Errors
    /// When a part cannot be started.
    pub async fn with(settings: Settings) -> anyhow::Result<Self> {
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse()?;
        let clock = Clock::following_tokio(epoch);
        let host = Host::open(Persistence::Memory, clock.clone()).await?;
        let management = host
            .cluster("management")
            .await
            .map_err(|failure| anyhow!("{failure}"))?;
        let client = management.client();
        Self::over(client, host, clock, settings).await
    }

    /// A world without clusters whose management cluster is a real one, in real time; cloud and workload clusters are
    /// simulated as ever.
    ///
    /// # Errors
    /// When a part cannot be started.
    pub async fn on(management: Client) -> anyhow::Result<Self> {
        let clock = Clock::system();
        let host = Host::open(Persistence::Memory, clock.clone()).await?;
        Self::over(management, host, clock, Settings::default()).await
    }

    async fn over(
        client: Client,
        host: Host,
        clock: Clock,
        settings: Settings,
    ) -> anyhow::Result<Self> {
        let definitions: Vec<CustomResourceDefinition> = muster_api::crds::all()
            .into_iter()
            .chain([muster_api::crds::machine_sets()])
            .map(serde_json::from_value)
            .collect::<Result<_, _>>()?;
        define(&client, &definitions).await?;
        let mut world = Self {
            caches: Management::start(&client, None),
            host,
            client,
            clock,
            fate: Fate::default(),
            reaches: Reaches::default(),
            settings,
            stop: CancellationToken::new(),
        };
        world.run().await?;
        Ok(world)
    }

    /// Starts controllers and cloud over what the API has.
    async fn run(&mut self) -> anyhow::Result<()> {
        let client = self.fate.client(&self.client);
        self.caches = Management::start(&client, None);
        self.caches.synced().await?;
        let workloads = Clusters::default();
        muster_provider_sim::start(Config {
            client: client.clone(),
            host: self.host.clone(),
            caches: self.caches.clone(),
            workloads: workloads.clone(),
            clock: self.clock.clone(),
            seed: 1,
            kubeconfigs: Arc::new(Embedded),
            stop: self.stop.clone(),
        })
        .await
        .map_err(|failure| anyhow!("{failure}"))?;
        muster_controllers::start(muster_controllers::Config {
            client,
            caches: self.caches.clone(),
            clock: self.clock.clone(),
            connector: Arc::new(Faulty {
                inner: EmbeddedConnector::new(self.host.clone()),
                reaches: self.reaches.clone(),
            }),
            workloads,
            settings: self.settings.clone(),
            stop: self.stop.clone(),
        });
        Ok(())
    }

    /// Controllers and cloud die, unless they have, and begin anew with nothing but what the API has.
    ///
    /// # Errors
    /// When a part cannot be started.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.restart_with(Fate::default()).await
    }

    /// Controllers and cloud die, unless they have, and begin anew with that fate.
    ///
    /// # Errors
    /// When a part cannot be started.
    pub async fn restart_with(&mut self, fate: Fate) -> anyhow::Result<()> {
        self.fate.die();
        self.stop.cancel();
        self.fate = fate;
        self.stop = CancellationToken::new();
        self.run().await
    }

    /// A world with the quickstart's cluster and its pool, all machines running.
    ///
    /// # Errors
    /// When they do not come up.
    pub async fn quickstart(replicas: u32) -> anyhow::Result<Self> {
        let world = Self::start().await?;
        world.apply(&quickstart(replicas)).await?;
        world.settled("workers", replicas).await?;
        Ok(world)
    }

    /// Applies manifests in the management cluster.
    ///
    /// # Errors
    /// When one is refused.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        apply(&self.client, yaml).await
    }

    /// A client of a workload cluster.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn workload(&self, cluster: &str) -> anyhow::Result<Client> {
        let name = format!("default.{cluster}");
        Ok(self
            .host
            .existing(&name)
            .with_context(|| format!("there is no workload cluster {name}"))?
            .client())
    }

    /// From now on Muster reaches the API of a workload cluster so; the cluster itself goes on.
    pub fn reach(&self, cluster: &str, reach: Reach) {
        self.reaches.set(&format!("default.{cluster}"), reach);
    }

    /// A client of the simulated cloud.
    ///
    /// # Errors
    /// When the cloud is not there.
    pub fn cloud(&self) -> anyhow::Result<Client> {
        Ok(self
            .host
            .existing(cloud::CLUSTER)
            .context("there is no simulated cloud")?
            .client())
    }

    /// The instances of the cloud.
    ///
    /// # Errors
    /// When the cloud cannot be asked.
    pub async fn instances(&self) -> anyhow::Result<Vec<CloudInstance>> {
        Ok(console::list(&self.cloud()?).await?)
    }

    /// The Machines of a pool, by name.
    pub fn machines(&self, pool: &str) -> Vec<Arc<Machine>> {
        self.caches.machines_of("default", pool)
    }

    /// A pool.
    pub fn pool(&self, name: &str) -> Option<Arc<MachinePool>> {
        self.caches.pools.get(&Key::new("default", name))
    }

    /// The message of a pool's condition.
    pub fn pool_says(&self, name: &str, type_: &str) -> String {
        use muster_api::reference::Conditioned;
        let pool = self.pool(name);
        pool.and_then(|pool| pool.condition_of(type_).map(|c| c.message.clone()))
            .unwrap_or_default()
    }

    /// The message of a Machine's condition.
    pub fn machine_says(&self, name: &str, type_: &str) -> String {
        use muster_api::reference::Conditioned;
        let machine = self.caches.machines.get(&Key::new("default", name));
        machine
            .and_then(|m| m.condition_of(type_).map(|c| c.message.clone()))
            .unwrap_or_default()
    }

    /// How many machines of each zone a pool has, as `a2 b2 c2`.
    pub fn spread(&self, pool: &str) -> String {
        let mut counts = std::collections::BTreeMap::new();
        for machine in self.machines(pool) {
            let zone = machine
                .status
                .as_ref()
                .and_then(|s| s.failure_domain.clone())
                .unwrap_or_default();
            *counts.entry(zone).or_insert(0) += 1;
        }
        counts
            .iter()
            .map(|(zone, count)| format!("{zone}{count}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Sets the size of a pool.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn scale(&self, pool: &str, replicas: u32) -> anyhow::Result<()> {
        let pools: Api<MachinePool> = Api::namespaced(self.client.clone(), "default");
        let patch = serde_json::json!({"spec": {"replicas": replicas}});
        pools
            .patch_scale(pool, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Reasons of all Events about an object, in order.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn events(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let list = events.list(&ListParams::default()).await?;
        let mut about: Vec<Event> = list
            .items
            .into_iter()
            .filter(|event| event.involved_object.name.as_deref() == Some(name))
            .collect();
        about.sort_by_key(|event| event.resource_version().and_then(|v| v.parse::<u64>().ok()));
        Ok(about.into_iter().filter_map(|event| event.reason).collect())
    }

    /// Waits until something holds; the limit is in the world's time.
    ///
    /// # Errors
    /// When it does not hold by then; the error tells how the world stands.
    pub async fn until<F>(
        &self,
        what: &str,
        limit: Duration,
        mut holds: impl FnMut() -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = bool>,
    {
        let end = tokio::time::Instant::now() + limit;
        loop {
            if holds().await {
                return Ok(());
            }
            if tokio::time::Instant::now() >= end {
                bail!(
                    "{what} did not come true within {limit:?}; the world:\n{}",
                    self.story()
                );
            }
            // The world's time passes only while everything waits, so this is a look after each step of it.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until a pool has just so many machines, all of them ready, and nothing is going on.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn settled(&self, pool: &str, replicas: u32) -> anyhow::Result<()> {
        let what = format!("pool {pool} with {replicas} machines");
        self.until(&what, Duration::from_secs(1800), || async {
            self.is_settled(pool, replicas)
        })
        .await
    }

    fn is_settled(&self, pool: &str, replicas: u32) -> bool {
        use muster_api::machine::MachinePhase;
        let machines = self.machines(pool);
        let wanted = i32::try_from(replicas).ok();
        let all_run = machines.iter().all(|m| {
            !m.is_deleting()
                && m.status.as_ref().and_then(|s| s.phase) == Some(MachinePhase::Running)
        });
        let status = self
            .pool(pool)
            .and_then(|pool| pool.status.clone())
            .unwrap_or_default();
        u32::try_from(machines.len()) == Ok(replicas)
            && all_run
            && status.replicas == wanted
            && status.ready_replicas == wanted
    }

    /// How the world stands, in lines.
    pub fn story(&self) -> String {
        let mut lines = Vec::new();
        for pool in self.caches.pools.walk_all() {
            let status = pool.status.clone().unwrap_or_default();
            lines.push(format!(
                "pool {} {:?} replicas {:?} ready {:?}",
                pool.name_any(),
                status.phase,
                status.replicas,
                status.ready_replicas
            ));
            lines.extend(
                status
                    .conditions
                    .iter()
                    .map(|c| format!("  {} {} {}: {}", c.type_, c.status, c.reason, c.message)),
            );
        }
        for machine in self.caches.machines.walk_all().iter().take(12) {
            let status = machine.status.clone().unwrap_or_default();
            lines.push(format!(
                "machine {} {:?} deleting {}",
                machine.name_any(),
                status.phase,
                machine.is_deleting()
            ));
            let odd = status
                .conditions
                .iter()
                .filter(|c| c.status != "True" || c.type_ == "Deleting");
            lines.extend(
                odd.map(|c| format!("  {} {} {}: {}", c.type_, c.status, c.reason, c.message)),
            );
        }
        lines.join("\n")
    }
}

/// The quickstart's manifests with another size.
pub fn quickstart(replicas: u32) -> String {
    include_str!("../../../examples/quickstart.yaml")
        .replace("replicas: 6", &format!("replicas: {replicas}"))
}

/// The quickstart's workload.
pub fn workload() -> &'static str {
    include_str!("../../../examples/workload.yaml")
}

/// Applies manifests on the server side.
///
/// # Errors
/// When one is refused.
pub async fn apply(client: &Client, yaml: &str) -> anyhow::Result<()> {
    for part in yaml.split("\n---\n") {
        let value: serde_json::Value = serde_saphyr::from_str(part)?;
        let object: DynamicObject = serde_json::from_value(value)?;
        let types = object.types.clone().context("every object has a kind")?;
        let (resource, capabilities) =
            pinned_kind(client, &GroupVersionKind::try_from(&types)?).await?;
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
                Api::namespaced_with(client.clone(), &namespace, &resource)
            }
        };
        api.patch(
            &object.name_any(),
            &PatchParams::apply("test").force(),
            &Patch::Apply(&object),
        )
        .await?;
    }
    Ok(())
}

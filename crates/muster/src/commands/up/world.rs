//! The parts of `muster up`, put together.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use muster_apiserver::tls::{self, Authority};
use muster_apiserver::{Host, Role};
use muster_caches::Management;
use muster_clock::Clock;
use muster_controllers as controllers;
use muster_observe::Clusters;
use muster_provider_sim::cloud::types::define;
use muster_provider_sim::{Config, EmbeddedConnector, KubeconfigSource};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Where the API is served.
#[derive(Clone)]
pub struct Address {
    local: SocketAddr,
    authority: Arc<Authority>,
}

impl Address {
    pub fn new(local: SocketAddr, authority: Arc<Authority>) -> Self {
        Self { local, authority }
    }

    /// The URL of the management cluster.
    pub fn server(&self) -> String {
        format!("https://{}", self.local)
    }
}

impl KubeconfigSource for Address {
    fn endpoint(&self) -> (String, i32) {
        (self.local.ip().to_string(), i32::from(self.local.port()))
    }

    fn kubeconfig(&self, logical: &str, name: &str) -> String {
        let server = format!("{}/clusters/{logical}", self.server());
        tls::kubeconfig(
            &self.authority,
            &[tls::Context {
                name,
                server: &server,
                role: Role::Admin,
            }],
        )
    }
}

/// Everything that runs.
pub struct World {
    pub client: Client,
    pub caches: Management,
    pub controllers: TaskTracker,
    pub simulation: TaskTracker,
}

/// Starts everything over a host.
pub async fn start(
    host: &Host,
    clock: &Clock,
    address: &Address,
    settings: controllers::Settings,
    stop: &CancellationToken,
) -> anyhow::Result<World> {
    let management = host
        .cluster("management")
        .await
        .map_err(|failure| anyhow::anyhow!("{failure}"))?;
    let client = management.client();
    let definitions: Vec<CustomResourceDefinition> = muster_api::crds::all()
        .into_iter()
        .chain([muster_api::crds::machine_sets()])
        .map(serde_json::from_value)
        .collect::<Result<_, _>>()
        .context("the definitions that this program carries")?;
    define(&client, &definitions)
        .await
        .context("defining the kinds")?;
    let caches = Management::start(&client, None);
    caches.synced().await?;
    let workloads = Clusters::default();
    let simulation = muster_provider_sim::start(Config {
        client: client.clone(),
        host: host.clone(),
        caches: caches.clone(),
        workloads: workloads.clone(),
        clock: clock.clone(),
        seed: seed(clock),
        kubeconfigs: Arc::new(address.clone()),
        stop: stop.clone(),
    })
    .await
    .map_err(|failure| anyhow::anyhow!("starting the simulated cloud: {failure}"))?;
    let controllers = controllers::start(controllers::Config {
        client: client.clone(),
        caches: caches.clone(),
        clock: clock.clone(),
        connector: Arc::new(EmbeddedConnector::new(host.clone())),
        workloads,
        settings,
        stop: stop.clone(),
    });
    Ok(World {
        client,
        caches,
        controllers,
        simulation,
    })
}

/// A different world at each start.
fn seed(clock: &Clock) -> u64 {
    u64::try_from(clock.now().as_nanosecond() & i128::from(u64::MAX)).unwrap_or(0)
}

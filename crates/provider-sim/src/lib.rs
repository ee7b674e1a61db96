//! A simulated cloud and simulated workload clusters.
//!
//! The cloud's scale groups and instances are objects of a logical cluster of their own, so that they are durable and
//! the cloud's console is an ordinary Kubernetes API. Each workload cluster is a logical cluster too, with enough of a
//! control plane and of kubelets that a drain is real: Pods are made again and scheduled, budgets have a live status.
//!
//! - [`cloud`]: groups, instances, their lives in time, faults.
//! - [`console`]: what `muster sim` does: list, terminate, interrupt, fail, heal, hang, capacity.
//! - [`cluster`]: SimClusters, each with a workload cluster and its kubeconfig.
//! - [`workload`]: scheduler, kubelets and controllers of a workload cluster.

pub mod cloud;
pub mod cluster;
pub mod connector;
pub mod console;
pub mod workload;

use std::sync::Arc;

use kube::Client;
use muster_apiserver::{Host, failure::Failure};
use muster_caches::Management;
use muster_clock::Clock;
use muster_observe::Clusters;
use muster_provider::pool::{self, Kinds};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use cluster::KubeconfigSource;
pub use connector::EmbeddedConnector;

/// What the simulation needs.
pub struct Config {
    /// A client of the management cluster.
    pub client: Client,
    /// Where the cloud and the workload clusters live.
    pub host: Host,
    /// The caches of the management cluster.
    pub caches: Management,
    /// The workload clusters that can be looked into.
    pub workloads: Clusters,
    /// The time.
    pub clock: Clock,
    /// From which every choice by chance is derived.
    pub seed: u64,
    /// Makes the kubeconfigs of workload clusters.
    pub kubeconfigs: Arc<dyn KubeconfigSource>,
    /// Ends everything.
    pub stop: CancellationToken,
}

/// Starts the cloud, the workload clusters and the provider's reconcilers.
///
/// # Errors
/// When the cloud's own API cannot be set up.
pub async fn start(config: Config) -> Result<TaskTracker, Failure> {
    let cloud_cluster = config.host.cluster(cloud::CLUSTER).await?;
    let cloud_client = cloud_cluster.client();
    cloud::types::install(&cloud_client)
        .await
        .map_err(Failure::internal)?;
    let agents = workload::Agents::new(
        config.host.clone(),
        config.clock.clone(),
        config.stop.clone(),
    );
    let cloud = Arc::new(cloud::Cloud::start(
        cloud_client,
        agents.clone(),
        config.clock.clone(),
        config.seed,
        config.stop.clone(),
    ));
    let tracker = TaskTracker::new();
    tracker.spawn(cluster::run(
        config.client.clone(),
        config.caches.clone(),
        config.host.clone(),
        agents,
        config.kubeconfigs,
        config.clock.clone(),
        config.stop.clone(),
    ));
    let kinds = Kinds::new(
        muster_api::INFRASTRUCTURE_GROUP,
        "v1alpha1",
        "SimMachinePool",
        "SimMachine",
    );
    tracker.spawn(pool::run(
        config.client,
        config.caches,
        kinds,
        cloud,
        config.workloads,
        config.clock,
        config.stop,
    ));
    tracker.close();
    Ok(tracker)
}

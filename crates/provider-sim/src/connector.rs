//! Workload clusters of the same process, reached without a socket.

use futures::future::BoxFuture;
use kube::Client;
use kube::config::Kubeconfig;
use muster_apiserver::Host;
use muster_provider::workload::{ConnectError, Connector, Direct};

/// Connects to the workload clusters of a host in process, and to all others over the network.
#[derive(Clone)]
pub struct EmbeddedConnector {
    host: Host,
}

impl EmbeddedConnector {
    /// Connects to the clusters of `host`.
    pub fn new(host: Host) -> Self {
        Self { host }
    }
}

/// The logical cluster that a kubeconfig's server names, if it is one of a host.
fn logical(kubeconfig: &Kubeconfig) -> Option<&str> {
    let cluster = kubeconfig.clusters.first()?.cluster.as_ref()?;
    let (_, name) = cluster.server.as_deref()?.split_once("/clusters/")?;
    Some(name.trim_end_matches('/'))
}

impl Connector for EmbeddedConnector {
    fn connect<'a>(
        &'a self,
        kubeconfig: &'a Kubeconfig,
    ) -> BoxFuture<'a, Result<Client, ConnectError>> {
        Box::pin(async move {
            match logical(kubeconfig).and_then(|name| self.host.existing(name)) {
                Some(cluster) => Ok(cluster.client()),
                None => Direct.connect(kubeconfig).await,
            }
        })
    }
}

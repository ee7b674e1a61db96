//! From a workload cluster's kubeconfig to a client.

use futures::future::BoxFuture;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Why a workload cluster cannot be connected to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub String);

/// Makes clients of workload clusters.
pub trait Connector: Send + Sync + 'static {
    /// A client for this kubeconfig.
    fn connect<'a>(
        &'a self,
        kubeconfig: &'a Kubeconfig,
    ) -> BoxFuture<'a, Result<Client, ConnectError>>;
}

/// Connects over the network, as the kubeconfig says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Direct;

impl Connector for Direct {
    fn connect<'a>(
        &'a self,
        kubeconfig: &'a Kubeconfig,
    ) -> BoxFuture<'a, Result<Client, ConnectError>> {
        Box::pin(async move {
            let options = KubeConfigOptions::default();
            let mut config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
                .await
                .map_err(|error| ConnectError(format!("the kubeconfig cannot be used: {error}")))?;
            // A refused eviction is an answer, not something to send again at once.
            config.default_retry = false;
            Client::try_from(config)
                .map_err(|error| ConnectError(format!("no client can be made: {error}")))
        })
    }
}

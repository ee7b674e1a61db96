//! The host: any number of logical clusters over one store, each with clients and counters.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::body::Body;
use http::{Request, Response};
use muster_clock::Clock;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::rest::access::Identity;
use crate::rest::{self, Bound};
use crate::storage::{ClusterName, OpenError, Storage};
use crate::{collect, write};

/// Where objects are kept.
#[derive(Clone, Debug)]
pub enum Persistence {
    /// In memory; gone with the process.
    Memory,
    /// In this directory, which one process at a time can use.
    Directory(PathBuf),
}

/// Logical clusters over one store; cheap to clone.
#[derive(Clone)]
pub struct Host(Arc<Inner>);

struct Inner {
    storage: Storage,
    clock: Clock,
    clusters: RwLock<HashMap<ClusterName, Arc<Logical>>>,
    /// Held while a cluster is made or removed, so that neither is seen half done.
    changing: tokio::sync::Mutex<()>,
    stop: CancellationToken,
}

/// A logical cluster as the HTTP surface sees it.
pub(crate) struct Logical {
    pub(crate) cluster: Arc<write::Cluster>,
    pub(crate) counts: Counts,
    pub(crate) stop: CancellationToken,
}

/// How often what was asked of a cluster: by verb and resource, such as `("patch", "machines.cluster.x-k8s.io/status")`.
pub type RequestCounts = BTreeMap<(String, String), u64>;

/// Counters of requests.
#[derive(Default)]
pub(crate) struct Counts(Mutex<RequestCounts>);

impl Counts {
    pub(crate) fn add(&self, verb: &str, resource: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts
            .entry((verb.to_owned(), resource.to_owned()))
            .or_default() += 1;
    }
}

impl Host {
    /// Opens the store and every cluster in it.
    ///
    /// # Errors
    /// When the directory is in use, or its file cannot be read.
    pub async fn open(persistence: Persistence, clock: Clock) -> Result<Self, OpenError> {
        let storage = match persistence {
            Persistence::Memory => Storage::in_memory(),
            Persistence::Directory(path) => Storage::open(&path)?,
        };
        let host = Self(Arc::new(Inner {
            storage,
            clock,
            clusters: RwLock::default(),
            changing: tokio::sync::Mutex::new(()),
            stop: CancellationToken::new(),
        }));
        for name in host.0.storage.clusters() {
            host.start(&name);
        }
        Ok(host)
    }

    /// The cluster of that name; it is made, with its first namespaces, when it does not exist.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn cluster(&self, name: &str) -> Result<LogicalCluster, Failure> {
        let _changing = self.0.changing.lock().await;
        let name = ClusterName::new(name);
        let logical = self.logical(&name).unwrap_or_else(|| self.start(&name));
        logical.cluster.furnish().await?;
        Ok(LogicalCluster {
            host: self.clone(),
            name,
        })
    }

    /// The cluster of that name, if it exists.
    pub fn existing(&self, name: &str) -> Option<LogicalCluster> {
        let name = ClusterName::new(name);
        self.logical(&name)?;
        Some(LogicalCluster {
            host: self.clone(),
            name,
        })
    }

    /// Removes a cluster with everything in it; its watches end.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn remove(&self, name: &str) -> Result<(), Failure> {
        let _changing = self.0.changing.lock().await;
        let name = ClusterName::new(name);
        let removed = {
            let mut clusters = self
                .0
                .clusters
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            clusters.remove(&name)
        };
        if let Some(logical) = removed {
            logical.stop.cancel();
        }
        self.0
            .storage
            .drop_cluster(&name)
            .await
            .map_err(Failure::internal)
    }

    /// Serves one request. Paths below `/clusters/NAME` reach that cluster, others the management cluster; the user is
    /// the [`Identity`] among the request's extensions.
    pub async fn handle(&self, request: Request<Body>) -> Response<Body> {
        rest::handle(self, request).await
    }

    /// Ends watches and collectors, and makes the store durable and free for others once the last clone is dropped.
    pub async fn close(&self) {
        self.0.stop.cancel();
        self.0.storage.close().await;
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    pub(crate) fn logical(&self, name: &ClusterName) -> Option<Arc<Logical>> {
        let clusters = self
            .0
            .clusters
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        clusters.get(name).cloned()
    }

    fn start(&self, name: &ClusterName) -> Arc<Logical> {
        let stop = self.0.stop.child_token();
        let cluster =
            write::Cluster::open(name.clone(), self.0.storage.clone(), self.0.clock.clone());
        collect::spawn(Arc::clone(&cluster), stop.clone());
        let logical = Arc::new(Logical {
            cluster,
            counts: Counts::default(),
            stop,
        });
        let mut clusters = self
            .0
            .clusters
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        clusters.insert(name.clone(), Arc::clone(&logical));
        logical
    }
}

/// Handle of one logical cluster; cheap to clone.
#[derive(Clone)]
pub struct LogicalCluster {
    host: Host,
    name: ClusterName,
}

impl LogicalCluster {
    /// Its name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// A client that reaches it in process, as an administrator.
    pub fn client(&self) -> kube::Client {
        self.client_as(Identity::admin("system:admin"))
    }

    /// A client that reaches it in process, as that user.
    pub fn client_as(&self, identity: Identity) -> kube::Client {
        let (host, name) = (self.host.clone(), self.name.clone());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (host, bound, identity) = (host.clone(), Bound(name.clone()), identity.clone());
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(bound);
                request.extensions_mut().insert(identity);
                Ok::<_, std::convert::Infallible>(rest::handle(&host, request).await)
            }
        });
        kube::Client::new(service, "default")
    }

    /// What was asked of it since it was opened.
    pub fn requests(&self) -> RequestCounts {
        match self.host.logical(&self.name) {
            Some(logical) => logical
                .counts
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            None => RequestCounts::new(),
        }
    }
}

//! What is looked up in a workload cluster, and which workload clusters can be looked into.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use muster_plan::volumes::Claim;
use tokio::sync::watch;

/// A workload cluster to look things up in. No look-up walks a kind.
pub trait View: Send + Sync + 'static {
    /// The Pods of a Node.
    fn pods_on(&self, node: &str) -> Vec<Arc<Pod>>;
    /// A DaemonSet.
    fn daemon_set(&self, namespace: &str, name: &str) -> Option<Arc<DaemonSet>>;
    /// A namespace.
    fn namespace(&self, name: &str) -> Option<Arc<Namespace>>;
    /// The budgets of a namespace.
    fn budgets_in(&self, namespace: &str) -> Vec<Arc<PodDisruptionBudget>>;
    /// A PersistentVolume by its name.
    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>>;
    /// The PersistentVolume that is bound to a claim.
    fn volume_of(&self, claim: &Claim) -> Option<Arc<PersistentVolume>>;
    /// The PersistentVolume that `status.volumesAttached` of a Node names; see [`crate::volumes::csi`].
    fn volume_by_handle(&self, handle: &str) -> Option<Arc<PersistentVolume>>;
    /// The VolumeAttachments of a Node.
    fn attachments_on(&self, node: &str) -> Vec<Arc<VolumeAttachment>>;
    /// Whether the cluster answers, so that what is seen is what there is.
    fn is_current(&self) -> bool;
}

/// Namespace and name of a Cluster.
type Name = (String, String);

#[derive(Clone)]
enum Known {
    View(Arc<dyn View>),
    /// It was tried, and cannot be looked into.
    Unreadable,
}

/// The workload clusters that can be looked into; cheap to clone. Whoever connects to them says so here.
#[derive(Clone)]
pub struct Clusters(Arc<Inner>);

struct Inner {
    known: RwLock<HashMap<Name, Known>>,
    news: watch::Sender<()>,
}

impl Default for Clusters {
    fn default() -> Self {
        Self(Arc::new(Inner {
            known: RwLock::default(),
            news: watch::Sender::new(()),
        }))
    }
}

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clusters")
    }
}

impl Clusters {
    /// A cluster can be looked into.
    pub fn connected(&self, namespace: &str, name: &str, view: Arc<dyn View>) {
        self.set(namespace, name, Some(Known::View(view)));
    }

    /// A cluster was tried and cannot be looked into; one that could be keeps its view, which says for itself whether it is
    /// current.
    pub fn unreadable(&self, namespace: &str, name: &str) {
        if !matches!(self.known(namespace, name), Some(Known::View(_))) {
            self.set(namespace, name, Some(Known::Unreadable));
        }
    }

    /// A cluster is gone, or is about to be connected to anew.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.set(namespace, name, None);
    }

    /// A cluster to look into, if it can be. Waits this long at most for somebody to try it for the first time.
    pub async fn get(
        &self,
        namespace: &str,
        name: &str,
        patience: Duration,
    ) -> Option<Arc<dyn View>> {
        let mut news = self.0.news.subscribe();
        let tried = async {
            loop {
                if let Some(known) = self.known(namespace, name) {
                    return Some(known);
                }
                news.changed().await.ok()?;
            }
        };
        match tokio::time::timeout(patience, tried).await {
            Ok(Some(Known::View(view))) => Some(view).filter(|view| view.is_current()),
            Ok(Some(Known::Unreadable) | None) => None,
            // Nobody who connects to it may be here at all; the next one need not wait to learn that.
            Err(_) => {
                self.unreadable(namespace, name);
                None
            }
        }
    }

    // The map is whole after every statement.
    fn known(&self, namespace: &str, name: &str) -> Option<Known> {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    fn set(&self, namespace: &str, name: &str, to: Option<Known>) {
        let place = (namespace.to_owned(), name.to_owned());
        {
            let mut known = self.0.known.write().unwrap_or_else(PoisonError::into_inner);
            match to {
                Some(to) => known.insert(place, to),
                None => known.remove(&place),
            };
        }
        self.0.news.send_replace(());
    }
}

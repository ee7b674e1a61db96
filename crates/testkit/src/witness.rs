//! A witness in a workload cluster: follows Pods and Nodes from outside and remembers what must not happen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

/// What was seen of one Pod's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The Node it ran on.
    pub node: String,
    /// Whether a DaemonSet owns it.
    pub daemon: bool,
    /// Whether the Node was marked unschedulable when the Pod began to go.
    pub cordoned: bool,
}

#[derive(Default)]
struct Seen {
    pods: BTreeMap<String, Pod>,
    cordoned: BTreeMap<String, bool>,
    leaving: BTreeMap<String, Leaving>,
    fewest_ready: Option<usize>,
}

/// Follows the Pods with one `app` label, and all Nodes.
pub struct Witness {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Witness {
    /// Begins to watch; counts ready Pods labelled `app=<app>`.
    pub fn start(client: Client, app: &str) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let notes = Arc::clone(&seen);
        let app = app.to_owned();
        let task = tokio::spawn(async move {
            let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
            let nodes = watcher(Api::<Node>::all(client), watcher::Config::default());
            let mut pods = std::pin::pin!(pods.default_backoff());
            let mut nodes = std::pin::pin!(nodes.default_backoff());
            let mut complete = false;
            loop {
                // Nodes first: a cordon that came before an eviction is seen before it.
                tokio::select! {
                    biased;
                    Some(event) = nodes.next() => {
                        if let Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node)) = event {
                            let cordoned = node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false);
                            lock(&notes).cordoned.insert(node.name_any(), cordoned);
                        }
                    }
                    Some(event) = pods.next() => {
                        let mut seen = lock(&notes);
                        match event {
                            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => seen.note(pod),
                            Ok(watcher::Event::Delete(pod)) => {
                                seen.note(pod.clone());
                                seen.pods.remove(&pod.name_any());
                            }
                            Ok(watcher::Event::InitDone) => complete = true,
                            Ok(watcher::Event::Init) | Err(_) => {}
                        }
                        if complete {
                            seen.count(&app);
                        }
                    }
                }
            }
        });
        Self { seen, task }
    }

    /// The fewest Pods of the app that were ready at one moment since the last call.
    pub fn fewest_ready(&self) -> Option<usize> {
        lock(&self.seen).fewest_ready.take()
    }

    /// The Pods that were seen to be deleted, by name.
    pub fn leaving(&self) -> BTreeMap<String, Leaving> {
        lock(&self.seen).leaving.clone()
    }
}

impl Seen {
    fn note(&mut self, pod: Pod) {
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() && !self.leaving.contains_key(&name) {
            let node = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.node_name.clone())
                .unwrap_or_default();
            let leaving = Leaving {
                cordoned: self.cordoned.get(&node).copied().unwrap_or(false),
                daemon: pod.owner_references().iter().any(|o| o.kind == "DaemonSet"),
                node,
            };
            self.leaving.insert(name.clone(), leaving);
        }
        self.pods.insert(name, pod);
    }

    fn count(&mut self, app: &str) {
        let ready = self
            .pods
            .values()
            .filter(|pod| pod.labels().get("app").map(String::as_str) == Some(app))
            .filter(|pod| is_ready(pod))
            .count();
        self.fewest_ready = Some(self.fewest_ready.map_or(ready, |least| least.min(ready)));
    }
}

fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

// The notes are whole after every statement, also where a panic of the test poisons the lock.
fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The collectors of a logical cluster: dependents whose owners are gone, the content of namespaces and the objects of
//! definitions that are going, events whose time is over.
//!
//! One task per cluster follows every change, keeps a graph, and acts on what follows from it. Nothing is polled and
//! nothing is listed: the work per change is what the change concerns. Each act is made on the condition that its object
//! is as it was judged, so that a judgement that was overtaken does nothing.

mod decide;
mod expiry;
mod graph;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::time::DelayQueue;

use self::decide::{Action, Policy};
use self::expiry::Expiry;
use self::graph::{Graph, Identity, Task};
use crate::failure::Failure;
use crate::registry::crd;
use crate::storage::{Event, EventKind, Stored};
use crate::write::{Cluster, DeleteOptions, Propagation, meta};

/// How many acts are under way at once.
const CONCURRENCY: usize = 64;
/// The first pause after a failed act, doubled with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Starts the collectors of a cluster; they end when `cancel` says so or the storage does.
pub fn spawn(cluster: Arc<Cluster>, cancel: CancellationToken) -> JoinHandle<()> {
    // Subscribed before this returns, so that no change after the start is missed.
    let (objects, events) = cluster.storage.watch_cluster(&cluster.name);
    tokio::spawn(async move {
        let mut collector = Collector {
            cluster,
            graph: Graph::default(),
            expiry: Expiry::default(),
            queue: Queue::default(),
        };
        for (resource, stored) in &objects {
            collector.graph.put(resource, stored);
            collector.expiry.put(resource, stored);
        }
        drop(objects);
        let tasks = collector.graph.all_tasks();
        collector.queue.add(tasks);
        collector.run(events, cancel).await;
    })
}

struct Collector {
    cluster: Arc<Cluster>,
    graph: Graph,
    expiry: Expiry,
    queue: Queue,
}

/// Tasks that wait, each once; a task that is wanted again while it is under way comes after it.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Task>,
    known: HashSet<Task>,
    running: HashSet<Task>,
    again: HashSet<Task>,
    failures: HashMap<Task, u32>,
}

impl Queue {
    fn add(&mut self, tasks: Vec<Task>) {
        for task in tasks {
            if self.running.contains(&task) {
                self.again.insert(task);
            } else if self.known.insert(task.clone()) {
                self.waiting.push_back(task);
            }
        }
    }

    fn next(&mut self) -> Option<Task> {
        let task = self.waiting.pop_front()?;
        self.known.remove(&task);
        Some(task)
    }

    /// Ends a run; answers with the pause before the next try of a task that failed.
    fn done(&mut self, task: &Task, failed: bool) -> Option<Duration> {
        self.running.remove(task);
        if self.again.remove(task) {
            self.add(vec![task.clone()]);
            return None;
        }
        if !failed {
            self.failures.remove(task);
            return None;
        }
        let failures = self.failures.entry(task.clone()).or_default();
        let pause = FIRST_PAUSE
            .saturating_mul(1 << (*failures).min(16))
            .min(LONGEST_PAUSE);
        *failures += 1;
        Some(pause)
    }
}

type Running = FuturesUnordered<BoxFuture<'static, (Task, Result<(), Failure>)>>;

impl Collector {
    async fn run(
        mut self,
        mut events: tokio::sync::mpsc::UnboundedReceiver<Arc<Event>>,
        cancel: CancellationToken,
    ) {
        let mut running: Running = FuturesUnordered::new();
        let mut pauses: DelayQueue<Task> = DelayQueue::new();
        loop {
            while running.len() < CONCURRENCY
                && let Some(task) = self.queue.next()
            {
                if let Some(act) = self.act(&task) {
                    self.queue.running.insert(task.clone());
                    running.push(Box::pin(async move { (task, act.await) }));
                }
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                event = events.recv() => match event {
                    Some(event) => self.absorb(&event),
                    None => return,
                },
                Some((task, outcome)) = running.next(), if !running.is_empty() => {
                    let failed = match outcome {
                        Err(failure) if !failure.is_not_found() => {
                            if !failure.is_conflict() {
                                tracing::warn!(cluster = %self.cluster.name, ?task, %failure, "collecting failed");
                            }
                            true
                        }
                        _ => false,
                    };
                    if let Some(pause) = self.queue.done(&task, failed) {
                        pauses.insert(task, pause);
                    }
                }
                Some(due) = pauses.next(), if !pauses.is_empty() => self.queue.add(vec![due.into_inner()]),
                Some(uid) = self.expiry.next(), if !self.expiry.is_empty() => self.queue.add(vec![Task::Doom(uid)]),
            }
        }
    }

    fn absorb(&mut self, event: &Event) {
        let tasks = match event.kind {
            EventKind::Added | EventKind::Modified => {
                self.expiry.put(&event.resource, &event.object);
                self.graph.put(&event.resource, &event.object)
            }
            EventKind::Deleted => {
                self.expiry.removed(&event.object);
                self.graph.removed(&event.object)
            }
        };
        self.queue.add(tasks);
    }

    /// What a task comes to now, if anything.
    fn act(&self, task: &Task) -> Option<BoxFuture<'static, Result<(), Failure>>> {
        let cluster = self.cluster.clone();
        let action =
            match task {
                Task::Examine(uid) => self.graph.examine(uid)?,
                Task::Doom(uid) => self.graph.doom(uid)?,
                Task::ReleaseNamespace(name) => {
                    let name = name.clone();
                    return self.graph.is_empty_namespace(&name).then(
                        || -> BoxFuture<'static, _> {
                            Box::pin(async move { release_namespace(&cluster, &name).await })
                        },
                    );
                }
                Task::ReleaseDefinition(name) => {
                    let name = name.clone();
                    return self.graph.is_empty_definition(&name).then(
                        || -> BoxFuture<'static, _> {
                            Box::pin(async move { release_definition(&cluster, &name).await })
                        },
                    );
                }
            };
        Some(Box::pin(async move { carry_out(&cluster, action).await }))
    }
}

async fn carry_out(cluster: &Cluster, action: Action) -> Result<(), Failure> {
    match action {
        Action::Delete { target, with } => collect(cluster, &target, with).await,
        Action::Doom { target } => {
            let Some(current) = find(cluster, &target) else {
                return Ok(());
            };
            let options = DeleteOptions {
                propagation: Some(Propagation::Background),
                uid: Some(current.uid.to_string()),
                ..DeleteOptions::default()
            };
            delete(cluster, &target, &options).await
        }
        Action::Disown { target, owners } => disown(cluster, &target, &owners).await,
        Action::Unblock { target } => unfinalize(cluster, &target, meta::FOREGROUND).await,
        Action::Orphan { target, dependents } => {
            let owner = std::slice::from_ref(&target.uid);
            let mut letting_go = futures::stream::iter(dependents)
                .map(|dependent| async move { disown(cluster, &dependent, owner).await })
                .buffer_unordered(CONCURRENCY);
            while let Some(done) = letting_go.next().await {
                match done {
                    Err(failure) if failure.is_not_found() => {}
                    done => done?,
                }
            }
            drop(letting_go);
            unfinalize(cluster, &target, meta::ORPHAN).await
        }
    }
}

/// The object as it is, if it still is that one.
fn find(cluster: &Cluster, target: &Identity) -> Option<Arc<Stored>> {
    cluster
        .storage
        .get(&cluster.name, &target.resource, &target.key)
        .filter(|found| *found.uid == *target.uid)
}

/// Deletes an object that has no owner left, unless its owners are of kinds that are not known here.
async fn collect(cluster: &Cluster, target: &Identity, with: Policy) -> Result<(), Failure> {
    let Some(current) = find(cluster, target) else {
        return Ok(());
    };
    let object = current.value();
    let references = meta::of(&object)["ownerReferences"].as_array();
    let is_known = |reference: &Value| {
        let api_version = reference["apiVersion"].as_str().unwrap_or("");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = reference["kind"].as_str().unwrap_or("");
        cluster.registry.by_kind(group, version, kind).is_some()
    };
    if references
        .into_iter()
        .flatten()
        .any(|reference| !is_known(reference))
    {
        return Ok(());
    }
    let finalizers = meta::finalizers(&object);
    let propagation = match with {
        Policy::Foreground => Propagation::Foreground,
        _ if finalizers.contains(&meta::ORPHAN) => Propagation::Orphan,
        _ if finalizers.contains(&meta::FOREGROUND) => Propagation::Foreground,
        Policy::Background => Propagation::Background,
    };
    let options = DeleteOptions {
        propagation: Some(propagation),
        uid: Some(current.uid.to_string()),
        resource_version: Some(current.revision.to_string()),
        ..DeleteOptions::default()
    };
    delete(cluster, target, &options).await
}

async fn delete(
    cluster: &Cluster,
    target: &Identity,
    options: &DeleteOptions,
) -> Result<(), Failure> {
    let Some(kind) = cluster.registry.stored(&target.resource) else {
        return Ok(());
    };
    let key = &target.key;
    cluster
        .delete(&kind, &key.namespace, &key.name, options)
        .await
        .map(drop)
}

/// Removes owner references.
async fn disown(cluster: &Cluster, target: &Identity, owners: &[Arc<str>]) -> Result<(), Failure> {
    let Some(kind) = cluster.registry.stored(&target.resource) else {
        return Ok(());
    };
    cluster
        .amend(&kind, &target.key, &target.uid, |object| {
            let metadata = meta::of_mut(object);
            if let Some(references) = metadata
                .get_mut("ownerReferences")
                .and_then(Value::as_array_mut)
            {
                references.retain(|reference| {
                    let uid = reference["uid"].as_str().unwrap_or("");
                    !owners.iter().any(|owner| &**owner == uid)
                });
                if references.is_empty() {
                    metadata.remove("ownerReferences");
                }
            }
        })
        .await
}

/// Removes a finalizer; the last one gone, the object is.
async fn unfinalize(cluster: &Cluster, target: &Identity, finalizer: &str) -> Result<(), Failure> {
    let Some(kind) = cluster.registry.stored(&target.resource) else {
        return Ok(());
    };
    cluster
        .amend(&kind, &target.key, &target.uid, |object| {
            let left = meta::finalizers(object)
                .into_iter()
                .filter(|found| *found != finalizer);
            let left = left.map(str::to_owned).collect();
            meta::set_finalizers(object, left);
        })
        .await
}

async fn release_namespace(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let Some(kind) = cluster.registry.by_kind("", "v1", "Namespace") else {
        return Ok(());
    };
    cluster.release_namespace(&kind, name).await
}

async fn release_definition(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let resource = crate::write::definitions();
    let key = crate::storage::ObjectKey::new("", name);
    let Some(current) = cluster.storage.get(&cluster.name, &resource, &key) else {
        return Ok(());
    };
    let target = Identity {
        resource,
        key,
        uid: (&*current.uid).into(),
    };
    unfinalize(cluster, &target, crd::CLEANUP).await
}

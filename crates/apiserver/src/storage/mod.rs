//! Objects by key, with revisions, durable commits and watches; knows no kinds.
//!
//! Everything is in memory as immutable, shared JSON bytes, and on disk (unless the store is ephemeral) in one redb file.
//! A commit checks what its writes expect, becomes durable together with whatever else is waiting, is then applied to
//! memory in revision order, and only then answered: what a reader or watcher sees is never lost again.
//!
//! Watches are pulled: each resource keeps a bounded history, and a watcher that falls further behind than that gets
//! [`Expired`] instead of a queue that grows with its slowness.

mod disk;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

pub use disk::OpenError;
use state::State;

/// Name of a logical cluster within the host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClusterName(Arc<str>);

impl ClusterName {
    /// The cluster that is also served at the root path.
    pub const MANAGEMENT: &'static str = "management";

    /// A cluster of that name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The management cluster.
    pub fn management() -> Self {
        Self::new(Self::MANAGEMENT)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What objects are stored under, whatever version they are read in: API group and plural name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ResourceName {
    /// API group; empty for core.
    pub group: Arc<str>,
    /// Plural, lower case.
    pub plural: Arc<str>,
}

impl ResourceName {
    /// The resource `plural.group`.
    pub fn new(group: &str, plural: &str) -> Self {
        Self {
            group: group.into(),
            plural: plural.into(),
        }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

/// Namespace (empty for cluster-scoped objects) and name; ordered as lists are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectKey {
    /// Namespace, or empty.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of `name` in `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// One object at one revision.
#[derive(Debug)]
pub struct Stored {
    /// Where it is.
    pub key: ObjectKey,
    /// The revision that made it so; its `metadata.resourceVersion`.
    pub revision: u64,
    /// The whole object as JSON, in its storage version.
    pub json: Bytes,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.labels`, sorted.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// UIDs in `metadata.ownerReferences`.
    pub owners: Box<[Box<str>]>,
    /// Values by which field selectors find it, besides name and namespace.
    pub fields: Box<[(Box<str>, Box<str>)]>,
}

impl Stored {
    /// The object, parsed.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("stored bytes were serialized from a JSON value")
    }

    /// The label's value.
    pub fn label(&self, name: &str) -> Option<&str> {
        find(&self.labels, name)
    }

    /// The value that field selectors compare: `metadata.name`, `metadata.namespace`, or one given at the write.
    pub fn field(&self, path: &str) -> Option<&str> {
        match path {
            "metadata.name" => Some(&self.key.name),
            "metadata.namespace" => Some(&self.key.namespace),
            _ => find(&self.fields, path),
        }
    }
}

fn find<'a>(pairs: &'a [(Box<str>, Box<str>)], name: &str) -> Option<&'a str> {
    pairs
        .iter()
        .find(|(key, _)| &**key == name)
        .map(|(_, value)| &**value)
}

/// What must be there for a write to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No object of that key.
    Absent,
    /// The object at exactly this revision.
    Revision(u64),
}

/// What a write leaves.
#[derive(Clone, Debug)]
pub enum Content {
    /// This object; `metadata.resourceVersion` is set by the storage.
    Put {
        /// The whole object.
        object: Value,
        /// Selectable fields and their values.
        fields: Vec<(String, String)>,
    },
    /// Nothing.
    Delete,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Write {
    /// In which cluster.
    pub cluster: ClusterName,
    /// Of which resource.
    pub resource: ResourceName,
    /// Which object.
    pub key: ObjectKey,
    /// What it is based on.
    pub expect: Expect,
    /// What is to be there.
    pub content: Content,
}

/// Why nothing of a commit was done.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// What was found is not what the write at `index` expects. Decide again on `current`.
    #[error("the object changed meanwhile")]
    Conflict {
        /// Position of the write in the commit.
        index: usize,
        /// What is there.
        current: Option<Arc<Stored>>,
    },
    /// The disk refused. What is in memory and on disk is unchanged.
    #[error("writing to the store: {0}")]
    Disk(String),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It is new.
    Added,
    /// It changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change, in revision order.
#[derive(Debug)]
pub struct Event {
    /// Of which resource.
    pub resource: ResourceName,
    /// What happened.
    pub kind: EventKind,
    /// The object after it; for a deletion its last state at the revision of the deletion.
    pub object: Arc<Stored>,
    /// The object before it.
    pub previous: Option<Arc<Stored>>,
    /// The revision of the change.
    pub revision: u64,
}

/// The asked revision is older than the history that is kept: list anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} is older than the oldest that is kept, {oldest}")]
pub struct Expired {
    /// What was asked for.
    pub asked: u64,
    /// Changes after this revision are known.
    pub oldest: u64,
}

/// A consistent list.
#[derive(Debug)]
pub struct Snapshot {
    /// The revision it is of.
    pub revision: u64,
    /// The objects by key.
    pub items: Vec<Arc<Stored>>,
}

/// Everything in a cluster, and every change from then on.
pub type Followed = (
    Vec<(ResourceName, Arc<Stored>)>,
    mpsc::UnboundedReceiver<Arc<Event>>,
);

/// The store of all logical clusters; cheap to clone.
#[derive(Clone)]
pub struct Storage(Arc<Inner>);

struct Inner {
    state: Arc<RwLock<State>>,
    disk: Option<disk::Writer>,
}

impl Storage {
    /// A store that is gone with the process.
    pub fn in_memory() -> Self {
        Self(Arc::new(Inner {
            state: Arc::default(),
            disk: None,
        }))
    }

    /// The store in `directory`, which is created when missing and locked while open.
    ///
    /// # Errors
    /// When another process has it open, or its file cannot be read.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let state = Arc::default();
        let disk = disk::Writer::open(directory, Arc::clone(&state))?;
        Ok(Self(Arc::new(Inner {
            state,
            disk: Some(disk),
        })))
    }

    /// Makes all of `writes` or none, durable when it returns. Returns each object as it is now; for a deletion its last
    /// state, at the revision of the deletion.
    ///
    /// # Errors
    /// See [`CommitError`]; nothing was done then.
    pub async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Arc<Stored>>, CommitError> {
        match &self.0.disk {
            Some(disk) => disk.commit(writes).await,
            None => {
                let mut state = write(&self.0.state);
                let changes = state.check(&writes, &state::Overlay::default())?;
                let applied = state.prepare(writes, changes, state.revision());
                Ok(state.apply(applied))
            }
        }
    }

    /// The object of that key.
    pub fn get(
        &self,
        cluster: &ClusterName,
        resource: &ResourceName,
        key: &ObjectKey,
    ) -> Option<Arc<Stored>> {
        read(&self.0.state).get(cluster, resource, key)
    }

    /// All objects of a resource, or those of one namespace.
    pub fn list(
        &self,
        cluster: &ClusterName,
        resource: &ResourceName,
        namespace: Option<&str>,
    ) -> Snapshot {
        read(&self.0.state).list(cluster, resource, namespace)
    }

    /// How many objects a resource has.
    pub fn count(&self, cluster: &ClusterName, resource: &ResourceName) -> usize {
        read(&self.0.state).count(cluster, resource)
    }

    /// The changes of a resource after revision `after`.
    ///
    /// # Errors
    /// When the history does not reach back to `after`.
    pub fn watch(
        &self,
        cluster: &ClusterName,
        resource: &ResourceName,
        after: u64,
    ) -> Result<Events, Expired> {
        let mut state = write(&self.0.state);
        let news = state.follow(cluster, resource, after)?;
        Ok(Events {
            state: Arc::clone(&self.0.state),
            cluster: cluster.clone(),
            resource: resource.clone(),
            after,
            news,
        })
    }

    /// Everything in a cluster, and every change from then on. For the collectors, which must not miss any; the queue
    /// is not bounded.
    pub fn watch_cluster(&self, cluster: &ClusterName) -> Followed {
        write(&self.0.state).follow_cluster(cluster)
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        read(&self.0.state).revision()
    }

    /// The clusters that have objects.
    pub fn clusters(&self) -> Vec<ClusterName> {
        read(&self.0.state).clusters()
    }

    /// Removes everything of a cluster, durably. Its watches end as expired.
    ///
    /// # Errors
    /// When the disk refuses.
    pub async fn drop_cluster(&self, cluster: &ClusterName) -> Result<(), CommitError> {
        match &self.0.disk {
            Some(disk) => disk.drop_cluster(cluster.clone()).await,
            None => {
                write(&self.0.state).drop_cluster(cluster);
                Ok(())
            }
        }
    }

    /// Ends the writer; later commits fail. The lock on the directory is released when the last clone is dropped.
    pub async fn close(&self) {
        if let Some(disk) = &self.0.disk {
            disk.close().await;
        }
    }
}

/// The changes of one resource, pulled.
pub struct Events {
    state: Arc<RwLock<State>>,
    cluster: ClusterName,
    resource: ResourceName,
    after: u64,
    news: watch::Receiver<u64>,
}

/// Changes that were pulled, and the revision up to which there are no others.
#[derive(Debug)]
pub struct Batch {
    /// In revision order; may be empty.
    pub events: Vec<Arc<Event>>,
    /// The watch is complete up to here.
    pub revision: u64,
}

impl Events {
    /// What is there already.
    ///
    /// # Errors
    /// When the watcher is too far behind, or the cluster was removed.
    pub fn ready(&mut self) -> Result<Batch, Expired> {
        self.news.borrow_and_update();
        let batch = read(&self.state).events(&self.cluster, &self.resource, self.after)?;
        self.after = batch.revision;
        Ok(batch)
    }

    /// Waits for changes.
    ///
    /// # Errors
    /// As [`Events::ready`].
    pub async fn next(&mut self) -> Result<Batch, Expired> {
        loop {
            let batch = self.ready()?;
            if !batch.events.is_empty() {
                return Ok(batch);
            }
            if self.news.changed().await.is_err() {
                return Err(Expired {
                    asked: self.after,
                    oldest: u64::MAX,
                });
            }
        }
    }
}

// Updates of the state are whole before anything in them can panic, so a poisoned lock is still consistent.
fn read(state: &RwLock<State>) -> std::sync::RwLockReadGuard<'_, State> {
    state.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(state: &RwLock<State>) -> std::sync::RwLockWriteGuard<'_, State> {
    state.write().unwrap_or_else(PoisonError::into_inner)
}

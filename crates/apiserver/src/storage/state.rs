//! The in-memory state: objects, history, who is told of changes. No I/O and no waiting.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::{
    Batch, ClusterName, CommitError, Content, Event, EventKind, Expect, Expired, ObjectKey,
    ResourceName, Snapshot, Stored, Write,
};

/// How many changes of a resource are kept for watchers that are behind. A client that comes back after a short break
/// finds them; one that is further behind lists anew, as with any Kubernetes API server.
const HISTORY: usize = 4096;

#[derive(Default)]
pub(super) struct State {
    revision: u64,
    clusters: HashMap<ClusterName, Cluster>,
}

#[derive(Default)]
struct Cluster {
    /// The revision at which it was made, or the store was opened: nothing in it changed before.
    since: u64,
    resources: HashMap<ResourceName, Resource>,
    followers: Vec<mpsc::UnboundedSender<Arc<Event>>>,
}

struct Resource {
    objects: BTreeMap<ObjectKey, Arc<Stored>>,
    history: VecDeque<Arc<Event>>,
    /// Changes after this revision are in `history`.
    oldest: u64,
    news: watch::Sender<u64>,
}

impl Resource {
    fn new(oldest: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            oldest,
            news: watch::Sender::new(0),
        }
    }
}

type Place = (ClusterName, ResourceName, ObjectKey);

/// Changes that are checked but not applied yet, by place.
#[derive(Default)]
pub(super) struct Overlay(HashMap<Place, Option<Arc<Stored>>>);

impl Overlay {
    pub(super) fn add(&mut self, prepared: &[Prepared]) {
        for change in prepared {
            let place = (
                change.cluster.clone(),
                change.event.resource.clone(),
                change.event.object.key.clone(),
            );
            let now =
                (change.event.kind != EventKind::Deleted).then(|| Arc::clone(&change.event.object));
            self.0.insert(place, now);
        }
    }
}

/// A change with its revision, ready to be stored and applied.
pub(super) struct Prepared {
    pub(super) cluster: ClusterName,
    pub(super) event: Arc<Event>,
}

impl State {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Puts an object back that was read from disk.
    pub(super) fn restore(
        &mut self,
        cluster: &ClusterName,
        resource: &ResourceName,
        stored: Stored,
    ) {
        self.revision = self.revision.max(stored.revision);
        self.resource(cluster, resource)
            .objects
            .insert(stored.key.clone(), Arc::new(stored));
    }

    /// After everything was put back: the history begins here.
    pub(super) fn restored(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
        for cluster in self.clusters.values_mut() {
            cluster.since = self.revision;
            for resource in cluster.resources.values_mut() {
                resource.oldest = self.revision;
            }
        }
    }

    fn resource(&mut self, cluster: &ClusterName, resource: &ResourceName) -> &mut Resource {
        let cluster = self.cluster(cluster);
        // A resource that nothing was written to has missed nothing since its cluster began, so that a watch from an
        // empty list is served though other resources changed in between.
        let oldest = cluster.since;
        cluster
            .resources
            .entry(resource.clone())
            .or_insert_with(|| Resource::new(oldest))
    }

    fn cluster(&mut self, cluster: &ClusterName) -> &mut Cluster {
        let since = self.revision;
        self.clusters
            .entry(cluster.clone())
            .or_insert_with(|| Cluster {
                since,
                ..Cluster::default()
            })
    }

    fn find(&self, cluster: &ClusterName, resource: &ResourceName) -> Option<&Resource> {
        self.clusters.get(cluster)?.resources.get(resource)
    }

    pub(super) fn get(
        &self,
        cluster: &ClusterName,
        resource: &ResourceName,
        key: &ObjectKey,
    ) -> Option<Arc<Stored>> {
        self.find(cluster, resource)?.objects.get(key).cloned()
    }

    pub(super) fn count(&self, cluster: &ClusterName, resource: &ResourceName) -> usize {
        self.find(cluster, resource).map_or(0, |r| r.objects.len())
    }

    pub(super) fn list(
        &self,
        cluster: &ClusterName,
        resource: &ResourceName,
        namespace: Option<&str>,
    ) -> Snapshot {
        let items = match (self.find(cluster, resource), namespace) {
            (None, _) => Vec::new(),
            (Some(found), None) => found.objects.values().cloned().collect(),
            (Some(found), Some(namespace)) => found
                .objects
                .range(ObjectKey::new(namespace, "")..)
                .take_while(|(key, _)| &*key.namespace == namespace)
                .map(|(_, stored)| Arc::clone(stored))
                .collect(),
        };
        Snapshot {
            revision: self.revision,
            items,
        }
    }

    pub(super) fn clusters(&self) -> Vec<ClusterName> {
        let mut names: Vec<_> = self
            .clusters
            .iter()
            .filter(|(_, cluster)| cluster.resources.values().any(|r| !r.objects.is_empty()))
            .map(|(name, _)| name.clone())
            .collect();
        names.sort();
        names
    }

    /// What each write finds, if all find what they expect.
    pub(super) fn check(
        &self,
        writes: &[Write],
        overlay: &Overlay,
    ) -> Result<Vec<Option<Arc<Stored>>>, CommitError> {
        let mut found = Vec::with_capacity(writes.len());
        for (index, write) in writes.iter().enumerate() {
            let place = (
                write.cluster.clone(),
                write.resource.clone(),
                write.key.clone(),
            );
            let current = match overlay.0.get(&place) {
                Some(pending) => pending.clone(),
                None => self.get(&write.cluster, &write.resource, &write.key),
            };
            let fits = match (write.expect, &current) {
                (Expect::Absent, current) => current.is_none(),
                (Expect::Revision(revision), Some(current)) => current.revision == revision,
                (Expect::Revision(_), None) => false,
            };
            if !fits {
                return Err(CommitError::Conflict { index, current });
            }
            found.push(current);
        }
        Ok(found)
    }

    /// Gives checked writes their revisions, after `revision`.
    pub(super) fn prepare(
        &self,
        writes: Vec<Write>,
        found: Vec<Option<Arc<Stored>>>,
        mut revision: u64,
    ) -> Vec<Prepared> {
        let mut prepared = Vec::with_capacity(writes.len());
        for (write, previous) in writes.into_iter().zip(found) {
            let (kind, object, fields) = match (write.content, &previous) {
                (Content::Put { object, fields }, None) => {
                    (EventKind::Added, object, pairs(fields))
                }
                (Content::Put { object, fields }, Some(_)) => {
                    (EventKind::Modified, object, pairs(fields))
                }
                (Content::Delete, Some(last)) => {
                    (EventKind::Deleted, last.value(), last.fields.clone())
                }
                // A deletion that expects absence asks for nothing.
                (Content::Delete, None) => continue,
            };
            revision += 1;
            let object = Arc::new(stored(write.key, object, fields, revision));
            prepared.push(Prepared {
                cluster: write.cluster,
                event: Arc::new(Event {
                    resource: write.resource,
                    kind,
                    object,
                    previous,
                    revision,
                }),
            });
        }
        prepared
    }

    /// Makes prepared changes visible and tells watchers.
    pub(super) fn apply(&mut self, prepared: Vec<Prepared>) -> Vec<Arc<Stored>> {
        let mut objects = Vec::with_capacity(prepared.len());
        for Prepared { cluster, event } in prepared {
            let resource = self.resource(&cluster, &event.resource);
            let key = event.object.key.clone();
            match event.kind {
                EventKind::Added | EventKind::Modified => {
                    resource.objects.insert(key, Arc::clone(&event.object));
                }
                EventKind::Deleted => {
                    resource.objects.remove(&key);
                }
            }
            resource.history.push_back(Arc::clone(&event));
            if resource.history.len() > HISTORY
                && let Some(dropped) = resource.history.pop_front()
            {
                resource.oldest = dropped.revision;
            }
            resource.news.send_replace(event.revision);
            self.revision = event.revision;
            objects.push(Arc::clone(&event.object));
            if let Some(cluster) = self.clusters.get_mut(&cluster) {
                cluster
                    .followers
                    .retain(|follower| follower.send(Arc::clone(&event)).is_ok());
            }
        }
        objects
    }

    pub(super) fn follow(
        &mut self,
        cluster: &ClusterName,
        resource: &ResourceName,
        after: u64,
    ) -> Result<watch::Receiver<u64>, Expired> {
        let found = self.resource(cluster, resource);
        if after < found.oldest {
            return Err(Expired {
                asked: after,
                oldest: found.oldest,
            });
        }
        Ok(found.news.subscribe())
    }

    pub(super) fn events(
        &self,
        cluster: &ClusterName,
        resource: &ResourceName,
        after: u64,
    ) -> Result<Batch, Expired> {
        let found = self.find(cluster, resource).ok_or(Expired {
            asked: after,
            oldest: u64::MAX,
        })?;
        if after < found.oldest {
            return Err(Expired {
                asked: after,
                oldest: found.oldest,
            });
        }
        let start = found
            .history
            .partition_point(|event| event.revision <= after);
        Ok(Batch {
            events: found.history.range(start..).cloned().collect(),
            revision: self.revision.max(after),
        })
    }

    pub(super) fn follow_cluster(&mut self, cluster: &ClusterName) -> super::Followed {
        let (sender, receiver) = mpsc::unbounded_channel();
        let found = self.cluster(cluster);
        found.followers.push(sender);
        let mut all = Vec::new();
        for (name, resource) in &found.resources {
            all.extend(
                resource
                    .objects
                    .values()
                    .map(|stored| (name.clone(), Arc::clone(stored))),
            );
        }
        (all, receiver)
    }

    /// Forgets a cluster; its watchers find their channel closed.
    pub(super) fn drop_cluster(&mut self, cluster: &ClusterName) {
        self.clusters.remove(cluster);
    }
}

fn pairs(fields: Vec<(String, String)>) -> Box<[(Box<str>, Box<str>)]> {
    fields
        .into_iter()
        .map(|(key, value)| (key.into(), value.into()))
        .collect()
}

fn stored(
    key: ObjectKey,
    mut object: Value,
    fields: Box<[(Box<str>, Box<str>)]>,
    revision: u64,
) -> Stored {
    if let Some(root) = object.as_object_mut() {
        let meta = root
            .entry("metadata")
            .or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert("resourceVersion".into(), revision.to_string().into());
        }
    }
    let json = serde_json::to_vec(&object).expect("a JSON value has string keys only");
    from_parts(key, &object, json.into(), fields, revision)
}

/// Takes from the object what is looked at without parsing it again.
pub(super) fn from_parts(
    key: ObjectKey,
    object: &Value,
    json: Bytes,
    fields: Box<[(Box<str>, Box<str>)]>,
    revision: u64,
) -> Stored {
    let meta = &object["metadata"];
    let mut labels: Vec<(Box<str>, Box<str>)> = meta["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into())))
        .collect();
    labels.sort();
    let owners = meta["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|owner| Some(owner["uid"].as_str()?.into()))
        .collect();
    Stored {
        key,
        revision,
        json,
        uid: meta["uid"].as_str().unwrap_or_default().into(),
        labels: labels.into(),
        owners,
        fields,
    }
}

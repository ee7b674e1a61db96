//! The cache of one kind: objects, indexes, subscribers.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::{self, Debug};
use std::sync::{Arc, PoisonError, RwLock};

use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

/// Name of an object within its kind; `namespace` is empty for cluster-scoped kinds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of a namespaced object.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of `object`.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

impl Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What happened to one object: `old` is absent for a new one, `new` for one that is gone.
#[derive(Debug)]
pub struct Change<K> {
    /// The object as it was cached before.
    pub old: Option<Arc<K>>,
    /// The object as it is cached now.
    pub new: Option<Arc<K>>,
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        Self {
            old: self.old.clone(),
            new: self.new.clone(),
        }
    }
}

impl<K> Change<K> {
    /// The object before and after, whichever exist. Keys that a reconciler derives from a change come from both, so
    /// that what an object left behind is looked at too.
    pub fn either(&self) -> impl Iterator<Item = &Arc<K>> {
        self.old.iter().chain(self.new.iter())
    }
}

/// Handle of an index that was declared with [`Builder::index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index(usize);

/// The cache did not become complete since its watch task ended.
#[derive(Debug, thiserror::Error)]
#[error("the watch of {kind} ended before its first list was complete")]
pub struct SyncError {
    kind: &'static str,
}

type IndexFn<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Declares an [`Informer`].
pub struct Builder<K> {
    api: Api<K>,
    config: watcher::Config,
    indexes: Vec<IndexFn<K>>,
}

impl<K> Builder<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Restricts what is watched; default everything that `api` reaches.
    pub fn config(mut self, config: watcher::Config) -> Self {
        self.config = config;
        self
    }

    /// Declares an index: `keys` returns the values under which an object is found.
    pub fn index(&mut self, keys: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Index {
        self.indexes.push(Box::new(keys));
        Index(self.indexes.len() - 1)
    }

    /// Starts the watch. It ends when the last clone of the informer is dropped.
    pub fn start(self) -> Informer<K> {
        let (synced, _) = watch::channel(false);
        let shared = Arc::new(Shared {
            state: RwLock::new(State::new(self.indexes)),
            synced,
        });
        let mirror = Arc::clone(&shared);
        let (api, config) = (self.api, self.config);
        let task = tokio::spawn(async move { mirror.follow(api, config).await });
        Informer(Arc::new(Handle {
            shared,
            task: task.abort_handle(),
        }))
    }
}

/// A cached, indexed view of one kind; cheap to clone.
pub struct Informer<K>(Arc<Handle<K>>);

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Informer<{}>", std::any::type_name::<K>())
    }
}

struct Handle<K> {
    shared: Arc<Shared<K>>,
    task: tokio::task::AbortHandle,
}

impl<K> Drop for Handle<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<K> Informer<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Begins the declaration of a cache over what `api` reaches.
    pub fn builder(api: Api<K>) -> Builder<K> {
        Builder {
            api,
            config: watcher::Config::default(),
            indexes: Vec::new(),
        }
    }

    /// Waits until the first list is complete.
    ///
    /// # Errors
    /// When the watch task ended before.
    pub async fn synced(&self) -> Result<(), SyncError> {
        let mut synced = self.0.shared.synced.subscribe();
        match synced.wait_for(|done| *done).await {
            Ok(_) => Ok(()),
            Err(_) => Err(SyncError {
                kind: std::any::type_name::<K>(),
            }),
        }
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        *self.0.shared.synced.borrow()
    }

    /// The object of that key.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.0.shared.read(|state| state.objects.get(key).cloned())
    }

    /// All objects that `index` holds under `value`, by key.
    pub fn by(&self, index: Index, value: &str) -> Vec<Arc<K>> {
        self.0.shared.read(|state| {
            let Some(keys) = state.maps[index.0].get(value) else {
                return Vec::new();
            };
            keys.iter()
                .filter_map(|key| state.objects.get(key).cloned())
                .collect()
        })
    }

    /// How many objects `index` holds under `value`.
    pub fn count(&self, index: Index, value: &str) -> usize {
        self.0
            .shared
            .read(|state| state.maps[index.0].get(value).map_or(0, BTreeSet::len))
    }

    /// Every object, by key. Walks the whole cache: for starts and for answers that are about everything.
    pub fn walk_all(&self) -> Vec<Arc<K>> {
        self.0.shared.read(|state| {
            let sorted: BTreeMap<_, _> = state.objects.iter().collect();
            sorted.into_values().cloned().collect()
        })
    }

    /// How many objects are cached.
    pub fn len(&self) -> usize {
        self.0.shared.read(|state| state.objects.len())
    }

    /// Whether nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every change from now on, after one change for each object that is cached already.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Change<K>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.shared.write(|state| {
            for object in state.objects.values() {
                let new = Some(Arc::clone(object));
                // The receiver is alive: it is returned below.
                let _ = sender.send(Change { old: None, new });
            }
            state.subscribers.push(sender);
        });
        receiver
    }

    /// Takes over what the API answered to a write, unless the cache has something newer.
    pub fn absorb(&self, mut object: K) {
        object.meta_mut().managed_fields = None;
        self.0.shared.write(|state| {
            let gone = object
                .meta()
                .uid
                .as_ref()
                .is_some_and(|uid| state.tombs.contains(uid));
            if !gone {
                state.put(object);
            }
        });
    }
}

struct Shared<K> {
    state: RwLock<State<K>>,
    synced: watch::Sender<bool>,
}

impl<K> Shared<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    async fn follow(&self, api: Api<K>, config: watcher::Config) {
        let events = watcher(api, config).default_backoff();
        let mut events = std::pin::pin!(events);
        let mut listed: Option<HashSet<Key>> = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => listed = Some(HashSet::new()),
                Ok(watcher::Event::InitApply(object)) => {
                    if let Some(listed) = &mut listed {
                        listed.insert(Key::of(&object));
                    }
                    self.put(object);
                }
                Ok(watcher::Event::InitDone) => {
                    if let Some(listed) = listed.take() {
                        self.write(|state| state.keep_only(&listed));
                    }
                    self.synced.send_replace(true);
                }
                Ok(watcher::Event::Apply(object)) => self.put(object),
                Ok(watcher::Event::Delete(object)) => {
                    self.write(|state| state.remove(&Key::of(&object), Some(&object)));
                }
                Err(error) => {
                    tracing::debug!(kind = std::any::type_name::<K>(), %error, "watch interrupted, trying again");
                }
            }
        }
    }

    fn put(&self, mut object: K) {
        object.meta_mut().managed_fields = None;
        self.write(|state| state.put(object));
    }
}

impl<K> Shared<K> {
    // A poisoned lock means that an index function panicked between two whole updates; the maps are still usable.
    fn read<T>(&self, f: impl FnOnce(&State<K>) -> T) -> T {
        f(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut State<K>) -> T) -> T {
        f(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// UIDs of objects that were seen to be gone, so that a late answer does not bring one back. Bounded: a write's answer is
/// absorbed within moments, and this many deletions lie far beyond that.
struct Tombs {
    order: VecDeque<String>,
    uids: HashSet<String>,
}

impl Tombs {
    const LIMIT: usize = 4096;

    fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    fn add(&mut self, uid: String) {
        if self.uids.insert(uid.clone()) {
            self.order.push_back(uid);
        }
        if self.order.len() > Self::LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }
}

struct State<K> {
    objects: HashMap<Key, Arc<K>>,
    index_fns: Vec<IndexFn<K>>,
    maps: Vec<HashMap<String, BTreeSet<Key>>>,
    subscribers: Vec<mpsc::UnboundedSender<Change<K>>>,
    tombs: Tombs,
}

impl<K: Resource> State<K> {
    fn new(index_fns: Vec<IndexFn<K>>) -> Self {
        Self {
            objects: HashMap::new(),
            maps: index_fns.iter().map(|_| HashMap::new()).collect(),
            index_fns,
            subscribers: Vec::new(),
            tombs: Tombs {
                order: VecDeque::new(),
                uids: HashSet::new(),
            },
        }
    }

    fn put(&mut self, object: K) {
        let key = Key::of(&object);
        let old = self.objects.get(&key).cloned();
        if let Some(old) = &old
            && !is_newer(&object, old)
        {
            return;
        }
        if let Some(old) = &old {
            self.unindex(&key, old);
            if old.meta().uid != object.meta().uid
                && let Some(uid) = old.meta().uid.clone()
            {
                self.tombs.add(uid);
            }
        }
        for (index, map) in self.index_fns.iter().zip(&mut self.maps) {
            for value in index(&object) {
                map.entry(value).or_default().insert(key.clone());
            }
        }
        let new = Arc::new(object);
        self.objects.insert(key, Arc::clone(&new));
        self.publish(Change {
            old,
            new: Some(new),
        });
    }

    /// Removes the object of that key; with `gone`, only when it is that very object.
    fn remove(&mut self, key: &Key, gone: Option<&K>) {
        if let Some(uid) = gone.and_then(|gone| gone.meta().uid.clone()) {
            self.tombs.add(uid);
        }
        let Some(old) = self.objects.get(key).cloned() else {
            return;
        };
        if gone.is_some_and(|gone| gone.meta().uid != old.meta().uid) {
            return;
        }
        if let Some(uid) = old.meta().uid.clone() {
            self.tombs.add(uid);
        }
        self.unindex(key, &old);
        self.objects.remove(key);
        self.publish(Change {
            old: Some(old),
            new: None,
        });
    }

    fn keep_only(&mut self, listed: &HashSet<Key>) {
        let gone: Vec<Key> = self
            .objects
            .keys()
            .filter(|key| !listed.contains(*key))
            .cloned()
            .collect();
        for key in gone {
            self.remove(&key, None);
        }
    }

    fn unindex(&mut self, key: &Key, old: &K) {
        for (index, map) in self.index_fns.iter().zip(&mut self.maps) {
            for value in index(old) {
                if let Some(keys) = map.get_mut(&value) {
                    keys.remove(key);
                    if keys.is_empty() {
                        map.remove(&value);
                    }
                }
            }
        }
    }

    fn publish(&mut self, change: Change<K>) {
        self.subscribers
            .retain(|subscriber| subscriber.send(change.clone()).is_ok());
    }
}

/// Whether `new` is to replace `old`. Resource versions are compared as numbers, which Kubernetes allows since 1.35;
/// where one is not a number, what came last wins.
fn is_newer<K: Resource>(new: &K, old: &K) -> bool {
    let version =
        |object: &K| -> Option<u64> { object.meta().resource_version.as_deref()?.parse().ok() };
    match (version(new), version(old)) {
        (Some(new), Some(old)) => new > old,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(name: &str, uid: &str, version: u64, label: &str) -> ConfigMap {
        serde_json::from_value(serde_json::json!({
            "metadata": {"namespace": "default", "name": name, "uid": uid,
                "resourceVersion": version.to_string(), "labels": {"team": label}}
        }))
        .unwrap()
    }

    fn state() -> State<ConfigMap> {
        State::new(vec![Box::new(|object: &ConfigMap| {
            object
                .metadata
                .labels
                .iter()
                .flatten()
                .map(|(_, value)| value.clone())
                .collect()
        })])
    }

    fn under<'a>(state: &'a State<ConfigMap>, value: &str) -> Vec<&'a str> {
        state.maps[0]
            .get(value)
            .map(|keys| keys.iter().map(|key| key.name.as_str()).collect())
            .unwrap_or_default()
    }

    #[test]
    fn an_object_moves_between_index_values_and_leaves_nothing_behind() {
        let mut state = state();
        state.put(object("a", "u1", 1, "red"));
        state.put(object("b", "u2", 2, "red"));
        state.put(object("a", "u1", 3, "blue"));
        assert_eq!(under(&state, "red"), ["b"]);
        assert_eq!(under(&state, "blue"), ["a"]);
        state.remove(&Key::new("default", "a"), None);
        assert!(!state.maps[0].contains_key("blue"));
    }

    #[test]
    fn an_older_version_never_replaces_a_newer_one() {
        let mut state = state();
        state.put(object("a", "u1", 10, "new"));
        state.put(object("a", "u1", 9, "old"));
        assert_eq!(under(&state, "new"), ["a"]);
    }

    #[test]
    fn the_deletion_of_a_former_namesake_leaves_the_present_object() {
        let mut state = state();
        state.put(object("a", "u2", 5, "red"));
        state.remove(
            &Key::new("default", "a"),
            Some(&object("a", "u1", 4, "red")),
        );
        assert_eq!(under(&state, "red"), ["a"]);
        assert!(state.tombs.contains("u1"));
    }

    #[test]
    fn a_relist_drops_what_is_not_in_it() {
        let mut state = state();
        state.put(object("a", "u1", 1, "red"));
        state.put(object("b", "u2", 2, "red"));
        state.keep_only(&HashSet::from([Key::new("default", "b")]));
        assert_eq!(under(&state, "red"), ["b"]);
    }
}

//! Durability: one redb file, one writer thread that collects waiting commits into one transaction.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, mpsc};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::sync::oneshot;

use super::state::{Overlay, Prepared, State, from_parts};
use super::{
    ClusterName, CommitError, EventKind, ObjectKey, ResourceName, Stored, Write, read, write,
};

/// Objects: key is cluster, group, plural, namespace and name, each ended by a zero byte.
const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
/// Numbers by name: `format` and `revision`.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Of the layout above.
const FORMAT: u64 = 1;
/// How many commits share a transaction at most; beyond this the gain is small and the first one waits longer.
const GROUP: usize = 512;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "{} is in use by another process; stop it, or choose another directory with --data-dir",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The file is not one that this version can read.
    #[error(
        "the store {} cannot be read: {why}; restore it from a backup, or move it away to start empty",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

enum Request {
    Commit {
        writes: Vec<Write>,
        answer: oneshot::Sender<Result<Vec<Arc<Stored>>, CommitError>>,
    },
    DropCluster {
        cluster: ClusterName,
        answer: oneshot::Sender<Result<(), CommitError>>,
    },
    Close {
        answer: oneshot::Sender<()>,
    },
}

/// Handle of the writer thread.
pub(super) struct Writer {
    requests: mpsc::Sender<Request>,
}

impl Writer {
    /// Opens the file in `directory`, reads it into `state`, starts the thread.
    pub(super) fn open(directory: &Path, state: Arc<RwLock<State>>) -> Result<Self, OpenError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { what, path, source }
        };
        fs::create_dir_all(directory).map_err(io("creating", directory))?;
        // Secrets are among what is stored.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
            .map_err(io("protecting", directory))?;
        let lock_path = directory.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(io("opening", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse {
                    path: directory.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io("locking", &lock_path)(source)),
        }
        let path = directory.join("store.redb");
        let database = load(&path, &state).map_err(|why| OpenError::Damaged {
            path: path.clone(),
            why,
        })?;
        let (requests, inbox) = mpsc::channel();
        std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                run(&database, &state, &inbox);
                drop(database);
                drop(lock);
            })
            .map_err(io("starting the writer of", &path))?;
        Ok(Self { requests })
    }

    pub(super) async fn commit(&self, writes: Vec<Write>) -> Result<Vec<Arc<Stored>>, CommitError> {
        let (answer, answered) = oneshot::channel();
        self.send(Request::Commit { writes, answer })?;
        answered.await.unwrap_or(Err(CommitError::Closed))
    }

    pub(super) async fn drop_cluster(&self, cluster: ClusterName) -> Result<(), CommitError> {
        let (answer, answered) = oneshot::channel();
        self.send(Request::DropCluster { cluster, answer })?;
        answered.await.unwrap_or(Err(CommitError::Closed))
    }

    pub(super) async fn close(&self) {
        let (answer, answered) = oneshot::channel();
        if self.send(Request::Close { answer }).is_ok() {
            // The thread may have ended already, which is what is wanted.
            let _ = answered.await;
        }
    }

    fn send(&self, request: Request) -> Result<(), CommitError> {
        self.requests.send(request).map_err(|_| CommitError::Closed)
    }
}

fn load(path: &Path, state: &RwLock<State>) -> Result<Database, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let database = Database::create(path).map_err(|e| text(&e))?;
    let setup = database.begin_write().map_err(|e| text(&e))?;
    {
        let mut meta = setup.open_table(META).map_err(|e| text(&e))?;
        let format = meta.get("format").map_err(|e| text(&e))?.map(|v| v.value());
        match format {
            None => {
                meta.insert("format", FORMAT).map_err(|e| text(&e))?;
            }
            Some(FORMAT) => {}
            Some(other) => {
                return Err(format!(
                    "its format is {other}, and this version knows {FORMAT}"
                ));
            }
        }
        setup.open_table(OBJECTS).map_err(|e| text(&e))?;
    }
    setup.commit().map_err(|e| text(&e))?;

    let reading = database.begin_read().map_err(|e| text(&e))?;
    let meta = reading.open_table(META).map_err(|e| text(&e))?;
    let revision = meta
        .get("revision")
        .map_err(|e| text(&e))?
        .map_or(0, |v| v.value());
    let objects = reading.open_table(OBJECTS).map_err(|e| text(&e))?;
    let mut state = write(state);
    for row in objects.iter().map_err(|e| text(&e))? {
        let (key, value) = row.map_err(|e| text(&e))?;
        let (cluster, resource, key) = decode_key(key.value())?;
        let stored = decode_value(key, value.value())?;
        state.restore(&cluster, &resource, stored);
    }
    state.restored(revision);
    drop(state);
    Ok(database)
}

fn run(database: &Database, state: &RwLock<State>, inbox: &mpsc::Receiver<Request>) {
    while let Ok(first) = inbox.recv() {
        let mut commits = Vec::new();
        let mut next = Some(first);
        let mut after = None;
        while let Some(request) = next.take() {
            match request {
                Request::Commit { writes, answer } => {
                    commits.push((writes, answer));
                    if commits.len() < GROUP {
                        next = inbox.try_recv().ok();
                    }
                }
                other => after = Some(other),
            }
        }
        commit_group(database, state, commits);
        match after {
            Some(Request::DropCluster { cluster, answer }) => {
                let done = remove_cluster(database, &cluster);
                if done.is_ok() {
                    write(state).drop_cluster(&cluster);
                }
                // Whoever asked may have gone away; the cluster is gone all the same.
                let _ = answer.send(done.map_err(CommitError::Disk));
            }
            Some(Request::Close { answer }) => {
                let _ = answer.send(());
                return;
            }
            Some(Request::Commit { .. }) | None => {}
        }
    }
}

type Answer = oneshot::Sender<Result<Vec<Arc<Stored>>, CommitError>>;

fn commit_group(database: &Database, state: &RwLock<State>, commits: Vec<(Vec<Write>, Answer)>) {
    let mut overlay = Overlay::default();
    let mut ready: Vec<(Vec<Prepared>, Answer)> = Vec::with_capacity(commits.len());
    {
        let state = read(state);
        let mut revision = state.revision();
        for (writes, answer) in commits {
            match state.check(&writes, &overlay) {
                Ok(found) => {
                    let prepared = state.prepare(writes, found, revision);
                    revision += prepared.len() as u64;
                    overlay.add(&prepared);
                    ready.push((prepared, answer));
                }
                // An answer that nobody waits for any more needs no delivery, here and below.
                Err(refused) => drop(answer.send(Err(refused))),
            }
        }
    }
    if ready.is_empty() {
        return;
    }
    match persist(database, ready.iter().flat_map(|(prepared, _)| prepared)) {
        Ok(()) => {
            let mut state = write(state);
            for (prepared, answer) in ready {
                let objects = state.apply(prepared);
                drop(answer.send(Ok(objects)));
            }
        }
        Err(why) => {
            tracing::error!(%why, "the store cannot be written; nothing of this group was done");
            for (_, answer) in ready {
                drop(answer.send(Err(CommitError::Disk(why.clone()))));
            }
        }
    }
}

fn persist<'a>(
    database: &Database,
    changes: impl Iterator<Item = &'a Prepared>,
) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    // The default durability is Immediate: the commit returns after the data was synced.
    let transaction = database.begin_write().map_err(|e| text(&e))?;
    {
        let mut objects = transaction.open_table(OBJECTS).map_err(|e| text(&e))?;
        let mut last = None;
        for change in changes {
            let event = &change.event;
            let key = encode_key(&change.cluster, &event.resource, &event.object.key);
            match event.kind {
                EventKind::Added | EventKind::Modified => {
                    let value = encode_value(&event.object);
                    objects
                        .insert(key.as_slice(), value.as_slice())
                        .map_err(|e| text(&e))?;
                }
                EventKind::Deleted => {
                    objects.remove(key.as_slice()).map_err(|e| text(&e))?;
                }
            }
            last = Some(event.revision);
        }
        if let Some(revision) = last {
            let mut meta = transaction.open_table(META).map_err(|e| text(&e))?;
            meta.insert("revision", revision).map_err(|e| text(&e))?;
        }
    }
    transaction.commit().map_err(|e| text(&e))
}

fn remove_cluster(database: &Database, cluster: &ClusterName) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut first = cluster.as_str().as_bytes().to_vec();
    let mut end = first.clone();
    first.push(0);
    end.push(1);
    let transaction = database.begin_write().map_err(|e| text(&e))?;
    {
        let mut objects = transaction.open_table(OBJECTS).map_err(|e| text(&e))?;
        objects
            .retain_in(first.as_slice()..end.as_slice(), |_, _| false)
            .map_err(|e| text(&e))?;
    }
    transaction.commit().map_err(|e| text(&e))
}

fn encode_key(cluster: &ClusterName, resource: &ResourceName, key: &ObjectKey) -> Vec<u8> {
    let parts = [
        cluster.as_str(),
        &resource.group,
        &resource.plural,
        &key.namespace,
        &key.name,
    ];
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 1).sum());
    for part in parts {
        bytes.extend_from_slice(part.as_bytes());
        bytes.push(0);
    }
    bytes
}

fn decode_key(bytes: &[u8]) -> Result<(ClusterName, ResourceName, ObjectKey), String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("a key is not text: {error}"))?;
    let parts: Vec<&str> = text.split('\0').collect();
    let [cluster, group, plural, namespace, name, ""] = parts[..] else {
        return Err(format!("a key has {} parts instead of 6", parts.len()));
    };
    Ok((
        ClusterName::new(cluster),
        ResourceName::new(group, plural),
        ObjectKey::new(namespace, name),
    ))
}

/// Layout of a value: revision, length of the selectable fields as JSON, these fields, the object as JSON.
fn encode_value(stored: &Stored) -> Vec<u8> {
    let fields = serde_json::to_vec(&stored.fields).expect("pairs of strings are JSON");
    let mut bytes = Vec::with_capacity(16 + fields.len() + stored.json.len());
    bytes.extend_from_slice(&stored.revision.to_le_bytes());
    bytes.extend_from_slice(&(fields.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&fields);
    bytes.extend_from_slice(&stored.json);
    bytes
}

fn decode_value(key: ObjectKey, bytes: &[u8]) -> Result<Stored, String> {
    let broken = |what: &str| format!("the object {}/{} {what}", key.namespace, key.name);
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let (Some(revision), Some(length)) = (number(0), number(8)) else {
        return Err(broken("is cut off"));
    };
    let middle = usize::try_from(length)
        .ok()
        .and_then(|length| length.checked_add(16))
        .filter(|middle| *middle <= bytes.len())
        .ok_or_else(|| broken("is cut off"))?;
    let fields = serde_json::from_slice(&bytes[16..middle]).map_err(|e| broken(&e.to_string()))?;
    let json = bytes[middle..].to_vec();
    let object = serde_json::from_slice(&json).map_err(|e| broken(&e.to_string()))?;
    Ok(from_parts(key, &object, json.into(), fields, revision))
}

//! Writes: what happens between a request and the commit.
//!
//! Every write is: read the current object from memory, compute the new one as a value, check it, commit it on the
//! condition that nobody was faster, and else begin again. Nothing here holds a lock across an await, lists a resource
//! (but an eviction its namespace's budgets), or waits for anything but the commit.

mod admission;
mod binding;
mod create;
mod decode;
mod delete;
mod eviction;
mod finalize;
pub mod meta;
mod patch;
mod scale;
mod update;
mod validity;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use bytes::Bytes;
use muster_clock::Clock;
use serde_json::{Value, json};

pub use delete::{DeleteOptions, Deleted, Propagation};
pub use eviction::parse_delete_options;
pub use patch::PatchKind;

use crate::failure::Failure;
use crate::machinery::apply::{Manager, Operation};
use crate::registry::{Kind, Registry, convert, crd};
use crate::storage::{
    ClusterName, CommitError, Content, Expect, ObjectKey, ResourceName, Storage, Stored, Write,
};

/// How often a write begins again because others were faster, before it says so.
const ATTEMPTS: usize = 256;

/// A logical cluster's inner engine.
pub struct Cluster {
    /// Its name in the storage.
    pub name: ClusterName,
    /// Where everything is.
    pub storage: Storage,
    /// The kinds that it serves.
    pub registry: Registry,
    /// The time.
    pub clock: Clock,
}

/// What to do with fields that the schema does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and say so.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// What a write request says beside its body.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Do everything but the commit.
    pub dry_run: bool,
    /// The `fieldManager` parameter.
    pub field_manager: Option<String>,
    /// The manager that the user agent stands for, used when the parameter is absent.
    pub user_agent_manager: String,
    /// What to do with unknown and duplicate fields.
    pub validation: FieldValidation,
    /// Who asks.
    pub user: String,
    /// For apply: take fields from other managers.
    pub force: bool,
    /// Fields that the body had more than once, found when it was parsed.
    pub duplicates: Vec<String>,
}

impl Options {
    /// The manager under whose name this write is recorded.
    fn manager(
        &self,
        kind: &Kind,
        operation: Operation,
        subresource: Option<&str>,
        cluster: &Cluster,
    ) -> Manager {
        Manager {
            name: self
                .field_manager
                .clone()
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| self.user_agent_manager.clone()),
            operation,
            api_version: kind.api_version(),
            subresource: subresource.map(str::to_owned),
            time: cluster.clock.now(),
        }
    }
}

/// What a write came to.
#[derive(Debug)]
pub struct Written {
    /// The object as it is now, in the version asked for.
    pub object: Body,
    /// Whether it was not there before.
    pub created: bool,
    /// For the `Warning` headers.
    pub warnings: Vec<String>,
}

/// A response body: the stored bytes when they are what was asked for, else a value.
#[derive(Clone, Debug)]
pub enum Body {
    /// As it is stored.
    Stored(Arc<Stored>),
    /// Made for this response.
    Value(Value),
}

impl Body {
    /// The stored object in `kind`'s version.
    pub fn of(kind: &Kind, stored: Arc<Stored>) -> Self {
        if convert::needs_conversion(kind) {
            Self::Value(convert::from_storage(kind, stored.value()))
        } else {
            Self::Stored(stored)
        }
    }

    /// As JSON text.
    pub fn bytes(&self) -> Bytes {
        match self {
            Self::Stored(stored) => stored.json.clone(),
            Self::Value(value) => value.to_string().into(),
        }
    }

    /// As a JSON value.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Stored(stored) => stored.value(),
            Self::Value(value) => value.clone(),
        }
    }
}

impl Cluster {
    /// The engine of the logical cluster of that name, with the kinds that its stored definitions define.
    pub fn open(name: ClusterName, storage: Storage, clock: Clock) -> Arc<Self> {
        let cluster = Self {
            name,
            storage,
            registry: Registry::new(),
            clock,
        };
        let definitions = cluster.storage.list(&cluster.name, &definitions(), None);
        for stored in definitions.items {
            cluster.serve(&stored);
        }
        Arc::new(cluster)
    }

    /// Makes what every cluster has from the start and this one lacks: its namespaces and the system's priorities.
    ///
    /// # Errors
    /// When the storage refuses.
    pub async fn furnish(&self) -> Result<(), Failure> {
        let options = Options {
            user_agent_manager: "muster".to_owned(),
            ..Options::default()
        };
        let mut wanted = Vec::new();
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            wanted.push(("", "Namespace", json!({"metadata": {"name": name}})));
        }
        for (name, value) in [
            ("system-cluster-critical", 2_000_000_000),
            ("system-node-critical", 2_000_001_000),
        ] {
            let object = json!({"metadata": {"name": name}, "value": value});
            wanted.push(("scheduling.k8s.io", "PriorityClass", object));
        }
        for (group, kind, object) in wanted {
            let kind = self
                .registry
                .by_kind(group, "v1", kind)
                .ok_or_else(|| Failure::internal(format!("kind {kind} is not served")))?;
            let key = key(&kind, "", meta::name(&object));
            if self
                .storage
                .get(&self.name, &kind.resource(), &key)
                .is_some()
            {
                continue;
            }
            match self.create(&kind, "", None, object, &options).await {
                Ok(_) => {}
                Err(failure) if failure.code() == 409 => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// The current state of an object.
    pub(crate) fn current(&self, kind: &Kind, key: &ObjectKey) -> Result<Arc<Stored>, Failure> {
        self.storage
            .get(&self.name, &kind.stored_as, key)
            .ok_or_else(|| Failure::not_found(kind, &key.name))
    }

    /// One write for the storage, of an object in `kind`'s version.
    pub(crate) fn put(&self, kind: &Kind, key: &ObjectKey, expect: Expect, object: Value) -> Write {
        let object = convert::to_storage(kind, object);
        Write {
            cluster: self.name.clone(),
            resource: kind.stored_as.clone(),
            key: key.clone(),
            expect,
            content: Content::Put {
                fields: kind.fields(&object),
                object,
            },
        }
    }

    /// One deletion for the storage.
    pub(crate) fn removal(&self, kind: &Kind, key: &ObjectKey, revision: u64) -> Write {
        Write {
            cluster: self.name.clone(),
            resource: kind.stored_as.clone(),
            key: key.clone(),
            expect: Expect::Revision(revision),
            content: Content::Delete,
        }
    }

    /// Commits; `None` when somebody else was faster.
    pub(crate) async fn commit(
        &self,
        writes: Vec<Write>,
    ) -> Result<Option<Vec<Arc<Stored>>>, Failure> {
        let touches_definitions = writes.iter().any(|write| {
            &*write.resource.group == crd::GROUP && &*write.resource.plural == crd::PLURAL
        });
        let deletes: Vec<bool> = writes
            .iter()
            .map(|write| matches!(write.content, Content::Delete))
            .collect();
        match self.storage.commit(writes).await {
            Ok(stored) => {
                if touches_definitions {
                    for (stored, deleted) in stored.iter().zip(deletes) {
                        if deleted {
                            self.registry.undefine(&stored.key.name, stored.revision);
                        } else {
                            self.serve(stored);
                        }
                    }
                }
                Ok(Some(stored))
            }
            Err(CommitError::Conflict { .. }) => Ok(None),
            Err(other) => Err(Failure::internal(other)),
        }
    }

    /// Serves what a stored definition defines.
    fn serve(&self, definition: &Stored) {
        match crd::kinds(&definition.value()) {
            Ok(kinds) => self
                .registry
                .define(&definition.key.name, definition.revision, kinds),
            Err(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                tracing::error!(
                    definition = &*definition.key.name,
                    errors = errors.join(", "),
                    "a stored definition cannot be served"
                );
            }
        }
    }
}

/// The storage of CustomResourceDefinitions.
pub(crate) fn definitions() -> ResourceName {
    ResourceName {
        group: crd::GROUP.into(),
        plural: crd::PLURAL.into(),
    }
}

/// Where an object of that name is stored.
pub(crate) fn key(kind: &Kind, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        namespace: if kind.namespaced {
            namespace.into()
        } else {
            "".into()
        },
        name: name.into(),
    }
}

/// What a write says after it was tried too often.
pub(crate) fn too_contended(kind: &Kind, name: &str) -> Failure {
    Failure::stale(kind, name)
}

//! Who owns whom, and what lives where, kept in step with every change of a logical cluster.
//!
//! Plain data: absorbing a change costs as much as the object has owners, and answers with what is to be looked at.
//! Because changes come in revision order, an owner that is not here is nowhere.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;

use crate::registry::crd;
use crate::storage::{ObjectKey, ResourceName, Stored};
use crate::write::meta::{FOREGROUND, ORPHAN};

/// What the collectors have to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    /// An object: its owners may be gone, or it waits for its dependents.
    Examine(Arc<str>),
    /// An object whose namespace or definition is going, or whose time is over.
    Doom(Arc<str>),
    /// A namespace that is going and has nothing left in it.
    ReleaseNamespace(Arc<str>),
    /// A definition that is going and has no objects left.
    ReleaseDefinition(Arc<str>),
}

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub resource: ResourceName,
    pub key: ObjectKey,
    pub uid: Arc<str>,
}

impl Ord for Identity {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.resource, &self.key, &self.uid).cmp(&(&other.resource, &other.key, &other.uid))
    }
}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub identity: Arc<Identity>,
    pub owners: Vec<Owner>,
    pub deleting: bool,
    pub foreground: bool,
    pub orphan: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub uid: Arc<str>,
    pub blocks: bool,
}

/// The parts of an object that matter here.
#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(default, borrow)]
    deletion_timestamp: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, borrow)]
    finalizers: Vec<std::borrow::Cow<'a, str>>,
    #[serde(default, borrow)]
    owner_references: Vec<Reference<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference<'a> {
    #[serde(borrow)]
    uid: std::borrow::Cow<'a, str>,
    #[serde(default)]
    block_owner_deletion: Option<bool>,
}

/// The objects of a logical cluster and what ties them.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: HashMap<Arc<str>, Node>,
    pub(super) dependents: HashMap<Arc<str>, BTreeSet<Arc<Identity>>>,
    pub(super) by_namespace: HashMap<Arc<str>, BTreeSet<Arc<Identity>>>,
    pub(super) by_resource: HashMap<ResourceName, BTreeSet<Arc<Identity>>>,
    pub(super) going_namespaces: HashSet<Arc<str>>,
    going_definitions: HashMap<ResourceName, Arc<str>>,
}

impl Graph {
    /// Everything that is worth a look after the start: all that has owners, all that is going.
    pub(super) fn all_tasks(&self) -> Vec<Task> {
        let mut identities: Vec<&Arc<Identity>> = self
            .nodes
            .values()
            .filter(|node| !node.owners.is_empty() || node.deleting)
            .map(|node| &node.identity)
            .collect();
        identities.sort_unstable();
        let mut tasks: Vec<Task> = identities
            .into_iter()
            .map(|found| Task::Examine(found.uid.clone()))
            .collect();
        let mut namespaces: Vec<&Arc<str>> = self.going_namespaces.iter().collect();
        namespaces.sort_unstable();
        tasks.extend(
            namespaces
                .into_iter()
                .flat_map(|name| self.namespace_going(name)),
        );
        let mut definitions: Vec<&ResourceName> = self.going_definitions.keys().collect();
        definitions.sort_unstable();
        tasks.extend(
            definitions
                .into_iter()
                .flat_map(|resource| self.definition_going(resource)),
        );
        tasks
    }

    /// Takes in an object's present state; answers with what to look at because of it.
    pub(super) fn put(&mut self, resource: &ResourceName, stored: &Stored) -> Vec<Task> {
        let Ok(parts) = serde_json::from_slice::<Parts<'_>>(&stored.json) else {
            return Vec::new();
        };
        let metadata = parts.metadata;
        let owners: Vec<Owner> = metadata
            .owner_references
            .iter()
            .map(|reference| Owner {
                uid: self.shared(&reference.uid),
                blocks: reference.block_owner_deletion.unwrap_or(false),
            })
            .collect();
        let has = |finalizer: &str| metadata.finalizers.iter().any(|found| found == finalizer);
        let deleting = metadata.deletion_timestamp.is_some();
        let (foreground, orphan) = (deleting && has(FOREGROUND), deleting && has(ORPHAN));
        let mut tasks = Vec::new();
        let uid = self.shared(&stored.uid);
        let known = self.nodes.remove(&uid);
        let (before, was_deleting, was_waiting) = match &known {
            Some(node) => (
                node.owners.clone(),
                node.deleting,
                (node.foreground, node.orphan),
            ),
            None => (Vec::new(), false, (false, false)),
        };
        let is_new = known.is_none();
        let identity = known.map_or_else(
            || {
                Arc::new(Identity {
                    resource: resource.clone(),
                    key: stored.key.clone(),
                    uid: uid.clone(),
                })
            },
            |node| node.identity,
        );
        if is_new {
            self.settle_in(&identity, &mut tasks);
        }
        if before != owners {
            for owner in &before {
                self.unlink(owner, &identity, &mut tasks);
            }
            for owner in &owners {
                self.dependents
                    .entry(owner.uid.clone())
                    .or_default()
                    .insert(identity.clone());
            }
            if !owners.is_empty() {
                tasks.push(Task::Examine(uid.clone()));
            }
        }
        if (foreground, orphan) != was_waiting {
            tasks.push(Task::Examine(uid.clone()));
            if foreground && let Some(dependents) = self.dependents.get(&uid) {
                tasks.extend(
                    dependents
                        .iter()
                        .map(|found| Task::Examine(found.uid.clone())),
                );
            }
        }
        self.nodes.insert(
            uid,
            Node {
                identity: identity.clone(),
                owners,
                deleting,
                foreground,
                orphan,
            },
        );
        if deleting && !was_deleting {
            tasks.extend(self.container_going(&identity));
        }
        tasks
    }

    /// Forgets an object; answers with what to look at because of it.
    pub(super) fn removed(&mut self, stored: &Stored) -> Vec<Task> {
        let mut tasks = Vec::new();
        let Some(node) = self.nodes.remove(&*stored.uid) else {
            return tasks;
        };
        let identity = node.identity;
        for owner in &node.owners {
            self.unlink(owner, &identity, &mut tasks);
        }
        if let Some(dependents) = self.dependents.get(&identity.uid) {
            tasks.extend(
                dependents
                    .iter()
                    .map(|found| Task::Examine(found.uid.clone())),
            );
        }
        let namespace = &identity.key.namespace;
        if let Some(content) = self.by_namespace.get_mut(namespace) {
            content.remove(&identity);
            if content.is_empty() {
                self.by_namespace.remove(namespace);
                if self.going_namespaces.contains(namespace) {
                    tasks.push(Task::ReleaseNamespace(namespace.clone()));
                }
            }
        }
        if let Some(objects) = self.by_resource.get_mut(&identity.resource) {
            objects.remove(&identity);
            if objects.is_empty() {
                self.by_resource.remove(&identity.resource);
                if let Some(definition) = self.going_definitions.get(&identity.resource) {
                    tasks.push(Task::ReleaseDefinition(definition.clone()));
                }
            }
        }
        if is_namespace(&identity.resource) {
            self.going_namespaces.remove(&identity.key.name);
            // Whatever slipped in while the namespace went has no home.
            if let Some(content) = self.by_namespace.get(&identity.key.name) {
                tasks.extend(content.iter().map(|found| Task::Doom(found.uid.clone())));
            }
        } else if is_definition(&identity.resource) {
            self.going_definitions
                .remove(&defined_by(&identity.key.name));
        }
        tasks
    }

    /// Enters a new object where it lives.
    fn settle_in(&mut self, identity: &Arc<Identity>, tasks: &mut Vec<Task>) {
        let namespace = &identity.key.namespace;
        if !namespace.is_empty() {
            self.by_namespace
                .entry(namespace.clone())
                .or_default()
                .insert(identity.clone());
            if self.going_namespaces.contains(namespace) {
                tasks.push(Task::Doom(identity.uid.clone()));
            }
        }
        self.by_resource
            .entry(identity.resource.clone())
            .or_default()
            .insert(identity.clone());
        if self.going_definitions.contains_key(&identity.resource) {
            tasks.push(Task::Doom(identity.uid.clone()));
        }
    }

    fn unlink(&mut self, owner: &Owner, dependent: &Arc<Identity>, tasks: &mut Vec<Task>) {
        if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(&owner.uid);
            }
        }
        if self
            .nodes
            .get(&owner.uid)
            .is_some_and(|node| node.foreground)
        {
            tasks.push(Task::Examine(owner.uid.clone()));
        }
    }

    /// What follows when a namespace or definition begins to go.
    fn container_going(&mut self, identity: &Identity) -> Vec<Task> {
        if is_namespace(&identity.resource) {
            self.going_namespaces.insert(identity.key.name.clone());
            self.namespace_going(&identity.key.name)
        } else if is_definition(&identity.resource) {
            let resource = defined_by(&identity.key.name);
            self.going_definitions
                .insert(resource.clone(), identity.key.name.clone());
            self.definition_going(&resource)
        } else {
            Vec::new()
        }
    }

    fn namespace_going(&self, name: &Arc<str>) -> Vec<Task> {
        match self.by_namespace.get(name) {
            Some(content) => content
                .iter()
                .map(|found| Task::Doom(found.uid.clone()))
                .collect(),
            None => vec![Task::ReleaseNamespace(name.clone())],
        }
    }

    fn definition_going(&self, resource: &ResourceName) -> Vec<Task> {
        match (
            self.by_resource.get(resource),
            self.going_definitions.get(resource),
        ) {
            (Some(objects), _) => objects
                .iter()
                .map(|found| Task::Doom(found.uid.clone()))
                .collect(),
            (None, Some(name)) => vec![Task::ReleaseDefinition(name.clone())],
            (None, None) => Vec::new(),
        }
    }

    /// A uid as it is held already, so that references share it.
    fn shared(&self, uid: &str) -> Arc<str> {
        match self.nodes.get_key_value(uid) {
            Some((known, _)) => known.clone(),
            None => self
                .dependents
                .get_key_value(uid)
                .map_or_else(|| uid.into(), |(known, _)| known.clone()),
        }
    }
}

fn is_namespace(resource: &ResourceName) -> bool {
    resource.group.is_empty() && &*resource.plural == "namespaces"
}

fn is_definition(resource: &ResourceName) -> bool {
    &*resource.group == crd::GROUP && &*resource.plural == crd::PLURAL
}

/// The resource that a definition of that name defines.
pub(super) fn defined_by(name: &str) -> ResourceName {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    ResourceName::new(group, plural)
}

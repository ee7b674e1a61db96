//! The kinds that a logical cluster serves: the built-in ones and those of its CustomResourceDefinitions.
//!
//! Everything that depends on kinds (routes, discovery, OpenAPI, tables, writes) asks here and nowhere else. Readers get
//! shared snapshots; a change of a definition makes a new one.

mod age;
pub mod builtin;
mod columns;
pub mod convert;
pub mod crd;
pub mod json_path;
pub mod kind;
pub mod schemas;
pub mod strategies;
pub mod strategy;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

pub use age::age_of;
pub use kind::{
    ALL_VERBS, Column, ColumnSource, Habits, Kind, KindSchema, ScalePaths, Selectable,
    StatusWrites, Subresources,
};
pub use strategy::Strategy;

use crate::storage::ResourceName;

/// The kinds of one logical cluster; cheap to clone, all clones see the same.
#[derive(Clone)]
pub struct Registry(Arc<RwLock<Arc<Served>>>);

/// One state of a registry.
struct Served {
    /// Counts changes.
    version: u64,
    /// What is served, in discovery's order.
    kinds: Arc<Vec<Arc<Kind>>>,
    /// Everything, served or only stored, by plural name.
    by_plural: HashMap<Arc<str>, Vec<Arc<Kind>>>,
    /// The definitions that the custom kinds come from: the revision and the kinds of each.
    definitions: BTreeMap<Arc<str>, (u64, Vec<Arc<Kind>>)>,
}

impl Served {
    fn of(version: u64, definitions: BTreeMap<Arc<str>, (u64, Vec<Arc<Kind>>)>) -> Self {
        let custom = definitions.values().flat_map(|(_, kinds)| kinds);
        let all: Vec<Arc<Kind>> = builtin::kinds().iter().chain(custom).cloned().collect();
        let mut by_plural: HashMap<Arc<str>, Vec<Arc<Kind>>> = HashMap::new();
        for kind in &all {
            by_plural
                .entry(kind.plural.clone())
                .or_default()
                .push(kind.clone());
        }
        let kinds = Arc::new(all.into_iter().filter(|kind| kind.served).collect());
        Self {
            version,
            kinds,
            by_plural,
            definitions,
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// The built-in kinds alone.
    pub fn new() -> Self {
        Self(Arc::new(RwLock::new(Arc::new(Served::of(
            0,
            BTreeMap::new(),
        )))))
    }

    fn served(&self) -> Arc<Served> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The kind that is served at a path.
    pub fn resolve(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        let served = self.served();
        let kinds = served.by_plural.get(plural)?;
        let found = kinds
            .iter()
            .find(|kind| kind.served && &*kind.group == group && &*kind.version == version);
        found.cloned()
    }

    /// The kind of that name in a group and version.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Kind>> {
        let served = self.served();
        let found = served.kinds.iter().find(|served| {
            &*served.kind == kind && &*served.group == group && &*served.version == version
        });
        found.cloned()
    }

    /// The kind in whose form a resource is stored, served or not.
    pub fn stored(&self, resource: &ResourceName) -> Option<Arc<Kind>> {
        let served = self.served();
        let kinds = served.by_plural.get(&resource.plural)?;
        let found = kinds
            .iter()
            .find(|kind| kind.group == resource.group && kind.version == kind.storage_version);
        found.cloned()
    }

    /// Everything that is served, in discovery's order.
    pub fn snapshot(&self) -> Arc<Vec<Arc<Kind>>> {
        self.served().kinds.clone()
    }

    /// A number that changes whenever the served kinds do, for caches of what follows from them.
    pub fn version(&self) -> u64 {
        self.served().version
    }

    /// Serves the kinds of a definition as of `revision`; an older revision than the one known changes nothing.
    pub fn define(&self, definition: &str, revision: u64, kinds: Vec<Kind>) {
        let kinds = kinds.into_iter().map(Arc::new).collect();
        self.change(definition, revision, Some(kinds));
    }

    /// No longer serves the kinds of a definition that was deleted at `revision`.
    pub fn undefine(&self, definition: &str, revision: u64) {
        self.change(definition, revision, None);
    }

    fn change(&self, definition: &str, revision: u64, kinds: Option<Vec<Arc<Kind>>>) {
        let mut guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut definitions = guard.definitions.clone();
        if definitions
            .get(definition)
            .is_some_and(|(known, _)| *known > revision)
        {
            return;
        }
        match kinds {
            Some(kinds) => {
                definitions.insert(definition.into(), (revision, kinds));
            }
            // The empty entry remembers the revision, so that a late older state does not bring the kinds back.
            None => {
                definitions.insert(definition.into(), (revision, Vec::new()));
            }
        }
        *guard = Arc::new(Served::of(guard.version + 1, definitions));
    }
}

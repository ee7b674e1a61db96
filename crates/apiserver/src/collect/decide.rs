//! What is to be done about an object, by its owners, its dependents and where it lives.

use std::sync::Arc;

use super::graph::{Graph, Identity, Node, defined_by};

/// What is to be done about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Its owners are gone, or go before it.
    Delete { target: Arc<Identity>, with: Policy },
    /// Some owners are gone, others are there: let go of these.
    Disown {
        target: Arc<Identity>,
        owners: Vec<Arc<str>>,
    },
    /// Nothing blocks it any more.
    Unblock { target: Arc<Identity> },
    /// Its dependents are to stay: take it from their owners, then let it go.
    Orphan {
        target: Arc<Identity>,
        dependents: Vec<Arc<Identity>>,
    },
    /// Its namespace or definition goes.
    Doom { target: Arc<Identity> },
}

/// How the dependents of something that is deleted are dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Background,
    Foreground,
}

impl Graph {
    /// Whether a namespace that is to be released still is as it was: going and empty.
    pub(super) fn is_empty_namespace(&self, name: &str) -> bool {
        self.going_namespaces.contains(name) && !self.by_namespace.contains_key(name)
    }

    /// Whether a definition that is to be released still has no objects.
    pub(super) fn is_empty_definition(&self, name: &str) -> bool {
        !self.by_resource.contains_key(&defined_by(name))
    }

    /// What is to be done about an object whose namespace or definition goes.
    pub(super) fn doom(&self, uid: &str) -> Option<Action> {
        let node = self.nodes.get(uid)?;
        (!node.deleting).then(|| Action::Doom {
            target: node.identity.clone(),
        })
    }

    /// What is to be done about an object, by its owners and dependents.
    pub(super) fn examine(&self, uid: &str) -> Option<Action> {
        let node = self.nodes.get(uid)?;
        let target = node.identity.clone();
        let dependents = self.dependents.get(uid);
        if node.orphan {
            let dependents = dependents.into_iter().flatten().cloned().collect();
            return Some(Action::Orphan { target, dependents });
        }
        if node.foreground
            && !dependents
                .into_iter()
                .flatten()
                .any(|found| self.blocks(found, node))
        {
            return Some(Action::Unblock { target });
        }
        if (node.deleting && !node.foreground) || node.owners.is_empty() {
            return None;
        }
        let (mut solid, mut dangling, mut waiting) = (0, Vec::new(), Vec::new());
        for owner in &node.owners {
            match self
                .nodes
                .get(&owner.uid)
                .filter(|found| can_own(&found.identity, &target))
            {
                None => dangling.push(owner.uid.clone()),
                Some(found) if found.foreground => waiting.push(owner.uid.clone()),
                Some(_) => solid += 1,
            }
        }
        if solid > 0 {
            dangling.append(&mut waiting);
            return (!dangling.is_empty()).then_some(Action::Disown {
                target,
                owners: dangling,
            });
        }
        if node.deleting {
            return None;
        }
        let with = if !waiting.is_empty() && dependents.is_some() {
            Policy::Foreground
        } else {
            Policy::Background
        };
        Some(Action::Delete { target, with })
    }

    /// Whether a dependent keeps its owner from going. One that waits for this same owner does not: of two that own
    /// each other, or of one that owns itself, somebody must go first.
    fn blocks(&self, dependent: &Identity, owner: &Node) -> bool {
        self.nodes.get(&dependent.uid).is_some_and(|node| {
            let waits_for_it =
                node.foreground && owner.owners.iter().any(|found| found.uid == dependent.uid);
            let uid = &owner.identity.uid;
            !waits_for_it
                && node
                    .owners
                    .iter()
                    .any(|found| found.uid == *uid && found.blocks)
        })
    }
}

/// An owner is cluster-scoped or in its dependent's namespace.
fn can_own(owner: &Identity, dependent: &Identity) -> bool {
    owner.key.namespace.is_empty() || owner.key.namespace == dependent.key.namespace
}

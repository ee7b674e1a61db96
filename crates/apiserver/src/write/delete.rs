//! Deletion: at once, after a grace period, or when the last finalizer is gone.

use std::sync::Arc;

use futures::StreamExt as _;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::update::Verdict;
use super::{ATTEMPTS, Body, Cluster, Options, key, meta, too_contended};
use crate::failure::Failure;
use crate::registry::{Kind, convert, crd};
use crate::storage::{ObjectKey, Stored};

/// How many objects of a collection are deleted at once, so that they share disk commits.
const BATCH: usize = 64;

/// What happens to an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// What happens to dependents; `None` leaves it to the object's finalizers, then to `Background`.
    pub propagation: Option<Propagation>,
    /// Only this incarnation.
    pub uid: Option<String>,
    /// Only this state.
    pub resource_version: Option<String>,
    /// How long the object may take, instead of what it says itself.
    pub grace_period_seconds: Option<i64>,
    /// Do everything but the commit.
    pub dry_run: bool,
}

/// What a deletion came to.
#[derive(Debug)]
pub struct Deleted {
    /// The object as it was last, or as it is while it goes.
    pub object: Body,
    /// Whether it is gone already.
    pub gone: bool,
    /// What to answer: the object while it is going and for some kinds, else a Status of success.
    pub response: Body,
}

impl Cluster {
    /// Deletes an object, or marks it as going.
    ///
    /// # Errors
    /// 403 for what may not go, 404, 409 when a precondition does not hold.
    pub async fn delete(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Failure> {
        self.delete_with(kind, namespace, name, options, |_| {})
            .await
    }

    /// Deletes an object after a last change of it, in one commit.
    pub(super) async fn delete_with(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        last_words: impl Fn(&mut Value),
    ) -> Result<Deleted, Failure> {
        if kind.is("", "Namespace") && ["default", "kube-system", "kube-public"].contains(&name) {
            return Err(Failure::forbidden(
                kind,
                name,
                "this namespace may not be deleted",
            ));
        }
        let key = key(kind, namespace, name);
        for _ in 0..ATTEMPTS {
            let current = self.current(kind, &key)?;
            check(kind, &current, options)?;
            if kind.is("", "Namespace") && is_terminating(&current) {
                return Err(Failure::conflict(kind, name, EMPTYING));
            }
            let verdict = self.doom(kind, &current, options, &last_words);
            if let Some(deleted) = self.finish(kind, &key, &current, verdict, options).await? {
                return Ok(deleted);
            }
        }
        Err(too_contended(kind, name))
    }

    /// Carries out a verdict on deletion; `None` when the object has changed meanwhile.
    async fn finish(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        current: &Arc<Stored>,
        verdict: Verdict,
        options: &DeleteOptions,
    ) -> Result<Option<Deleted>, Failure> {
        let gone = matches!(verdict, Verdict::Gone(_));
        let write = Options {
            dry_run: options.dry_run,
            ..Options::default()
        };
        let Some(object) = self.carry_out(kind, key, current, verdict, &write).await? else {
            return Ok(None);
        };
        let response = if gone && !kind.habits.returns_deleted {
            Body::Value(success(kind, &key.name, &current.uid))
        } else {
            object.clone()
        };
        Ok(Some(Deleted {
            object,
            gone,
            response,
        }))
    }

    /// What a deletion makes of an object.
    pub(super) fn doom(
        &self,
        kind: &Kind,
        current: &Stored,
        options: &DeleteOptions,
        last_words: impl Fn(&mut Value),
    ) -> Verdict {
        let old = convert::from_storage(kind, current.value());
        let mut new = old.clone();
        let now = self.clock.now();
        let grace = kind
            .strategy
            .grace_period(&old, options.grace_period_seconds);
        propagate(&mut new, options.propagation);
        if kind.is(crd::GROUP, "CustomResourceDefinition") && !meta::is_deleting(&old) {
            add_finalizer(&mut new, crd::CLEANUP);
        }
        match grace {
            // It is going already: a shorter time may be given, nothing else changes.
            Some(_)
                if meta::is_deleting(&old) && meta::grace(&old).is_some_and(|given| given > 0) =>
            {
                let given = meta::grace(&old).unwrap_or(0);
                let asked = options
                    .grace_period_seconds
                    .map(|asked| if asked < 0 { 1 } else { asked });
                let asked = asked.map(|asked| grace.unwrap_or(asked).min(asked));
                let Some(asked) = asked.filter(|asked| *asked < given) else {
                    return Verdict::Nothing;
                };
                let end: Option<jiff::Timestamp> = meta::of(&old)["deletionTimestamp"]
                    .as_str()
                    .and_then(|text| text.parse().ok());
                let end = end
                    .and_then(|end| {
                        end.checked_sub(SignedDuration::from_secs(given - asked))
                            .ok()
                    })
                    .unwrap_or(now);
                let metadata = meta::of_mut(&mut new);
                metadata.insert("deletionTimestamp".to_owned(), json!(meta::time(end)));
                metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(asked));
            }
            Some(seconds) => {
                let end = now
                    .checked_add(SignedDuration::from_secs(seconds))
                    .unwrap_or(now);
                meta::mark_deleting(&mut new, end, seconds);
            }
            None if meta::is_deleting(&old) => {}
            None => meta::mark_deleting(&mut new, now, 0),
        }
        if !meta::is_deleting(&old) {
            kind.strategy.mark_deleting(&mut new);
        }
        last_words(&mut new);
        super::update::verdict(kind, new, &old)
    }

    /// Deletes all objects of a kind, in a namespace or everywhere, that match; returns them.
    ///
    /// # Errors
    /// The first failure other than that something is gone already.
    pub async fn delete_collection(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        matches: impl Fn(&Stored) -> bool,
        options: &DeleteOptions,
    ) -> Result<Vec<Body>, Failure> {
        let snapshot = self.storage.list(&self.name, &kind.stored_as, namespace);
        let mut going =
            futures::stream::iter(snapshot.items.into_iter().filter(|stored| matches(stored)))
                .map(|stored| {
                    let options = DeleteOptions {
                        uid: Some(stored.uid.to_string()),
                        ..options.clone()
                    };
                    async move {
                        self.delete(kind, &stored.key.namespace, &stored.key.name, &options)
                            .await
                    }
                })
                .buffered(BATCH);
        let mut deleted = Vec::new();
        while let Some(outcome) = going.next().await {
            match outcome {
                Ok(gone) => deleted.push(gone.object),
                // Somebody else deleted it, and perhaps made another of that name.
                Err(failure) if failure.is_not_found() || failure.is_conflict() => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(deleted)
    }
}

/// What a second deletion of a namespace is told.
const EMPTYING: &str = "The system is ensuring all content is removed from this namespace.  Upon completion, this namespace will automatically be purged by the system.";

/// Whether a namespace was asked to go and still has content.
fn is_terminating(current: &Stored) -> bool {
    let namespace = current.value();
    meta::is_deleting(&namespace)
        && namespace["spec"]["finalizers"]
            .as_array()
            .is_some_and(|finalizers| !finalizers.is_empty())
}

/// Checks a deletion's preconditions.
pub(super) fn check(kind: &Kind, current: &Stored, options: &DeleteOptions) -> Result<(), Failure> {
    let conflict =
        |why: String| Failure::conflict_on(&kind.group, &kind.kind, &current.key.name, &why);
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != &*current.uid) {
        return Err(conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            current.uid
        )));
    }
    if let Some(version) = &options.resource_version
        && version.parse() != Ok(current.revision)
    {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            current.revision
        )));
    }
    Ok(())
}

/// Sets the finalizers by which the garbage collector knows what to do with dependents.
fn propagate(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else {
        return;
    };
    let mut finalizers: Vec<String> = meta::finalizers(object)
        .into_iter()
        .filter(|finalizer| ![meta::FOREGROUND, meta::ORPHAN].contains(finalizer))
        .map(str::to_owned)
        .collect();
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(meta::FOREGROUND.to_owned()),
        Propagation::Orphan => finalizers.push(meta::ORPHAN.to_owned()),
    }
    let before: Vec<String> = meta::finalizers(object)
        .into_iter()
        .map(str::to_owned)
        .collect();
    let same = before.len() == finalizers.len()
        && finalizers
            .iter()
            .all(|finalizer| before.contains(finalizer));
    if !same {
        meta::set_finalizers(object, finalizers);
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut finalizers: Vec<String> = meta::finalizers(object)
        .into_iter()
        .map(str::to_owned)
        .collect();
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(finalizer.to_owned());
        meta::set_finalizers(object, finalizers);
    }
}

/// The Status that answers a deletion.
fn success(kind: &Kind, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": &*kind.plural, "uid": uid});
    if !kind.group.is_empty() {
        details["group"] = json!(&*kind.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

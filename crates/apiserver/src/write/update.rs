//! Updates: replacing an object or its status, and what all changes of an existing object have in common.

use std::sync::Arc;

use serde_json::Value;

use super::create::one;
use super::decode::{Source, check, decode};
use super::{ATTEMPTS, Body, Cluster, Options, Written, key, meta, too_contended, validity};
use crate::failure::Failure;
use crate::machinery::apply::{self, Operation};
use crate::registry::strategy::keep;
use crate::registry::{Kind, StatusWrites, convert, crd};
use crate::storage::{Expect, ObjectKey, Stored, Write};

/// How a changed object came about.
pub(super) struct Change {
    /// The object as the writer wants it, in the version asked for.
    pub object: Value,
    /// What it was made from.
    pub source: Source,
    /// Under which subresource; `None` for the object itself.
    pub subresource: Option<&'static str>,
    /// Whether managed fields are recorded already.
    pub recorded: bool,
}

/// What to do about a change.
pub(super) enum Verdict {
    /// The object is as it should be.
    Nothing,
    /// This is the new object.
    Put(Value),
    /// Nothing holds the object any more; this was its last state.
    Gone(Value),
}

impl Cluster {
    /// Replaces an object, its status (`subresource` `status`), or its scale.
    ///
    /// # Errors
    /// As a Kubernetes API server: 400, 404, 409, 422.
    pub async fn update(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: Option<&str>,
        body: Value,
        options: &Options,
    ) -> Result<Written, Failure> {
        let subresource = match subresource {
            None => None,
            Some("status") if kind.subresources.status => Some("status"),
            Some("scale") => {
                return self
                    .update_scale(kind, namespace, name, &body, options)
                    .await;
            }
            Some("finalize") if kind.is("", "Namespace") => {
                return self.finalize(kind, name, &body, options).await;
            }
            Some(_) => return Err(Failure::no_such_path()),
        };
        let key = key(kind, namespace, name);
        if meta::name(&body).is_empty() {
            return Err(Failure::bad_request("name must be provided".to_owned()));
        }
        if meta::name(&body) != name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                meta::name(&body)
            )));
        }
        let exists = self
            .storage
            .get(&self.name, &kind.stored_as, &key)
            .is_some();
        if !exists
            && subresource.is_none()
            && kind.habits.create_on_update
            && meta::uid(&body).is_empty()
        {
            let mut body = body;
            meta::of_mut(&mut body).remove("resourceVersion");
            return self
                .create(kind, namespace, Some(name), body, options)
                .await;
        }
        self.modify(kind, &key, options, |current, _| {
            let mut object = body.clone();
            meta::place(kind, namespace, &mut object)?;
            precondition(kind, &object, current, kind.habits.unconditional_update)?;
            Ok(Change {
                object,
                source: Source::Body,
                subresource,
                recorded: false,
            })
        })
        .await
    }

    /// Changes an object as `change` says, from its newest state, as often as others are faster.
    pub(super) async fn modify(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        options: &Options,
        change: impl Fn(&Stored, &Value) -> Result<Change, Failure>,
    ) -> Result<Written, Failure> {
        for _ in 0..ATTEMPTS {
            let current = self.current(kind, key)?;
            let old = convert::from_storage(kind, current.value());
            let change = change(&current, &old)?;
            let (verdict, warnings) = self.settle(kind, &old, change, options)?;
            if let Some(object) = self
                .carry_out(kind, key, &current, verdict, options)
                .await?
            {
                return Ok(Written {
                    object,
                    created: false,
                    warnings,
                });
            }
        }
        Err(too_contended(kind, &key.name))
    }

    /// Changes an object as the server itself, without asking its kind's rules: for what no writer may do, such as
    /// taking the collector's finalizers. Nothing happens to another object of that name.
    pub(crate) async fn amend(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        uid: &str,
        change: impl Fn(&mut Value),
    ) -> Result<(), Failure> {
        for _ in 0..ATTEMPTS {
            let current = self.current(kind, key)?;
            if &*current.uid != uid {
                return Ok(());
            }
            let old = convert::from_storage(kind, current.value());
            let mut new = old.clone();
            change(&mut new);
            let verdict = verdict(kind, new, &old);
            if self
                .carry_out(kind, key, &current, verdict, &Options::default())
                .await?
                .is_some()
            {
                return Ok(());
            }
        }
        Err(too_contended(kind, &key.name))
    }

    /// Commits a verdict about `current`; `None` when it has changed meanwhile.
    pub(super) async fn carry_out(
        &self,
        kind: &Kind,
        key: &ObjectKey,
        current: &Arc<Stored>,
        verdict: Verdict,
        options: &Options,
    ) -> Result<Option<Body>, Failure> {
        let (write, last) = match verdict {
            Verdict::Nothing => return Ok(Some(Body::of(kind, current.clone()))),
            Verdict::Put(object) | Verdict::Gone(object) if options.dry_run => {
                return Ok(Some(Body::Value(object)));
            }
            Verdict::Put(object) => (
                self.put(kind, key, Expect::Revision(current.revision), object),
                None,
            ),
            Verdict::Gone(last) => (self.removal(kind, key, current.revision), Some(last)),
        };
        self.commit_one(kind, write, last).await
    }

    async fn commit_one(
        &self,
        kind: &Kind,
        write: Write,
        last: Option<Value>,
    ) -> Result<Option<Body>, Failure> {
        let Some(stored) = self.commit(vec![write]).await? else {
            return Ok(None);
        };
        let stored = one(stored)?;
        Ok(Some(match last {
            None => Body::of(kind, stored),
            Some(mut last) => {
                meta::of_mut(&mut last).insert(
                    "resourceVersion".to_owned(),
                    stored.revision.to_string().into(),
                );
                Body::Value(last)
            }
        }))
    }

    /// Makes a wanted change complete: what may not change stays, what must follow follows, and it is checked.
    pub(super) fn settle(
        &self,
        kind: &Kind,
        old: &Value,
        change: Change,
        options: &Options,
    ) -> Result<(Verdict, Vec<String>), Failure> {
        let Change {
            object: mut new,
            source,
            subresource,
            recorded,
        } = change;
        let name = meta::name(old);
        let warnings = decode(kind, &mut new, source, options)?;
        meta::carry(&mut new, old);
        let mut errors = validity::validate_update(&new, old);
        if subresource == Some("status") {
            keep_but_status(kind, &mut new, old);
            kind.strategy.prepare_status(&mut new, old);
        } else {
            if kind.subresources.status {
                keep(&mut new, old, "status");
            }
            kind.strategy.prepare_update(&mut new, old);
            if kind.habits.generation && wants_differ(kind, &new, old) {
                let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
                meta::of_mut(&mut new).insert("generation".to_owned(), (generation + 1).into());
            }
        }
        errors.extend(validity::validate(kind, &new));
        errors.extend(check(kind, &new, Some(old))?);
        errors.extend(if subresource == Some("status") {
            kind.strategy.validate_status(&new, old)
        } else {
            kind.strategy.validate_update(&new, old)
        });
        if !errors.is_empty() {
            return Err(Failure::invalid(kind, name, &errors));
        }
        if kind.is(crd::GROUP, "CustomResourceDefinition") && subresource.is_none() {
            crd::establish(&mut new, &self.registry, self.clock.now());
        }
        if !recorded {
            let manager = options.manager(kind, Operation::Update, subresource, self);
            apply::record_update(
                Some(old),
                &mut new,
                &manager,
                &kind.schema.tree,
                kind.reset(subresource),
            );
        }
        Ok((verdict(kind, new, old), warnings))
    }
}

/// Whether there is anything to write, and whether anything still holds the object.
pub(super) fn verdict(kind: &Kind, new: Value, old: &Value) -> Verdict {
    let held = !meta::finalizers(&new).is_empty()
        || meta::grace(&new).is_some_and(|grace| grace > 0)
        || kind.strategy.holds(&new);
    if meta::is_deleting(&new) && !held {
        Verdict::Gone(new)
    } else if new == *old {
        Verdict::Nothing
    } else {
        Verdict::Put(new)
    }
}

/// Checks the resourceVersion and uid that a body carries against the current object.
pub(super) fn precondition(
    kind: &Kind,
    body: &Value,
    current: &Stored,
    may_be_unconditional: bool,
) -> Result<(), Failure> {
    let name = &current.key.name;
    match meta::resource_version(body) {
        "" | "0" if may_be_unconditional => {}
        "" | "0" => {
            return Err(Failure::invalid(
                kind,
                name,
                &[crate::machinery::FieldError {
                    kind: crate::machinery::FieldErrorKind::Invalid,
                    path: "metadata.resourceVersion".to_owned(),
                    value: Some(0.into()),
                    detail: "must be specified for an update".to_owned(),
                }],
            ));
        }
        version if version.parse() == Ok(current.revision) => {}
        version if version.parse::<u64>().is_err() => {
            return Err(Failure::bad_request(format!(
                "invalid resource version {version:?}"
            )));
        }
        _ => return Err(Failure::stale(kind, name)),
    }
    let uid = meta::uid(body);
    if !uid.is_empty() && uid != &*current.uid {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            current.uid
        );
        return Err(Failure::conflict(kind, name, &why));
    }
    Ok(())
}

/// Undoes all of a status write that is not the status.
fn keep_but_status(kind: &Kind, new: &mut Value, old: &Value) {
    let status = new.get("status").cloned();
    let managed = meta::of(new).get("managedFields").cloned();
    if kind.habits.status_writes == StatusWrites::StatusOnly {
        *new = old.clone();
        let metadata = meta::of_mut(new);
        match managed {
            Some(managed) => metadata.insert("managedFields".to_owned(), managed),
            None => metadata.remove("managedFields"),
        };
    } else {
        let metadata = meta::of(new).clone();
        *new = old.clone();
        new["metadata"] = metadata;
    }
    match status {
        Some(status) => new["status"] = status,
        None => crate::registry::strategy::remove(new, "status"),
    }
}

/// Whether anything that counts as wanted differs: for custom kinds everything but metadata and a status that is
/// written apart, for built-in ones the spec.
fn wants_differ(kind: &Kind, new: &Value, old: &Value) -> bool {
    if !kind.custom {
        return new["spec"] != old["spec"];
    }
    let counts = |key: &str| key != "metadata" && !(key == "status" && kind.subresources.status);
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return true;
    };
    let differs = |a: &serde_json::Map<String, Value>, b: &serde_json::Map<String, Value>| {
        a.iter()
            .any(|(key, value)| counts(key) && b.get(key) != Some(value))
    };
    differs(new, old) || differs(old, new)
}

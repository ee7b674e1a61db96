//! Patches: JSON, merge and strategic merge patches, and server-side apply.

use serde_json::Value;

use super::decode::{Source, declared};
use super::update::{Change, precondition};
use super::{Cluster, Options, Written, key, meta};
use crate::failure::{Cause, Failure};
use crate::machinery::apply::{self, Operation};
use crate::machinery::patch;
use crate::registry::Kind;
use crate::registry::strategy::{forbidden, required};
use crate::storage::Stored;

/// The form of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, where lists merge by key.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl Cluster {
    /// Patches an object, its status, or its scale.
    ///
    /// # Errors
    /// As a Kubernetes API server: 400, 404, 409 for conflicts and apply conflicts, 415, 422.
    #[expect(
        clippy::too_many_arguments,
        reason = "they are the parts of one request line and its body"
    )]
    pub async fn patch(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: Option<&str>,
        form: PatchKind,
        body: Value,
        options: &Options,
    ) -> Result<Written, Failure> {
        if form == PatchKind::Strategic && kind.custom && subresource != Some("scale") {
            return Err(Failure::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ]));
        }
        if options.force && form != PatchKind::Apply {
            let error = forbidden("force", "may not be specified for non-apply patch");
            return Err(Failure::invalid_kind(
                "meta.k8s.io",
                "PatchOptions",
                "",
                &[error],
            ));
        }
        let subresource = match subresource {
            None => None,
            Some("status") if kind.subresources.status => Some("status"),
            Some("scale") => {
                return self
                    .patch_scale(kind, namespace, name, form, &body, options)
                    .await;
            }
            Some(_) => return Err(Failure::no_such_path()),
        };
        let key = key(kind, namespace, name);
        if form == PatchKind::Apply {
            return self
                .apply(kind, namespace, name, subresource, body, options)
                .await;
        }
        self.modify(kind, &key, options, |current, old| {
            let object = patched(kind, form, old, &body)?;
            renamed(&object, old)?;
            precondition(kind, &object, current, true)?;
            Ok(Change {
                object,
                source: Source::Patched,
                subresource,
                recorded: false,
            })
        })
        .await
    }

    async fn apply(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: Option<&'static str>,
        mut body: Value,
        options: &Options,
    ) -> Result<Written, Failure> {
        check_applied(&body, name, options)?;
        meta::place(kind, namespace, &mut body)?;
        meta::of_mut(&mut body)
            .entry("name")
            .or_insert_with(|| name.into());
        let warnings = declared(kind, &body, options)?;
        let with_warnings = |written: Written| Written {
            warnings: warnings.clone(),
            ..written
        };
        let key = key(kind, namespace, name);
        let manager = options.manager(kind, Operation::Apply, subresource, self);
        let applied = |current: &Stored, old: &Value| {
            precondition(kind, &body, current, true)?;
            let object = apply::apply(
                Some(old),
                &body,
                &manager,
                options.force,
                &kind.schema.tree,
                kind.reset(subresource),
            )
            .map_err(|conflicts| Failure::apply_conflict(&conflicts))?;
            Ok(Change {
                object,
                source: Source::Applied,
                subresource,
                recorded: true,
            })
        };
        // An object may come or go between the look and the write; either way the other branch is right then.
        for _ in 0..super::ATTEMPTS {
            if self
                .storage
                .get(&self.name, &kind.stored_as, &key)
                .is_some()
            {
                match self.modify(kind, &key, options, applied).await {
                    Err(failure) if failure.reason() == "NotFound" && subresource.is_none() => {
                        continue;
                    }
                    done => return done.map(with_warnings),
                }
            }
            if subresource.is_some() {
                return Err(Failure::not_found(kind, name));
            }
            if !meta::resource_version(&body).is_empty() || !meta::uid(&body).is_empty() {
                return Err(Failure::conflict(
                    kind,
                    name,
                    "the object does not exist, so a resourceVersion or uid cannot match",
                ));
            }
            let object = apply::apply(
                None,
                &body,
                &manager,
                options.force,
                &kind.schema.tree,
                kind.reset(None),
            )
            .map_err(|conflicts| Failure::apply_conflict(&conflicts))?;
            match self
                .create_once(
                    kind,
                    namespace,
                    Some(name),
                    object,
                    Source::Applied,
                    options,
                )
                .await
            {
                Err(failure) if failure.reason() == "AlreadyExists" => {}
                done => return done.map(with_warnings),
            }
        }
        Err(super::too_contended(kind, name))
    }
}

/// What a patch makes of an object.
pub(super) fn patched(
    kind: &Kind,
    form: PatchKind,
    old: &Value,
    body: &Value,
) -> Result<Value, Failure> {
    match form {
        PatchKind::Json => {
            patch::json_patch(old, body).map_err(|why| unprocessable(&why.to_string()))
        }
        PatchKind::Merge | PatchKind::Apply => {
            if !body.is_object() {
                return Err(Failure::bad_request("a merge patch is a JSON object"));
            }
            Ok(patch::merge_patch(old, body))
        }
        PatchKind::Strategic => patch::strategic_merge(old, body, &kind.schema.tree)
            .map_err(|why| Failure::bad_request(why.to_string())),
    }
}

/// 422 for a patch that does not fit the object.
fn unprocessable(why: &str) -> Failure {
    Failure::new(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )
    .because(Cause {
        reason: "UnexpectedServerResponse".to_owned(),
        message: why.to_owned(),
        field: String::new(),
    })
}

/// A patch may not turn an object into another one.
fn renamed(new: &Value, old: &Value) -> Result<(), Failure> {
    if meta::name(new) != meta::name(old) {
        return Err(Failure::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            meta::name(new),
            meta::name(old)
        )));
    }
    if new["metadata"]["namespace"] != old["metadata"]["namespace"] {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

fn check_applied(body: &Value, name: &str, options: &Options) -> Result<(), Failure> {
    if !body.is_object() {
        return Err(Failure::bad_request(
            "an applied configuration is an object",
        ));
    }
    if options.field_manager.as_deref().unwrap_or("").is_empty() {
        return Err(Failure::invalid_kind(
            "meta.k8s.io",
            "PatchOptions",
            "",
            &[required("fieldManager", "is required for apply patch")],
        ));
    }
    if !body["metadata"]["managedFields"].is_null() {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let given = meta::name(body);
    if !given.is_empty() && given != name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

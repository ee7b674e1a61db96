//! What is wrong with an object's metadata, and with an update of it.

use serde_json::Value;

use super::meta::{finalizers, is_deleting, name, of};
use crate::machinery::{FieldError, names};
use crate::registry::Kind;
use crate::registry::strategy::{forbidden, invalid, required, text_at};

/// What is wrong with the metadata of any object.
pub fn validate(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = name(object);
    if name.is_empty() {
        errors.push(required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        let label_named = kind.is("", "Namespace") || kind.is("", "Service");
        let details = if kind.is("", "Service") {
            names::dns1035_label(name)
        } else if label_named {
            names::dns1123_label(name)
        } else {
            names::dns1123_subdomain(name)
        };
        errors.extend(
            details
                .into_iter()
                .map(|why| invalid("metadata.name", name, why)),
        );
    }
    if let Some(metadata) = of(object).as_object() {
        errors.extend(names::object_meta(metadata));
    }
    errors.extend(validate_owners(object));
    errors
}

/// What is wrong with the references to owners.
fn validate_owners(object: &Value) -> Vec<FieldError> {
    let path = "metadata.ownerReferences";
    let mut errors = Vec::new();
    let mut controllers = Vec::new();
    let owners = of(object)["ownerReferences"].as_array();
    for owner in owners.into_iter().flatten() {
        for (field, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text_at(owner, &[field]).is_empty() {
                errors.push(invalid(format!("{path}.{field}"), "", detail));
            }
        }
        if owner["controller"] == true {
            controllers.push(text_at(owner, &["name"]));
        }
    }
    if let [one, two, ..] = controllers.as_slice() {
        errors.push(invalid(
            path,
            of(object)["ownerReferences"].clone(),
            format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {one} and {two}"
            ),
        ));
    }
    errors
}

/// What an update may not do to the metadata.
pub fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (now, before) = (of(new), of(old));
    for key in ["name", "namespace", "uid", "creationTimestamp"] {
        if now[key] != before[key] {
            errors.push(invalid(
                format!("metadata.{key}"),
                now[key].clone(),
                "field is immutable",
            ));
        }
    }
    if is_deleting(old) {
        let known = finalizers(old);
        let fresh: Vec<String> = finalizers(new)
            .into_iter()
            .filter(|finalizer| !known.contains(finalizer))
            .map(|finalizer| format!("{finalizer:?}"))
            .collect();
        if !fresh.is_empty() {
            errors.push(forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    fresh.join(", ")
                ),
            ));
        }
    }
    errors
}

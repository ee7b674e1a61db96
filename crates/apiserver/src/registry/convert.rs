//! Between the versions of one resource: the one that is asked for and the one that is stored.
//!
//! The versions of a custom resource have the same fields (conversion strategy `None`), so only `apiVersion` differs;
//! a webhook or other converter would have its place here. Events are the one built-in resource with two forms.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::kind::Kind;

/// The fields of events: `(core, events.k8s.io)`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// An object of `kind`'s version in its storage version.
pub fn to_storage(kind: &Kind, mut object: Value) -> Value {
    if is_new_event(kind) {
        rename(&mut object, |core, new| (new, core));
        object["apiVersion"] = "v1".into();
    } else if kind.version != kind.storage_version {
        object["apiVersion"] = storage_api_version(kind).into();
    }
    object
}

/// A stored object in `kind`'s version.
pub fn from_storage(kind: &Kind, mut object: Value) -> Value {
    if is_new_event(kind) {
        rename(&mut object, |core, new| (core, new));
        object["apiVersion"] = kind.api_version().into();
    } else if needs_conversion(kind) {
        object["apiVersion"] = kind.api_version().into();
    }
    object
}

/// Whether stored objects look different in `kind`'s version, so that their bytes cannot be served as they are.
pub fn needs_conversion(kind: &Kind) -> bool {
    is_new_event(kind) || (kind.custom && kind.version != kind.storage_version)
}

/// The name of a field as `kind`'s version has it in storage form.
pub fn field_in_storage<'a>(kind: &Kind, field: &'a str) -> Cow<'a, str> {
    if is_new_event(kind) {
        for (core, new) in EVENT_FIELDS {
            if let Some(rest) = field.strip_prefix(new) {
                return format!("{core}{rest}").into();
            }
        }
    }
    field.into()
}

fn storage_api_version(kind: &Kind) -> String {
    if kind.group.is_empty() {
        kind.storage_version.to_string()
    } else {
        format!("{}/{}", kind.group, kind.storage_version)
    }
}

fn is_new_event(kind: &Kind) -> bool {
    !kind.custom && &*kind.group == "events.k8s.io"
}

fn rename(
    object: &mut Value,
    direction: fn(&'static str, &'static str) -> (&'static str, &'static str),
) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    let renamed: Map<String, Value> = std::mem::take(map)
        .into_iter()
        .map(|(key, value)| {
            let to = EVENT_FIELDS
                .iter()
                .map(|(core, new)| direction(core, new))
                .find(|(from, _)| *from == key)
                .map(|(_, to)| to.to_owned());
            (to.unwrap_or(key), value)
        })
        .collect();
    *map = renamed;
}

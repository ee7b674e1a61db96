//! Object metadata: what the server fills in, what never changes, and what a deletion leaves behind.

use jiff::Timestamp;
use rand::RngExt as _;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::registry::Kind;
use crate::registry::strategy::text_at;

/// The finalizer that keeps an owner until its dependents are gone.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that keeps an owner until its dependents have let go of it.
pub const ORPHAN: &str = "orphan";

const FIELDS: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// How long a generated name's given part may be, so that five characters fit behind it.
const MAX_PREFIX: usize = 63 - SUFFIX;
const SUFFIX: usize = 5;

/// A timestamp as metadata has them: whole seconds in UTC.
pub fn time(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

/// The metadata of an object; null when there is none.
pub fn of(object: &Value) -> &Value {
    &object["metadata"]
}

/// The metadata for changing it, made if absent.
pub fn of_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut().expect("made an object just above")
}

/// The object's name.
pub fn name(object: &Value) -> &str {
    text_at(object, &["metadata", "name"])
}

/// The object's uid.
pub fn uid(object: &Value) -> &str {
    text_at(object, &["metadata", "uid"])
}

/// The object's resourceVersion.
pub fn resource_version(object: &Value) -> &str {
    text_at(object, &["metadata", "resourceVersion"])
}

/// The object's finalizers.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = of(object)["finalizers"].as_array();
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Replaces the finalizers; an empty list leaves none behind.
pub fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    if finalizers.is_empty() {
        of_mut(object).remove("finalizers");
    } else {
        of_mut(object).insert("finalizers".to_owned(), json!(finalizers));
    }
}

/// Whether the object was asked to go.
pub fn is_deleting(object: &Value) -> bool {
    !of(object)["deletionTimestamp"].is_null()
}

/// The seconds that the object was given to go.
pub fn grace(object: &Value) -> Option<i64> {
    of(object)["deletionGracePeriodSeconds"].as_i64()
}

/// Counts one more change of what is wanted.
pub fn bump_generation(object: &mut Value) {
    if let Some(generation) = of(object)["generation"].as_i64().filter(|g| *g > 0) {
        of_mut(object).insert("generation".to_owned(), json!(generation + 1));
    }
}

/// Marks the object as going at `at`, with that many seconds to do so.
pub fn mark_deleting(object: &mut Value, at: Timestamp, grace: i64) {
    if !is_deleting(object) {
        bump_generation(object);
    }
    let metadata = of_mut(object);
    metadata.insert("deletionTimestamp".to_owned(), json!(time(at)));
    metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
}

/// Drops from the metadata what no object has; returns the paths of what was dropped.
///
/// # Errors
/// When a field has a type that metadata does not have there.
pub fn sanitize(object: &mut Value) -> Result<Vec<String>, String> {
    if object["metadata"].is_null() {
        of_mut(object);
        return Ok(Vec::new());
    }
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return Err(wrong("metadata", &object["metadata"], "v1.ObjectMeta"));
    };
    let mut dropped = Vec::new();
    metadata.retain(|key, value| {
        let known = FIELDS.contains(&key.as_str());
        if !known {
            dropped.push(format!("metadata.{key}"));
        }
        known && !value.is_null() && key != "selfLink"
    });
    for (key, value) in metadata.iter() {
        let right = match key.as_str() {
            "labels" | "annotations" => match value.as_object() {
                Some(map) => {
                    if let Some((_, odd)) = map.iter().find(|(_, v)| !v.is_string() && !v.is_null())
                    {
                        return Err(wrong(&format!("metadata.{key}"), odd, "string"));
                    }
                    true
                }
                None => false,
            },
            "finalizers" => value
                .as_array()
                .is_some_and(|list| list.iter().all(Value::is_string)),
            "ownerReferences" | "managedFields" => value.is_array(),
            "generation" | "deletionGracePeriodSeconds" => value.is_i64(),
            "creationTimestamp" | "deletionTimestamp" => value
                .as_str()
                .is_some_and(|text| text.parse::<Timestamp>().is_ok()),
            _ => value.is_string(),
        };
        if !right {
            return Err(wrong(&format!("metadata.{key}"), value, "ObjectMeta"));
        }
    }
    for key in ["labels", "annotations"] {
        if let Some(Value::Object(map)) = metadata.get_mut(key) {
            for value in map.values_mut().filter(|value| value.is_null()) {
                *value = json!("");
            }
        }
    }
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = match metadata.get(key) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            _ => false,
        };
        if empty {
            metadata.remove(key);
        }
    }
    Ok(dropped)
}

fn wrong(path: &str, value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!(
        "json: cannot unmarshal {found} into Go struct field ObjectMeta.{path} of type {wanted}"
    )
}

/// Fills in the metadata of a new object.
///
/// # Errors
/// When the body belongs to another place than the request's.
pub fn begin(
    kind: &Kind,
    namespace: &str,
    hint: Option<&str>,
    object: &mut Value,
    now: Timestamp,
) -> Result<(), Failure> {
    place(kind, namespace, object)?;
    let metadata = of_mut(object);
    if let Some(hint) = hint {
        match metadata.get("name").and_then(Value::as_str).unwrap_or("") {
            "" => {
                metadata.insert("name".to_owned(), json!(hint));
            }
            name if name != hint => {
                return Err(Failure::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({hint})"
                )));
            }
            _ => {}
        }
    }
    let prefix = metadata
        .get("generateName")
        .and_then(Value::as_str)
        .unwrap_or("");
    if metadata
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or("")
        .is_empty()
        && !prefix.is_empty()
    {
        let name = generate(prefix);
        metadata.insert("name".to_owned(), json!(name));
    }
    for key in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generation",
    ] {
        metadata.remove(key);
    }
    metadata.insert("uid".to_owned(), json!(uuid::Uuid::new_v4().to_string()));
    metadata.insert("creationTimestamp".to_owned(), json!(time(now)));
    if kind.habits.generation {
        metadata.insert("generation".to_owned(), json!(1));
    }
    Ok(())
}

/// Checks the namespace of a body against the request's and fills it in.
///
/// # Errors
/// When they differ.
pub fn place(kind: &Kind, namespace: &str, object: &mut Value) -> Result<(), Failure> {
    let metadata = of_mut(object);
    if !kind.namespaced {
        metadata.remove("namespace");
        return Ok(());
    }
    match metadata
        .get("namespace")
        .and_then(Value::as_str)
        .unwrap_or("")
    {
        "" => {
            metadata.insert("namespace".to_owned(), json!(namespace));
            Ok(())
        }
        given if given != namespace => Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        _ => Ok(()),
    }
}

/// A name that begins with `prefix` and ends in five characters of chance.
fn generate(prefix: &str) -> String {
    // No vowels and nothing that looks like another character.
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut cut = prefix.len().min(MAX_PREFIX);
    while !prefix.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut name = prefix[..cut].to_owned();
    let mut rng = rand::rng();
    for _ in 0..SUFFIX {
        name.push(char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]));
    }
    name
}

/// Gives an update the identity of what it updates, as far as it leaves that open.
pub fn carry(new: &mut Value, old: &Value) {
    let old_metadata = of(old);
    let metadata = of_mut(new);
    for key in ["uid", "creationTimestamp", "namespace"] {
        if metadata
            .get(key)
            .is_none_or(|value| value.is_null() || value == "")
            && let Some(value) = old_metadata.get(key)
        {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    // These are the server's own, whatever the body says.
    for key in [
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generateName",
    ] {
        match old_metadata.get(key) {
            Some(value) => metadata.insert(key.to_owned(), value.clone()),
            None => metadata.remove(key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_keep_their_prefix_and_fit() {
        let name = generate("web-");
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
        assert_eq!(generate(&"x".repeat(100)).len(), 63);
    }

    #[test]
    fn metadata_loses_what_no_object_has() {
        let mut object = json!({"metadata": {"name": "a", "creationTimestamp": null, "colour": "red", "labels": {}}});
        assert_eq!(
            sanitize(&mut object),
            Ok(vec!["metadata.colour".to_owned()])
        );
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn labels_are_strings() {
        let mut object = json!({"metadata": {"labels": {"a": 1}}});
        assert!(
            sanitize(&mut object)
                .unwrap_err()
                .contains("cannot unmarshal number")
        );
    }
}

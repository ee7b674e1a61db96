//! What a kind does beyond its schema: defaults that depend on other fields, what an update may change, what is valid.

use serde_json::{Map, Value};

use crate::machinery::{FieldError, FieldErrorKind};

/// The rules of one kind. Every method works on objects in the kind's own version, metadata already in order.
pub trait Strategy: Send + Sync {
    /// Fills in defaults, on every decode.
    fn default(&self, _object: &mut Value) {}

    /// Resets what a creator may not choose.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Resets what an updater may not choose; the status is already the old one.
    fn prepare_update(&self, _new: &mut Value, _old: &Value) {}

    /// Resets what a writer of the status may not choose; the spec is already the old one.
    fn prepare_status(&self, _new: &mut Value, _old: &Value) {}

    /// What is wrong with a new object.
    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// What is wrong with an update.
    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }

    /// What is wrong with an update of the status.
    fn validate_status(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// For how many seconds an object lingers after it was asked to go; `None` for kinds that do not linger.
    fn grace_period(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// What else happens to an object that was asked to go but stays for now.
    fn mark_deleting(&self, _object: &mut Value) {}

    /// Whether the object stays although neither grace period nor finalizers in its metadata hold it.
    fn holds(&self, _object: &Value) -> bool {
        false
    }
}

/// A kind without rules of its own.
pub struct Plain;

impl Strategy for Plain {}

/// The value at a path of keys.
pub fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, step| value.get(*step))
}

/// The text at a path of keys; empty when it is absent.
pub fn text_at<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}

/// The whole number at a path of keys.
pub fn number_at(object: &Value, path: &[&str]) -> Option<i64> {
    at(object, path).and_then(Value::as_i64)
}

/// The object at a key, made if it is absent; `None` when something else is there.
pub fn child<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let map = object.as_object_mut()?;
    let child = map
        .entry(key)
        .and_modify(|value| {
            if value.is_null() {
                *value = Value::Object(Map::new());
            }
        })
        .or_insert_with(|| Value::Object(Map::new()));
    child.is_object().then_some(child)
}

/// Sets a key that is absent or null.
pub fn set_default(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), value.into());
    }
}

/// Makes `key` of `new` what it is in `old`.
pub fn keep(new: &mut Value, old: &Value, key: &str) {
    let Some(map) = new.as_object_mut() else {
        return;
    };
    match old.get(key) {
        Some(value) => {
            map.insert(key.to_owned(), value.clone());
        }
        None => {
            map.remove(key);
        }
    }
}

/// Removes a key.
pub fn remove(object: &mut Value, key: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(key);
    }
}

/// An error about a value that is not acceptable.
pub fn invalid(
    path: impl Into<String>,
    value: impl Into<Value>,
    detail: impl Into<String>,
) -> FieldError {
    FieldError {
        kind: FieldErrorKind::Invalid,
        path: path.into(),
        value: Some(value.into()),
        detail: detail.into(),
    }
}

/// An error about a value that must be there.
pub fn required(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
    FieldError {
        kind: FieldErrorKind::Required,
        path: path.into(),
        value: None,
        detail: detail.into(),
    }
}

/// An error about a value that may not be there or not change.
pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
    FieldError {
        kind: FieldErrorKind::Forbidden,
        path: path.into(),
        value: None,
        detail: detail.into(),
    }
}

/// An error about a value that is none of the supported ones.
pub fn unsupported(
    path: impl Into<String>,
    value: impl Into<Value>,
    supported: &[&str],
) -> FieldError {
    let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
    FieldError {
        kind: FieldErrorKind::NotSupported,
        path: path.into(),
        value: Some(value.into()),
        detail: format!("supported values: {}", list.join(", ")),
    }
}

/// An error when a field differs from what it was.
pub fn immutable(new: &Value, old: &Value, path: &[&str]) -> Option<FieldError> {
    let (now, before) = (at(new, path), at(old, path));
    (now.unwrap_or(&Value::Null) != before.unwrap_or(&Value::Null)).then(|| {
        invalid(
            path.join("."),
            now.cloned().unwrap_or(Value::Null),
            "field is immutable",
        )
    })
}

/// An error when a number is there and below zero.
pub fn not_negative(object: &Value, path: &[&str]) -> Option<FieldError> {
    let number = number_at(object, path)?;
    (number < 0).then(|| invalid(path.join("."), number, "must be greater than or equal to 0"))
}

//! Secrets and ConfigMaps: data that can be made immutable.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::machinery::FieldError;
use crate::registry::strategy::{Strategy, child, forbidden, immutable, invalid, set_default};

/// What all data of one Secret or ConfigMap may weigh.
const MAX_BYTES: usize = 1024 * 1024;

/// The strategy of Secrets.
pub struct Secrets;

impl Strategy for Secrets {
    fn default(&self, object: &mut Value) {
        let plain = object
            .as_object_mut()
            .and_then(|map| map.remove("stringData"));
        if let Some(Value::Object(plain)) = plain
            && let Some(data) = child(object, "data")
        {
            for (key, value) in plain {
                data[key] = json!(STANDARD.encode(value.as_str().unwrap_or("")));
            }
        }
        set_default(object, "type", "Opaque");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut bytes = 0;
        for (key, value) in object["data"].as_object().into_iter().flatten() {
            errors.extend(key_error("data", key));
            bytes += value.as_str().map_or(0, |text| text.len() / 4 * 3);
        }
        if bytes > MAX_BYTES {
            errors.push(too_long("data"));
        }
        errors.extend(keys_of_type(object));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(immutable(new, old, &["type"]));
        if old["immutable"] == true {
            if new["immutable"] != true {
                errors.push(forbidden(
                    "immutable",
                    "field is immutable when `immutable` is set",
                ));
            }
            if new["data"] != old["data"] {
                errors.push(forbidden(
                    "data",
                    "field is immutable when `immutable` is set",
                ));
            }
        }
        errors
    }
}

/// The strategy of ConfigMaps.
pub struct ConfigMaps;

impl Strategy for ConfigMaps {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut bytes = 0;
        for (key, value) in object["data"].as_object().into_iter().flatten() {
            errors.extend(key_error("data", key));
            if object["binaryData"].get(key).is_some() {
                errors.push(invalid(
                    format!("data[{key}]"),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
            bytes += value.as_str().map_or(0, str::len);
        }
        for (key, value) in object["binaryData"].as_object().into_iter().flatten() {
            errors.extend(key_error("binaryData", key));
            bytes += value.as_str().map_or(0, |text| text.len() / 4 * 3);
        }
        if bytes > MAX_BYTES {
            errors.push(too_long(""));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        if old["immutable"] == true {
            if new["immutable"] != true {
                errors.push(forbidden(
                    "immutable",
                    "field is immutable when `immutable` is set",
                ));
            }
            for field in ["data", "binaryData"] {
                if new[field] != old[field] {
                    errors.push(forbidden(
                        field,
                        "field is immutable when `immutable` is set",
                    ));
                }
            }
        }
        errors
    }
}

fn too_long(path: &str) -> FieldError {
    FieldError {
        kind: crate::machinery::FieldErrorKind::TooLong,
        path: path.to_owned(),
        value: None,
        detail: format!("may not be more than {MAX_BYTES} bytes"),
    }
}

fn key_error(field: &str, key: &str) -> Option<FieldError> {
    let path = || format!("{field}[{key}]");
    if key.is_empty()
        || !key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    {
        return Some(invalid(
            path(),
            key,
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        ));
    }
    if key.len() > 253 {
        return Some(invalid(path(), key, "must be no more than 253 characters"));
    }
    let detail = match key {
        "." => "must not be '.'",
        _ if key.starts_with("..") => "must not start with '..'",
        _ => return None,
    };
    Some(invalid(path(), key, detail))
}

fn keys_of_type(object: &Value) -> Vec<FieldError> {
    let needed: &[&str] = match object["type"].as_str().unwrap_or("") {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    needed
        .iter()
        .filter(|key| object["data"].get(**key).is_none())
        .map(|key| crate::registry::strategy::required(format!("data[{key}]"), ""))
        .collect()
}

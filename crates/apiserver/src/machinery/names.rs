//! Names, labels and annotations: what is allowed, in the words of Kubernetes.

use serde_json::Value;

use super::{FieldError, FieldErrorKind};

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;
/// All annotations of an object together, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;

const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(&first), Some(&last))
        if alphanumeric(first) && alphanumeric(last))
        && bytes.iter().all(|&c| alphanumeric(c) || c == b'-')
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last))
        if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && bytes
            .iter()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

/// What is wrong with a DNS-1123 label; nothing when it is one.
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !is_label(text) {
        errors.push(LABEL_RULE.to_owned());
    }
    errors
}

/// What is wrong with a DNS-1123 subdomain; nothing when it is one.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        errors.push(too_long(SUBDOMAIN_MAX));
    }
    if !text.split('.').all(is_label) {
        errors.push(SUBDOMAIN_RULE.to_owned());
    }
    errors
}

/// What is wrong with a DNS-1035 label; nothing when it is one.
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(LABEL_1035_RULE.to_owned());
    }
    errors
}

/// What is wrong with the key of a label or annotation.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((prefix, name)) => {
            if name.contains('/') {
                return vec![format!(
                    "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
                )];
            }
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(
                    dns1123_subdomain(prefix)
                        .into_iter()
                        .map(|why| format!("prefix part {why}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", too_long(LABEL_MAX)));
    }
    if !is_qualified_part(name) {
        errors.push(QUALIFIED_RULE.to_owned());
    }
    errors
}

/// What is wrong with the value of a label.
pub fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_MAX {
        errors.push(too_long(LABEL_MAX));
    }
    if !text.is_empty() && !is_qualified_part(text) {
        errors.push(VALUE_RULE.to_owned());
    }
    errors
}

/// What is wrong with labels, annotations and finalizers of an object's metadata.
pub fn object_meta(meta: &serde_json::Map<String, Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let invalid = |path: &str, value: &str, why: String| {
        FieldError::new(FieldErrorKind::Invalid, path, Some(value.into()), why)
    };
    let entries = |field: &str| {
        meta.get(field)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
    };
    for (key, value) in entries("labels") {
        errors.extend(
            qualified_name(key)
                .into_iter()
                .map(|why| invalid("metadata.labels", key, why)),
        );
        let value = value.as_str().unwrap_or_default();
        errors.extend(
            label_value(value)
                .into_iter()
                .map(|why| invalid("metadata.labels", value, why)),
        );
    }
    let mut size = 0;
    for (key, value) in entries("annotations") {
        let lower = key.to_lowercase();
        errors.extend(
            qualified_name(&lower)
                .into_iter()
                .map(|why| invalid("metadata.annotations", key, why)),
        );
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::new(
            FieldErrorKind::TooLong,
            "metadata.annotations",
            None,
            format!("may not be more than {ANNOTATIONS_MAX} bytes"),
        ));
    }
    let finalizers = meta
        .get("finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    for finalizer in finalizers.filter_map(Value::as_str) {
        errors.extend(
            qualified_name(finalizer)
                .into_iter()
                .map(|why| invalid("metadata.finalizers", finalizer, why)),
        );
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_kubernetes_does() {
        for good in ["a", "a-b", "0", "web-7f3"] {
            assert!(dns1123_label(good).is_empty(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "ä", &"a".repeat(64)] {
            assert!(!dns1123_label(bad).is_empty(), "{bad}");
        }
        assert!(dns1123_subdomain("a.b-c.d").is_empty());
        assert!(!dns1123_subdomain("a..b").is_empty());
        assert!(!dns1035_label("0a").is_empty());
        assert!(qualified_name("cluster.x-k8s.io/pool-name").is_empty());
        assert!(qualified_name("app").is_empty());
        for bad in ["", "/a", "a/", "a/b/c", "-a", "A_/b"] {
            assert!(!qualified_name(bad).is_empty(), "{bad}");
        }
        assert!(label_value("").is_empty());
        assert!(!label_value("a b").is_empty());
    }
}

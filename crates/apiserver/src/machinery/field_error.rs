//! An error about one field, in the words of Kubernetes.

use std::fmt;

use serde_json::Value;

/// Sort of a field error; decides its wording and machine-readable reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// Something must be there.
    Required,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value is of the wrong type.
    TypeInvalid,
    /// The value is none of the supported ones.
    NotSupported,
    /// The value may be there once.
    Duplicate,
    /// The field may not be set or not change.
    Forbidden,
    /// The value is too long.
    TooLong,
    /// There are too many items.
    TooMany,
    /// What the value names does not exist.
    NotFound,
}

/// An error about one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Which sort.
    pub kind: FieldErrorKind,
    /// The field, such as `spec.containers[0].name`.
    pub path: String,
    /// What was found, where that is told.
    pub value: Option<Value>,
    /// What is wrong, or what is allowed.
    pub detail: String,
}

impl FieldError {
    /// An error with a value and a detail.
    pub fn new(
        kind: FieldErrorKind,
        path: impl Into<String>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            path: path.into(),
            value,
            detail: detail.into(),
        }
    }

    /// The reason in a Status cause.
    pub fn reason(&self) -> &'static str {
        match self.kind {
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::Invalid => "FieldValueInvalid",
            FieldErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            FieldErrorKind::NotSupported => "FieldValueNotSupported",
            FieldErrorKind::Duplicate => "FieldValueDuplicate",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::TooLong => "FieldValueTooLong",
            FieldErrorKind::TooMany => "FieldValueTooMany",
            FieldErrorKind::NotFound => "FieldValueNotFound",
        }
    }

    /// The text without the path, as in a Status cause's message.
    pub fn body(&self) -> String {
        let what = match self.kind {
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Invalid | FieldErrorKind::TypeInvalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::NotFound => "Not found",
        };
        let shows_value = !matches!(
            self.kind,
            FieldErrorKind::Required | FieldErrorKind::Forbidden | FieldErrorKind::TooLong
        );
        let mut text = what.to_owned();
        if shows_value && let Some(value) = &self.value {
            text.push_str(": ");
            text.push_str(&value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            write!(f, "<nil>: {}", self.body())
        } else {
            write!(f, "{}: {}", self.path, self.body())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_read_as_kubernetes_words_them() {
        let error =
            |kind, value, detail: &str| FieldError::new(kind, "spec.x", value, detail).to_string();
        assert_eq!(
            error(
                FieldErrorKind::Invalid,
                Some(json!(-1)),
                "should be non-negative"
            ),
            "spec.x: Invalid value: -1: should be non-negative"
        );
        assert_eq!(
            error(FieldErrorKind::Required, None, ""),
            "spec.x: Required value"
        );
        assert_eq!(
            error(FieldErrorKind::Duplicate, Some(json!("a")), ""),
            "spec.x: Duplicate value: \"a\""
        );
        assert_eq!(
            error(
                FieldErrorKind::TooLong,
                Some(json!("aaaa")),
                "may not be more than 3 bytes"
            ),
            "spec.x: Too long: may not be more than 3 bytes"
        );
    }
}

//! From a request's body to a checked, complete object of the kind it was sent to.

use serde_json::Value;

use super::{FieldValidation, Options, meta};
use crate::failure::Failure;
use crate::machinery::{FieldError, FieldErrorKind};
use crate::registry::Kind;
use crate::registry::strategy::text_at;

/// Where a body came from, which decides the wording of its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Sent whole.
    Body,
    /// What a patch made of the current object.
    Patched,
    /// What server-side apply made of the current object; the fields that it brought are declared.
    Applied,
}

/// Prunes and defaults an object; returns warnings.
///
/// # Errors
/// When it is not an object of that kind, or has unknown fields and those are not allowed.
pub(super) fn decode(
    kind: &Kind,
    object: &mut Value,
    source: Source,
    options: &Options,
) -> Result<Vec<String>, Failure> {
    is_of_kind(kind, object)?;
    let mut unknown = meta::sanitize(object).map_err(|why| cannot(kind, &why))?;
    if let Some(schema) = &kind.schema.structural {
        unknown.extend(schema.prune(object));
        schema.default(object);
    }
    kind.strategy.default(object);
    let mut complaints: Vec<String> = Vec::new();
    complaints.extend(
        unknown
            .iter()
            .map(|path| format!("unknown field \"{path}\"")),
    );
    complaints.extend(
        options
            .duplicates
            .iter()
            .map(|path| format!("duplicate field \"{path}\"")),
    );
    if complaints.is_empty() || source == Source::Applied {
        return Ok(Vec::new());
    }
    match options.validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(complaints),
        FieldValidation::Strict => {
            let why = format!("strict decoding error: {}", complaints.join(", "));
            Err(match source {
                Source::Body => cannot(kind, &why),
                Source::Patched | Source::Applied => Failure::invalid_kind(
                    "",
                    "",
                    "",
                    &[crate::registry::strategy::invalid(
                        "patch",
                        object.to_string(),
                        why,
                    )],
                ),
            })
        }
    }
}

/// Refuses an applied configuration with fields that the schema does not declare, whatever the validation asked for:
/// their manager could not be recorded.
pub(super) fn declared(
    kind: &Kind,
    applied: &Value,
    options: &Options,
) -> Result<Vec<String>, Failure> {
    let mut probe = applied.clone();
    is_of_kind(kind, &mut probe)?;
    let mut unknown = meta::sanitize(&mut probe).map_err(|why| cannot(kind, &why))?;
    if let Some(schema) = &kind.schema.structural {
        unknown.extend(schema.prune(&mut probe));
    }
    if !unknown.is_empty() {
        let name = meta::name(applied);
        let namespace = text_at(applied, &["metadata", "namespace"]);
        let fields: Vec<String> = unknown
            .iter()
            .map(|path| format!(".{path}: field not declared in schema"))
            .collect();
        let fields = match fields.as_slice() {
            [one] => one.clone(),
            many => format!("errors:\n  {}", many.join("\n  ")),
        };
        return Err(Failure::new(
            500,
            "",
            format!(
                "failed to create typed patch object ({namespace}/{name}; {}/{}, Kind={}): {fields}",
                kind.group, kind.version, kind.kind
            ),
        ));
    }
    let duplicates = options
        .duplicates
        .iter()
        .map(|path| format!("duplicate field \"{path}\""));
    match options.validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(duplicates.collect()),
        FieldValidation::Strict => match duplicates.collect::<Vec<_>>().as_slice() {
            [] => Ok(Vec::new()),
            some => Err(Failure::bad_request(format!(
                "strict decoding error: {}",
                some.join(", ")
            ))),
        },
    }
}

/// What the schema says against an object. A built-in kind's wrong types are a body that cannot be read at all; its
/// other rules are its strategy's.
pub(super) fn check(
    kind: &Kind,
    new: &Value,
    old: Option<&Value>,
) -> Result<Vec<FieldError>, Failure> {
    let Some(schema) = &kind.schema.structural else {
        return Ok(Vec::new());
    };
    let mut errors = schema.validate(new, old);
    if kind.custom {
        // What was invalid already and is not touched does not stand in the way of other changes.
        if let Some(old) = old {
            errors.retain(|error| !is_untouched(error, new, old));
        }
        return Ok(errors);
    }
    for error in &errors {
        let path = &error.path;
        if error.kind == FieldErrorKind::TypeInvalid {
            let found = error
                .value
                .as_ref()
                .and_then(Value::as_str)
                .unwrap_or("value");
            let wanted = error.detail.split("must be of type ").nth(1).unwrap_or("");
            let wanted = wanted.split(':').next().unwrap_or("");
            return Err(cannot(
                kind,
                &format!(
                    "json: cannot unmarshal {found} into Go struct field {}.{path} of type {wanted}",
                    kind.kind
                ),
            ));
        }
        if error.detail.contains("must be of type ") {
            return Err(cannot(kind, &format!("{path}: {}", error.detail)));
        }
    }
    Ok(Vec::new())
}

fn cannot(kind: &Kind, why: &str) -> Failure {
    Failure::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {why}",
        kind.kind, kind.version, kind.kind
    ))
}

/// Checks `apiVersion` and `kind`; a built-in kind's body may leave them out.
fn is_of_kind(kind: &Kind, object: &mut Value) -> Result<(), Failure> {
    if !object.is_object() {
        return Err(Failure::bad_request(
            "the body of the request is not an object",
        ));
    }
    let wanted = kind.api_version();
    for (field, wanted) in [
        ("kind", kind.kind.to_string()),
        ("apiVersion", wanted.clone()),
    ] {
        match object.get(field).and_then(Value::as_str) {
            None | Some("") if !kind.custom => object[field] = wanted.into(),
            None | Some("") => {
                let name = if field == "kind" {
                    "Kind"
                } else {
                    "apiVersion"
                };
                return Err(Failure::bad_request(format!(
                    "Object '{name}' is missing in '{object}'"
                )));
            }
            Some(_) => {}
        }
    }
    let found = text_at(object, &["apiVersion"]);
    if found != wanted {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({found}) does not match the expected API version ({wanted})"
        )));
    }
    let found = text_at(object, &["kind"]);
    if found != &*kind.kind {
        return Err(Failure::bad_request(format!(
            "{found} in version \"{}\" cannot be handled as a {}: no kind \"{found}\" is registered for version \"{wanted}\"",
            kind.version, kind.kind
        )));
    }
    Ok(())
}

/// Whether an error is about something that the update leaves as it is; for a missing field that is its parent.
fn is_untouched(error: &FieldError, new: &Value, old: &Value) -> bool {
    let mut steps = steps(&error.path);
    if error.kind == FieldErrorKind::Required {
        steps.pop();
    }
    let follow = |root| {
        steps.iter().try_fold(root, |at: &Value, step| match at {
            Value::Array(list) => list.get(step.parse::<usize>().ok()?),
            other => other.get(step),
        })
    };
    match (follow(new), follow(old)) {
        (Some(new), Some(old)) => new == old,
        _ => false,
    }
}

/// The steps of an error's path: `spec.list[0].map[a.b]`.
fn steps(path: &str) -> Vec<&str> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = inner.find(']').unwrap_or(inner.len());
            steps.push(&inner[..end]);
            rest = inner.get(end + 1..).unwrap_or("");
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            if end == 0 {
                break;
            }
            steps.push(&rest[..end]);
            rest = &rest[end..];
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::steps;

    #[test]
    fn paths_of_errors_are_taken_apart() {
        assert_eq!(
            steps("spec.list[0].map[a.b].c"),
            ["spec", "list", "0", "map", "a.b", "c"]
        );
        assert!(steps("").is_empty());
        assert_eq!(steps("a..b["), ["a"]);
    }
}

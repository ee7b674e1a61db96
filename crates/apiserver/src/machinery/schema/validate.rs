//! Validation against a schema, in the words of Kubernetes.

use std::collections::HashSet;

use serde_json::Value;

use super::formats::Format;
use super::node::{Additional, ListType, Node, Type};
use crate::machinery::{FieldError, FieldErrorKind as Kind};

pub(super) fn validate(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if value.is_null() {
        if !node.nullable && (node.type_.is_some() || node.int_or_string) {
            errors.push(wrong_type(node, value, path));
        }
        return;
    }
    if !has_type(node, value) {
        errors.push(wrong_type(node, value, path));
        return;
    }
    enumeration(node, value, path, errors);
    match value {
        Value::String(text) => string(node, text, path, errors),
        Value::Number(_) => number(node, value, path, errors),
        Value::Array(list) => array(node, list, path, errors),
        Value::Object(map) => object(node, map, path, errors),
        Value::Bool(_) | Value::Null => {}
    }
    junctors(node, value, path, errors);
}

fn has_type(node: &Node, value: &Value) -> bool {
    if node.int_or_string {
        return value.is_string() || is_integer(value);
    }
    match node.type_ {
        None => true,
        Some(Type::Object) => value.is_object(),
        Some(Type::Array) => value.is_array(),
        Some(Type::String) => value.is_string(),
        Some(Type::Integer) => is_integer(value),
        Some(Type::Number) => value.is_number(),
        Some(Type::Boolean) => value.is_boolean(),
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn wrong_type(node: &Node, value: &Value, path: &str) -> FieldError {
    let wanted = match node.type_ {
        Some(type_) => type_.as_str(),
        None => "integer,string",
    };
    let found = type_name(value);
    let detail = format!("{path} in body must be of type {wanted}: {found:?}");
    FieldError::new(Kind::TypeInvalid, path, Some(found.into()), detail)
}

fn invalid(path: &str, value: Value, what: &str) -> FieldError {
    FieldError::new(
        Kind::Invalid,
        path,
        Some(value),
        format!("{path} in body {what}"),
    )
}

fn enumeration(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !node.values.is_empty() && !node.values.contains(value) {
        let supported: Vec<String> = node.values.iter().map(Value::to_string).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        errors.push(FieldError::new(
            Kind::NotSupported,
            path,
            Some(value.clone()),
            detail,
        ));
    }
}

fn string(node: &Node, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let length = text.chars().count() as u64;
    if let Some(max) = node.max_length.filter(|max| length > *max) {
        let detail = format!("may not be more than {max} bytes");
        errors.push(FieldError::new(
            Kind::TooLong,
            path,
            Some(text.into()),
            detail,
        ));
    }
    if let Some(min) = node.min_length.filter(|min| length < *min) {
        errors.push(invalid(
            path,
            text.into(),
            &format!("should be at least {min} chars long"),
        ));
    }
    if let Some(pattern) = node
        .pattern
        .as_ref()
        .filter(|pattern| !pattern.is_match(text))
    {
        errors.push(invalid(
            path,
            text.into(),
            &format!("should match '{pattern}'"),
        ));
    }
    if let Some(format) = node.format.filter(|format| !format.accepts(text)) {
        let what = format!("must be of type {}: {text:?}", format.name());
        errors.push(invalid(path, text.into(), &what));
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bounds are floats in the schema language"
)]
fn number(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(number) = value.as_f64() else {
        return;
    };
    if let Some(min) = node.minimum
        && (number < min.value || min.exclusive && number <= min.value)
    {
        let relation = if min.exclusive {
            "greater than"
        } else {
            "greater than or equal to"
        };
        errors.push(invalid(
            path,
            value.clone(),
            &format!("should be {relation} {}", min.value),
        ));
    }
    if let Some(max) = node.maximum
        && (number > max.value || max.exclusive && number >= max.value)
    {
        let relation = if max.exclusive {
            "less than"
        } else {
            "less than or equal to"
        };
        errors.push(invalid(
            path,
            value.clone(),
            &format!("should be {relation} {}", max.value),
        ));
    }
    if let Some(factor) = node.multiple_of.filter(|factor| number % factor != 0.0) {
        errors.push(invalid(
            path,
            value.clone(),
            &format!("should be a multiple of {factor}"),
        ));
    }
    let fits = match node.format {
        Some(Format::Int32) => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
        Some(Format::Int64) => value.is_i64() || number.abs() < i64::MAX as f64 && !value.is_u64(),
        _ => true,
    };
    if !fits && let Some(format) = node.format {
        let what = format!("must be of type {}: {value}", format.name());
        errors.push(invalid(path, value.clone(), &what));
    }
}

fn array(node: &Node, list: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let length = list.len() as u64;
    if let Some(max) = node.max_items.filter(|max| length > *max) {
        let detail = format!("must have at most {max} items");
        errors.push(FieldError::new(
            Kind::TooMany,
            path,
            Some(length.into()),
            detail,
        ));
    }
    if let Some(min) = node.min_items.filter(|min| length < *min) {
        errors.push(invalid(
            path,
            length.into(),
            &format!("should have at least {min} items"),
        ));
    }
    let duplicate = |index: usize, value: Value| {
        FieldError::new(Kind::Duplicate, format!("{path}[{index}]"), Some(value), "")
    };
    match &node.list {
        ListType::Atomic if !node.unique_items => {}
        ListType::Atomic | ListType::Set => {
            let mut seen = HashSet::new();
            for (index, item) in list.iter().enumerate() {
                if !seen.insert(item.to_string()) {
                    errors.push(duplicate(index, item.clone()));
                }
            }
        }
        ListType::Map(keys) => {
            let mut seen = HashSet::new();
            for (index, item) in list.iter().enumerate() {
                let id: serde_json::Map<String, Value> = keys
                    .iter()
                    .map(|key| (key.clone(), item.get(key).cloned().unwrap_or(Value::Null)))
                    .collect();
                let id = Value::Object(id);
                if !seen.insert(id.to_string()) {
                    errors.push(duplicate(index, id));
                }
            }
        }
    }
    if let Some(items) = &node.items {
        for (index, item) in list.iter().enumerate() {
            validate(items, item, &format!("{path}[{index}]"), errors);
        }
    }
}

fn object(
    node: &Node,
    map: &serde_json::Map<String, Value>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let join = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    for required in &node.required {
        if !map.contains_key(required) {
            errors.push(FieldError::new(Kind::Required, join(required), None, ""));
        }
    }
    let length = map.len() as u64;
    if let Some(max) = node.max_properties.filter(|max| length > *max) {
        let detail = format!("must have at most {max} items");
        errors.push(FieldError::new(
            Kind::TooMany,
            path,
            Some(length.into()),
            detail,
        ));
    }
    if let Some(min) = node.min_properties.filter(|min| length < *min) {
        errors.push(invalid(
            path,
            length.into(),
            &format!("should have at least {min} properties"),
        ));
    }
    for (key, value) in map {
        match (node.properties.get(key), &node.additional) {
            (Some(child), _) => validate(child, value, &join(key), errors),
            (None, Additional::Schema(child)) => validate(child, value, &join(key), errors),
            (None, _) => {}
        }
    }
}

fn junctors(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    // The pair of integer and string that goes with int-or-string says nothing new.
    let matching = |parts: &[Node]| {
        parts
            .iter()
            .filter(|part| {
                let mut found = Vec::new();
                validate(part, value, path, &mut found);
                found.is_empty()
            })
            .count()
    };
    let fail = |detail: String| FieldError::new(Kind::Invalid, path, Some(shown(value)), detail);
    for part in &node.all_of {
        validate(part, value, path, errors);
    }
    if !node.any_of.is_empty() && matching(&node.any_of) == 0 {
        errors.push(fail(format!(
            "{path:?} must validate at least one schema (anyOf)"
        )));
    }
    if !node.one_of.is_empty() {
        match matching(&node.one_of) {
            1 => {}
            0 => errors.push(fail(format!(
                "{path:?} must validate one and only one schema (oneOf). Found none valid"
            ))),
            many => errors.push(fail(format!(
                "{path:?} must validate one and only one schema (oneOf). Found {many} valid alternatives"
            ))),
        }
    }
    if let Some(not) = &node.not
        && matching(std::slice::from_ref(not)) > 0
    {
        errors.push(fail(format!("{path:?} must not validate the schema (not)")));
    }
}

/// A value as it stands in a message: composite ones by their type only.
pub(super) fn shown(value: &Value) -> Value {
    match value {
        Value::Object(_) | Value::Array(_) => type_name(value).into(),
        scalar => scalar.clone(),
    }
}

/// The value at a dotted path such as `spec.list[0].name`.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let (name, indexes) = step.split_once('[').unwrap_or((step, ""));
        if !name.is_empty() {
            value = value.get(name)?;
        }
        for index in indexes
            .split('[')
            .map(|i| i.trim_end_matches(']'))
            .filter(|i| !i.is_empty())
        {
            value = value.get(index.parse::<usize>().ok()?)?;
        }
    }
    Some(value)
}

//! From an OpenAPI schema to a [`Node`], refusing what is not structural.

use regex::Regex;
use serde_json::Value;

use super::formats::Format;
use super::node::{Additional, Bound, ListType, Node, Type};
use crate::machinery::{FieldError, FieldErrorKind};

/// Where in a schema a node stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The object itself.
    Root,
    /// A field, an item, a map's value.
    Structure,
    /// Inside allOf, anyOf, oneOf or not: only restricts what the structure has.
    Junctor,
}

pub(super) fn node(schema: &Value, path: &str, place: Place, errors: &mut Vec<FieldError>) -> Node {
    let below = |field: &str| {
        if path.is_empty() {
            field.to_owned()
        } else {
            format!("{path}.{field}")
        }
    };
    let flag = |field: &str| schema[field] == true;
    let count = |field: &str| schema[field].as_u64();
    let mut found = Node {
        nullable: flag("nullable"),
        int_or_string: flag("x-kubernetes-int-or-string"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        default: schema.get("default").cloned(),
        values: schema["enum"].as_array().cloned().unwrap_or_default(),
        required: strings(&schema["required"]),
        multiple_of: schema["multipleOf"].as_f64(),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag("uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        format: schema["format"].as_str().and_then(Format::parse),
        minimum: bound(schema, "minimum", "exclusiveMinimum"),
        maximum: bound(schema, "maximum", "exclusiveMaximum"),
        rules: schema["x-kubernetes-validations"]
            .as_array()
            .is_some_and(|rules| !rules.is_empty()),
        ..Node::default()
    };
    found.type_ = match schema["type"].as_str() {
        Some("object") => Some(Type::Object),
        Some("array") => Some(Type::Array),
        Some("string") => Some(Type::String),
        Some("integer") => Some(Type::Integer),
        Some("number") => Some(Type::Number),
        Some("boolean") => Some(Type::Boolean),
        Some(other) => {
            let supported = "supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"";
            errors.push(FieldError::new(
                FieldErrorKind::NotSupported,
                below("type"),
                Some(other.into()),
                supported,
            ));
            None
        }
        None => None,
    };
    let must_have_type = place != Place::Junctor && !found.int_or_string && !found.preserve_unknown;
    if found.type_.is_none() && schema["type"].is_null() && must_have_type {
        let why = match place {
            Place::Root => "must not be empty at the root",
            Place::Structure | Place::Junctor => "must not be empty for specified object fields",
        };
        errors.push(FieldError::new(
            FieldErrorKind::Required,
            below("type"),
            None,
            why,
        ));
    }
    if place == Place::Root && found.type_.is_some() && found.type_ != Some(Type::Object) {
        errors.push(FieldError::new(
            FieldErrorKind::Invalid,
            below("type"),
            Some(schema["type"].clone()),
            "must be object at the root",
        ));
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        match Regex::new(pattern) {
            Ok(regex) => found.pattern = Some(regex),
            Err(error) => errors.push(FieldError::new(
                FieldErrorKind::Invalid,
                below("pattern"),
                Some(pattern.into()),
                format!("must be a valid regular expression, but isn't: {error}"),
            )),
        }
    }
    let structure = if place == Place::Junctor {
        Place::Junctor
    } else {
        Place::Structure
    };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let at = below(&format!("properties[{name}]"));
        found
            .properties
            .insert(name.clone(), node(property, &at, structure, errors));
    }
    found.additional = match schema.get("additionalProperties") {
        Some(Value::Bool(true)) => Additional::Any,
        Some(value @ Value::Object(_)) => Additional::Schema(Box::new(node(
            value,
            &below("additionalProperties"),
            structure,
            errors,
        ))),
        _ => Additional::None,
    };
    if place != Place::Junctor
        && !found.properties.is_empty()
        && !matches!(found.additional, Additional::None)
    {
        errors.push(FieldError::new(
            FieldErrorKind::Forbidden,
            below("additionalProperties"),
            None,
            "must not be used together with properties",
        ));
    }
    match &schema["items"] {
        items @ Value::Object(_) => {
            found.items = Some(Box::new(node(items, &below("items"), structure, errors)));
        }
        _ if found.type_ == Some(Type::Array) && place != Place::Junctor => {
            errors.push(FieldError::new(
                FieldErrorKind::Required,
                below("items"),
                None,
                "must be specified",
            ));
        }
        _ => {}
    }
    list_type(schema, &below, &mut found, errors);
    for (field, list) in [("allOf", 0), ("anyOf", 1), ("oneOf", 2)] {
        let nodes: Vec<Node> = schema[field]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .map(|(index, part)| {
                node(
                    part,
                    &below(&format!("{field}[{index}]")),
                    Place::Junctor,
                    errors,
                )
            })
            .collect();
        match list {
            0 => found.all_of = nodes,
            1 => found.any_of = nodes,
            _ => found.one_of = nodes,
        }
    }
    if schema["not"].is_object() {
        found.not = Some(Box::new(node(
            &schema["not"],
            &below("not"),
            Place::Junctor,
            errors,
        )));
    }
    if found.embedded
        && place == Place::Structure
        && !found.preserve_unknown
        && found.properties.is_empty()
    {
        errors.push(FieldError::new(
            FieldErrorKind::Required,
            below("properties"),
            None,
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
    found
}

fn list_type(
    schema: &Value,
    below: &dyn Fn(&str) -> String,
    found: &mut Node,
    errors: &mut Vec<FieldError>,
) {
    let keys = strings(&schema["x-kubernetes-list-map-keys"]);
    let field = "x-kubernetes-list-type";
    found.list = match schema[field].as_str() {
        None | Some("atomic") => ListType::Atomic,
        Some("set") => ListType::Set,
        Some("map") => {
            if keys.is_empty() {
                let why = "must not be empty if x-kubernetes-list-type is map";
                let at = below("x-kubernetes-list-map-keys");
                errors.push(FieldError::new(FieldErrorKind::Required, at, None, why));
            }
            for (index, key) in keys.iter().enumerate() {
                let item = found.items.as_ref();
                if item.is_some_and(|item| !item.properties.contains_key(key)) {
                    errors.push(FieldError::new(
                        FieldErrorKind::Invalid,
                        below(&format!("x-kubernetes-list-map-keys[{index}]")),
                        Some(key.clone().into()),
                        "entries must all be names of item properties",
                    ));
                }
            }
            ListType::Map(keys)
        }
        Some(other) => {
            let supported = "supported values: \"atomic\", \"map\", \"set\"";
            errors.push(FieldError::new(
                FieldErrorKind::NotSupported,
                below(field),
                Some(other.into()),
                supported,
            ));
            ListType::Atomic
        }
    };
}

fn bound(schema: &Value, field: &str, exclusive: &str) -> Option<Bound> {
    schema[field].as_f64().map(|value| Bound {
        value,
        exclusive: schema[exclusive] == true,
    })
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

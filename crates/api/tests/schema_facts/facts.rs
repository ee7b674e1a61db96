//! What a CustomResourceDefinition demands and shows, as lines of facts that can be compared and kept in a table.
//!
//! A fact is a type, a bound, a pattern, a default and the like; descriptions are none. A schema keyword that this walk
//! does not know is an error, so that no fact goes unseen.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Facts by the place in a definition where they hold: a path of a field, or `@` and a name for what is no field.
pub type Facts = BTreeMap<String, String>;

/// Keyword of a field that takes fields, or values of any type, that the schema does not name.
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Kind that a definition defines.
pub fn kind(definition: &Value) -> &str {
    text(&definition["spec"]["names"]["kind"])
}

/// The facts of one served version of a definition.
pub fn of(definition: &Value, version: &str) -> Result<Facts, String> {
    let spec = &definition["spec"];
    let version = spec["versions"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["name"] == version))
        .ok_or_else(|| format!("{} has no version {version}", kind(definition)))?;
    let mut facts = Facts::new();
    let names = &spec["names"];
    facts.insert(
        "@names".into(),
        format!(
            "{}.{} singular={} short={} categories={} scope={}",
            text(&names["plural"]),
            text(&spec["group"]),
            text(&names["singular"]),
            list(&names["shortNames"]),
            list(&names["categories"]),
            text(&spec["scope"]),
        ),
    );
    facts.insert(
        "@version".into(),
        format!(
            "served={} storage={}",
            version["served"], version["storage"]
        ),
    );
    for (name, subresource) in version["subresources"].as_object().into_iter().flatten() {
        let mut line = String::new();
        for (key, value) in subresource.as_object().into_iter().flatten() {
            let _ = write!(line, "{key}={} ", text(value));
        }
        facts.insert(format!("@subresource.{name}"), line.trim_end().to_owned());
    }
    let columns = version["additionalPrinterColumns"].as_array();
    for (place, column) in columns.into_iter().flatten().enumerate() {
        let format = column["format"]
            .as_str()
            .map_or(String::new(), |f| format!("/{f}"));
        facts.insert(
            format!("@column.{:02}", place + 1),
            format!(
                "{} {}{format} priority={} {}",
                column["name"],
                text(&column["type"]),
                column["priority"].as_i64().unwrap_or(0),
                text(&column["jsonPath"]),
            ),
        );
    }
    walk("", false, &version["schema"]["openAPIV3Schema"], &mut facts)?;
    Ok(facts)
}

fn walk(path: &str, required: bool, schema: &Value, facts: &mut Facts) -> Result<(), String> {
    let Value::Object(schema) = schema else {
        return Err(format!("{path}: a schema must be an object, not {schema}"));
    };
    let line = line(required, schema).map_err(|error| format!("{path}: {error}"))?;
    facts.insert(if path.is_empty() { "." } else { path }.to_owned(), line);
    let names = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| names.is_some_and(|names| names.iter().any(|n| n == name));
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, field) in fields.into_iter().flatten() {
        let below = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        walk(&below, is_required(name), field, facts)?;
    }
    for name in names.into_iter().flatten().filter_map(Value::as_str) {
        if !fields.is_some_and(|fields| fields.contains_key(name)) {
            return Err(format!("{path}: requires {name}, which is no field of it"));
        }
    }
    if let Some(items) = schema.get("items") {
        walk(&format!("{path}[]"), false, items, facts)?;
    }
    match schema.get("additionalProperties") {
        None | Some(Value::Bool(_)) => Ok(()),
        Some(values) => walk(&format!("{path}{{}}"), false, values, facts),
    }
}

/// The facts of one field, without those of the fields below it.
fn line(required: bool, schema: &Map<String, Value>) -> Result<String, String> {
    let int_or_string = schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    let mut line = match (schema.get("type"), int_or_string) {
        (None, true) => "int-or-string".to_owned(),
        (None, false) if schema.contains_key(PRESERVE) => "any".to_owned(),
        (Some(Value::String(name)), false) => name.clone(),
        (found, _) => return Err(format!("no type, or more than one: {found:?}")),
    };
    let mut pattern = None;
    let mut ranges: BTreeMap<&str, (String, String)> = BTreeMap::new();
    for (keyword, value) in schema {
        match keyword.as_str() {
            // Not facts, or told elsewhere in the walk.
            "description"
            | "type"
            | "properties"
            | "required"
            | "items"
            | "x-kubernetes-int-or-string" => {}
            "anyOf" if int_or_string => {}
            "format" => _ = write!(line, "/{}", text(value)),
            "minimum" => ranges.entry("value").or_default().0 = value.to_string(),
            "maximum" => ranges.entry("value").or_default().1 = value.to_string(),
            "minLength" => ranges.entry("length").or_default().0 = value.to_string(),
            "maxLength" => ranges.entry("length").or_default().1 = value.to_string(),
            "minItems" => ranges.entry("items").or_default().0 = value.to_string(),
            "maxItems" => ranges.entry("items").or_default().1 = value.to_string(),
            "minProperties" => ranges.entry("fields").or_default().0 = value.to_string(),
            "maxProperties" => ranges.entry("fields").or_default().1 = value.to_string(),
            "pattern" => pattern = Some(text(value)),
            "default" => _ = write!(line, " default={value}"),
            "nullable" => _ = write!(line, " nullable={value}"),
            "enum" => {
                let mut values = list(value)
                    .split(',')
                    .map(str::to_owned)
                    .collect::<Vec<_>>();
                values.sort();
                let _ = write!(line, " enum={}", values.join("|"));
            }
            "additionalProperties" => {
                if value.is_boolean() {
                    let _ = write!(line, " others={value}");
                }
            }
            "x-kubernetes-list-type" => _ = write!(line, " list={}", text(value)),
            "x-kubernetes-list-map-keys" => _ = write!(line, " keys={}", list(value)),
            "x-kubernetes-map-type" => _ = write!(line, " map={}", text(value)),
            PRESERVE => _ = write!(line, " unknown={value}"),
            // The words of a rule are free; that there is one is the fact.
            "x-kubernetes-validations" => {
                let _ = write!(line, " rules={}", value.as_array().map_or(0, Vec::len));
            }
            other => {
                return Err(format!(
                    "keyword {other} is not known to this walk; teach it"
                ));
            }
        }
    }
    for (name, (least, most)) in ranges {
        let _ = write!(line, " {name}={least}..{most}");
    }
    if required {
        line.push_str(" required");
    }
    if let Some(pattern) = pattern {
        let _ = write!(line, " pattern={pattern}");
    }
    Ok(line)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> String {
    let values = value.as_array().into_iter().flatten();
    values
        .map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
        .collect::<Vec<_>>()
        .join(",")
}

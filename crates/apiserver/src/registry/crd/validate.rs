//! What makes a CustomResourceDefinition valid.

use std::sync::Arc;

use serde_json::Value;

use super::versions;
use crate::machinery::schema::Schema;
use crate::machinery::{FieldError, names};
use crate::registry::json_path::JsonPath;
use crate::registry::strategy::{invalid, required, text_at, unsupported};

/// What is wrong with a definition, but for its schemas.
pub(super) fn validate_spec(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = &definition["spec"];
    let group = text_at(spec, &["group"]);
    let plural = text_at(spec, &["names", "plural"]);
    let name = text_at(definition, &["metadata", "name"]);
    if name != format!("{plural}.{group}") {
        errors.push(invalid(
            "metadata.name",
            name,
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|suffix| group == *suffix || group.ends_with(&format!(".{suffix}")));
    let approval = "api-approved.kubernetes.io";
    if is_protected && definition["metadata"]["annotations"][approval].is_null() {
        errors.push(required(
            format!("metadata.annotations[{approval}]"),
            format!(
                "protected groups must have approval annotation \"{approval}\", see https://github.com/kubernetes/enhancements/pull/1111"
            ),
        ));
    }
    if group.is_empty() {
        errors.push(required("spec.group", ""));
    } else {
        errors.extend(
            names::dns1123_subdomain(group)
                .into_iter()
                .map(|why| invalid("spec.group", group, why)),
        );
        if !group.contains('.') {
            errors.push(invalid(
                "spec.group",
                group,
                "should be a domain with at least one dot",
            ));
        }
    }
    match text_at(spec, &["scope"]) {
        "" => errors.push(required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(unsupported("spec.scope", other, &["Cluster", "Namespaced"])),
    }
    for field in ["plural", "singular", "kind", "listKind"] {
        let value = text_at(spec, &["names", field]);
        let path = format!("spec.names.{field}");
        if value.is_empty() {
            errors.push(required(path, ""));
            continue;
        }
        errors.extend(
            names::dns1035_label(&value.to_lowercase())
                .into_iter()
                .map(|why| invalid(path.clone(), value, why)),
        );
    }
    if !text_at(spec, &["names", "kind"]).is_empty()
        && spec["names"]["kind"] == spec["names"]["listKind"]
    {
        errors.push(invalid(
            "spec.names.listKind",
            spec["names"]["listKind"].clone(),
            "kind and listKind may not be the same",
        ));
    }
    let versions = versions(definition);
    if versions.is_empty() {
        errors.push(required("spec.versions", "must have at least one version"));
    }
    let storing = versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count();
    if storing != 1 {
        errors.push(invalid(
            "spec.versions",
            spec["versions"].clone(),
            "must have exactly one version marked as storage version",
        ));
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = text_at(version, &["name"]);
        errors.extend(
            names::dns1035_label(name)
                .into_iter()
                .map(|why| invalid(format!("{path}.name"), name, why)),
        );
        if versions[..index]
            .iter()
            .any(|other| text_at(other, &["name"]) == name)
        {
            errors.push(invalid(
                "spec.versions",
                spec["versions"].clone(),
                "must contain unique version names",
            ));
        }
        errors.extend(validate_version(version, &path));
    }
    match text_at(spec, &["conversion", "strategy"]) {
        "" | "None" => {}
        "Webhook" => errors.push(unsupported(
            "spec.conversion.strategy",
            "Webhook",
            &["None"],
        )),
        other => errors.push(unsupported(
            "spec.conversion.strategy",
            other,
            &["None", "Webhook"],
        )),
    }
    errors
}

fn validate_version(version: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let columns = version["additionalPrinterColumns"].as_array();
    for (index, column) in columns.into_iter().flatten().enumerate() {
        let path = format!("{path}.additionalPrinterColumns[{index}]");
        if text_at(column, &["name"]).is_empty() {
            errors.push(required(format!("{path}.name"), ""));
        }
        let kind = text_at(column, &["type"]);
        let known = ["boolean", "date", "integer", "number", "string"];
        if !known.contains(&kind) {
            errors.push(unsupported(format!("{path}.type"), kind, &known));
        }
        let json_path = text_at(column, &["jsonPath"]);
        if json_path.is_empty() {
            errors.push(required(format!("{path}.jsonPath"), ""));
        } else if let Err(why) = JsonPath::parse(json_path) {
            errors.push(invalid(format!("{path}.jsonPath"), json_path, why));
        }
    }
    let scale = &version["subresources"]["scale"];
    if !scale.is_null() {
        for (field, below) in [
            ("specReplicasPath", ".spec."),
            ("statusReplicasPath", ".status."),
        ] {
            let value = text_at(scale, &[field]);
            let path = format!("{path}.subresources.scale.{field}");
            if value.is_empty() {
                errors.push(required(path, ""));
            } else if !value.starts_with(below) || value.contains('[') {
                errors.push(invalid(
                    path,
                    value,
                    format!(
                        "should be a json path under {}",
                        below.trim_end_matches('.')
                    ),
                ));
            }
        }
    }
    errors
}

/// Parses the schema of every version.
pub(super) fn validate_schemas(definition: &Value) -> Result<Vec<Arc<Schema>>, Vec<FieldError>> {
    let versions = versions(definition);
    let schema_of = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    // One schema for all versions is reported where older clients had it.
    let same = versions
        .windows(2)
        .all(|pair| schema_of(&pair[0]) == schema_of(&pair[1]));
    let mut parsed: Vec<Arc<Schema>> = Vec::new();
    let mut errors = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let openapi = &version["schema"]["openAPIV3Schema"];
        if openapi.is_null() {
            errors.push(required(
                format!("spec.versions[{index}].schema.openAPIV3Schema"),
                "schemas are required",
            ));
            continue;
        }
        if same && let Some(first) = parsed.first() {
            parsed.push(first.clone());
            continue;
        }
        let base = if same {
            "spec.validation.openAPIV3Schema".to_owned()
        } else {
            format!("spec.versions[{index}].schema.openAPIV3Schema")
        };
        match Schema::parse(openapi) {
            Ok(schema) => parsed.push(Arc::new(schema)),
            Err(found) => {
                errors.extend(found.into_iter().map(|mut error| {
                    error.path = match error.path.as_str() {
                        "" => base.clone(),
                        path if path.starts_with('[') => format!("{base}{path}"),
                        path => format!("{base}.{path}"),
                    };
                    error
                }));
                if same {
                    break;
                }
            }
        }
    }
    if errors.is_empty() {
        Ok(parsed)
    } else {
        Err(errors)
    }
}

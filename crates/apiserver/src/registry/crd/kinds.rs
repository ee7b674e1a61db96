//! The kinds that a CustomResourceDefinition defines, one per version.

use std::sync::Arc;

use serde_json::{Value, json};

use super::validate::validate_schemas;
use super::{is_true, versions};
use crate::machinery::FieldError;
use crate::machinery::apply::TypeTree;
use crate::registry::json_path::JsonPath;
use crate::registry::kind::{
    ALL_VERBS, Column, ColumnSource, Habits, Kind, KindSchema, ScalePaths, Selectable,
    StatusWrites, Subresources,
};
use crate::registry::strategy::{Plain, text_at};
use crate::storage::ResourceName;

/// The kinds that an established definition defines; none while it is not established.
///
/// # Errors
/// When a schema does not parse, which validation has excluded for definitions that were written here.
pub fn kinds(definition: &Value) -> Result<Vec<Kind>, Vec<FieldError>> {
    if !is_true(definition, "Established") {
        return Ok(Vec::new());
    }
    let schemas = validate_schemas(definition)?;
    let spec = &definition["spec"];
    let names = match &definition["status"]["acceptedNames"] {
        accepted if !text_at(accepted, &["plural"]).is_empty() => accepted,
        _ => &spec["names"],
    };
    let group: Arc<str> = text_at(spec, &["group"]).into();
    let plural: Arc<str> = text_at(names, &["plural"]).into();
    let storage_version: Arc<str> = versions(definition)
        .iter()
        .find(|version| version["storage"] == true)
        .map_or("", |version| text_at(version, &["name"]))
        .into();
    let list = |field: &str| -> Vec<Arc<str>> {
        let values = names[field].as_array().into_iter().flatten();
        values.filter_map(Value::as_str).map(Arc::from).collect()
    };
    let terminating = !definition["metadata"]["deletionTimestamp"].is_null();
    let mut order: Vec<usize> = (0..versions(definition).len()).collect();
    order.sort_by_key(|index| {
        std::cmp::Reverse(priority(text_at(&versions(definition)[*index], &["name"])))
    });
    let kinds = order.into_iter().map(|index| {
        let version = &versions(definition)[index];
        let name = text_at(version, &["name"]);
        let schema = schemas[index].clone();
        let openapi = Arc::new(version["schema"]["openAPIV3Schema"].clone());
        let kind = text_at(names, &["kind"]);
        let deprecation = (version["deprecated"] == true).then(|| {
            let given = text_at(version, &["deprecationWarning"]);
            if given.is_empty() {
                format!("{group}/{name} {kind} is deprecated").into()
            } else {
                Arc::from(given)
            }
        });
        Kind {
            group: group.clone(),
            version: name.into(),
            kind: kind.into(),
            list_kind: text_at(names, &["listKind"]).into(),
            plural: plural.clone(),
            singular: text_at(names, &["singular"]).into(),
            short_names: list("shortNames"),
            categories: list("categories"),
            namespaced: text_at(spec, &["scope"]) == "Namespaced",
            served: version["served"] == true,
            deprecation,
            storage_version: storage_version.clone(),
            subresources: subresources(version),
            columns: printer_columns(version),
            verbs: ALL_VERBS,
            selectable: version["selectableFields"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|field| Selectable::new(text_at(field, &["jsonPath"]).trim_start_matches('.')))
                .collect(),
            schema: KindSchema {
                tree: Arc::new(TypeTree::from_schema(&openapi)),
                openapi,
                structural: Some(schema),
            },
            strategy: &Plain,
            habits: Habits {
                generation: true,
                unconditional_update: false,
                create_on_update: false,
                returns_deleted: false,
                status_writes: StatusWrites::StatusOnly,
            },
            custom: true,
            terminating,
            stored_as: ResourceName {
                group: group.clone(),
                plural: plural.clone(),
            },
        }
    });
    Ok(kinds.collect())
}

fn subresources(version: &Value) -> Subresources {
    let of = &version["subresources"];
    let scale = &of["scale"];
    Subresources {
        status: !of["status"].is_null(),
        scale: (!scale.is_null()).then(|| ScalePaths {
            spec: text_at(scale, &["specReplicasPath"]).to_owned(),
            status: text_at(scale, &["statusReplicasPath"]).to_owned(),
            selector: scale["labelSelectorPath"]
                .as_str()
                .filter(|path| !path.is_empty())
                .map(str::to_owned),
        }),
        others: &[],
    }
}

fn printer_columns(version: &Value) -> Vec<Column> {
    let age = json!([{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    let columns = match version["additionalPrinterColumns"].as_array() {
        Some(columns) if !columns.is_empty() => columns.as_slice(),
        _ => age.as_array().map_or(&[][..], Vec::as_slice),
    };
    let columns = columns.iter().filter_map(|column| {
        let path = JsonPath::parse(text_at(column, &["jsonPath"])).ok()?;
        let description = match text_at(column, &["description"]) {
            "" => format!(
                "Custom resource definition column (in JSONPath format): {}",
                text_at(column, &["jsonPath"])
            ),
            text => text.to_owned(),
        };
        Some(Column {
            name: text_at(column, &["name"]).to_owned(),
            r#type: text_at(column, &["type"]).to_owned(),
            format: text_at(column, &["format"]).to_owned(),
            description,
            priority: column["priority"]
                .as_i64()
                .and_then(|p| i32::try_from(p).ok())
                .unwrap_or(0),
            source: ColumnSource::Path(Arc::new(path)),
        })
    });
    columns.collect()
}

/// How versions rank: stable over beta over alpha, then by number; other names come last.
pub fn priority(version: &str) -> (u8, u64, u64) {
    let parsed = || -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let split = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let major = rest[..split].parse().ok()?;
        let rest = &rest[split..];
        if rest.is_empty() {
            return Some((3, major, 0));
        }
        let (rank, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (2, minor),
            (_, Some(minor)) => (1, minor),
            _ => return None,
        };
        Some((rank, major, minor.parse().ok()?))
    };
    parsed().unwrap_or((0, 0, 0))
}

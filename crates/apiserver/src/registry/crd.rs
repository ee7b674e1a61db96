//! CustomResourceDefinitions: what makes one valid, what the server adds to it, and the kinds that it defines.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Registry;
use super::json_path::JsonPath;
use super::kind::{
    ALL_VERBS, Column, ColumnSource, Habits, Kind, KindSchema, ScalePaths, Selectable,
    StatusWrites, Subresources,
};
use super::strategy::{
    Plain, Strategy, at, child, immutable, invalid, required, set_default, text_at, unsupported,
};
use crate::machinery::FieldError;
use crate::machinery::apply::TypeTree;
use crate::machinery::names;
use crate::machinery::schema::Schema;
use crate::storage::ResourceName;

/// The group of CustomResourceDefinitions.
pub const GROUP: &str = "apiextensions.k8s.io";
/// The plural name of CustomResourceDefinitions.
pub const PLURAL: &str = "customresourcedefinitions";
/// The finalizer that stays on a definition until its objects are gone.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The strategy of CustomResourceDefinitions.
pub struct Definitions;

impl Strategy for Definitions {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else {
            return;
        };
        if let Some(conversion) = child(spec, "conversion") {
            set_default(conversion, "strategy", "None");
        }
        if let Some(names) = child(spec, "names") {
            let kind = text_at(names, &["kind"]).to_owned();
            if !kind.is_empty() {
                set_default(names, "singular", kind.to_lowercase());
                set_default(names, "listKind", format!("{kind}List"));
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({});
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_spec(object);
        errors.extend(validate_schemas(object).err().unwrap_or_default());
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = validate_spec(new);
        if new["spec"]["versions"] != old["spec"]["versions"] {
            errors.extend(validate_schemas(new).err().unwrap_or_default());
        }
        errors.extend(immutable(new, old, &["spec", "group"]));
        errors.extend(immutable(new, old, &["spec", "names", "plural"]));
        if is_true(old, "Established") {
            errors.extend(immutable(new, old, &["spec", "scope"]));
            errors.extend(immutable(new, old, &["spec", "names", "kind"]));
        }
        let stored = at(new, &["status", "storedVersions"]).and_then(Value::as_array);
        for (index, version) in stored.into_iter().flatten().enumerate() {
            let name = version.as_str().unwrap_or("");
            if !versions(new)
                .iter()
                .any(|version| text_at(version, &["name"]) == name)
            {
                errors.push(invalid(
                    format!("status.storedVersions[{index}]"),
                    name,
                    format!(
                        "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
                    ),
                ));
            }
        }
        errors
    }

    fn mark_deleting(&self, object: &mut Value) {
        let now = object["metadata"]["deletionTimestamp"].clone();
        set_condition(
            object,
            "Terminating",
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
            &now,
        );
    }
}

/// The versions of a definition.
fn versions(definition: &Value) -> &[Value] {
    at(definition, &["spec", "versions"])
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Whether a condition of the definition holds.
fn is_true(definition: &Value, condition: &str) -> bool {
    at(definition, &["status", "conditions"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|found| found["type"] == condition && found["status"] == "True")
}

fn set_condition(
    definition: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &Value,
) {
    let Some(holder) = child(definition, "status") else {
        return;
    };
    set_default(holder, "conditions", json!([]));
    let Some(conditions) = holder["conditions"].as_array_mut() else {
        return;
    };
    let since = conditions
        .iter()
        .find(|condition| condition["type"] == kind && condition["status"] == status)
        .map_or_else(
            || now.clone(),
            |condition| condition["lastTransitionTime"].clone(),
        );
    let condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    match conditions
        .iter_mut()
        .find(|condition| condition["type"] == kind)
    {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
}

fn validate_spec(definition: &Value) -> Vec<FieldError> {
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
fn validate_schemas(definition: &Value) -> Result<Vec<Arc<Schema>>, Vec<FieldError>> {
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

/// Brings the status of a valid definition in step with its spec: names, storage versions, conditions.
pub fn establish(definition: &mut Value, registry: &Registry, now: Timestamp) {
    let now = Value::from(crate::write::meta::time(now));
    let storing = versions(definition)
        .iter()
        .find(|version| version["storage"] == true)
        .map(|version| text_at(version, &["name"]).to_owned());
    let conflict = name_conflict(definition, registry);
    let mut names = definition["spec"]["names"].clone();
    let Some(status) = child(definition, "status") else {
        return;
    };
    set_default(status, "storedVersions", json!([]));
    if let (Some(storing), Some(stored)) = (storing, status["storedVersions"].as_array_mut())
        && !stored.iter().any(|version| *version == storing)
    {
        stored.push(json!(storing));
    }
    set_default(status, "conditions", json!([]));
    match conflict {
        None => {
            if let Some(map) = names.as_object_mut() {
                map.retain(|_, value| !value.is_null());
            }
            status["acceptedNames"] = names;
            set_condition(
                definition,
                "NamesAccepted",
                "True",
                "NoConflicts",
                "no conflicts found",
                &now,
            );
            set_condition(
                definition,
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
                &now,
            );
        }
        Some((reason, message)) => {
            set_default(status, "acceptedNames", json!({"plural": "", "kind": ""}));
            set_condition(definition, "NamesAccepted", "False", reason, &message, &now);
            if !is_true(definition, "Established") {
                set_condition(
                    definition,
                    "Established",
                    "False",
                    "NotAccepted",
                    "not all names are accepted",
                    &now,
                );
            }
        }
    }
}

fn name_conflict(definition: &Value, registry: &Registry) -> Option<(&'static str, String)> {
    let names = &definition["spec"]["names"];
    let group = text_at(definition, &["spec", "group"]);
    let plural = text_at(names, &["plural"]);
    let snapshot = registry.snapshot();
    let others: Vec<&Arc<Kind>> = snapshot
        .iter()
        .filter(|kind| &*kind.group == group && &*kind.plural != plural)
        .collect();
    let resource_taken = |name: &str| {
        others.iter().any(|kind| {
            &*kind.plural == name
                || &*kind.singular == name
                || kind.short_names.iter().any(|short| &**short == name)
        })
    };
    let kind_taken = |name: &str| {
        others
            .iter()
            .any(|kind| &*kind.kind == name || &*kind.list_kind == name)
    };
    let shorts = names["shortNames"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    for (name, reason) in [
        (plural, "PluralConflict"),
        (text_at(names, &["singular"]), "SingularConflict"),
    ]
    .into_iter()
    .chain(shorts.map(|short| (short, "ShortNamesConflict")))
    {
        if resource_taken(name) {
            return Some((reason, format!("\"{name}\" is already in use")));
        }
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        let name = text_at(names, &[field]);
        if kind_taken(name) {
            return Some((reason, format!("\"{name}\" is already in use")));
        }
    }
    None
}

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

//! CustomResourceDefinitions: what makes one valid, what the server adds to it, and the kinds that it defines.

mod kinds;
mod validate;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use kinds::{kinds, priority};

use self::validate::{validate_schemas, validate_spec};
use super::Registry;
use super::kind::Kind;
use super::strategy::{Strategy, at, child, immutable, invalid, set_default, text_at};
use crate::machinery::FieldError;

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

//! `metadata.managedFields`: who manages what.

use serde_json::{Value, json};

use super::fields::FieldSet;
use super::{Conflict, Manager, Operation};

/// One entry.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    name: String,
    operation: Operation,
    api_version: String,
    subresource: String,
    time: String,
    fields: FieldSet,
}

impl Entry {
    fn is(&self, manager: &Manager) -> bool {
        self.name == manager.name
            && self.operation == manager.operation
            && self.subresource == manager.subresource.as_deref().unwrap_or_default()
            // An applier stays the same one in every version; other writes are told apart by it.
            && (self.operation == Operation::Apply || self.api_version == manager.api_version)
    }

    fn told(&self) -> String {
        let mut text = format!("\"{}\"", self.name);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource \"{}\"", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }

    fn decode(entry: &Value) -> Option<Self> {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let operation = match entry["operation"].as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        Some(Self {
            name: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: text("time"),
            fields: FieldSet::decode(&entry["fieldsV1"]),
        })
    }

    fn encode(&self) -> Value {
        let mut entry = json!({
            "manager": self.name,
            "operation": self.operation.as_str(),
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.encode(),
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = self.subresource.as_str().into();
        }
        entry
    }
}

/// What a written object says of the records itself.
pub(super) enum Given {
    /// Nothing: the former ones go on.
    Kept,
    /// They are to be forgotten.
    Cleared,
    /// They are given, as by a client that writes back what it read.
    Replaced,
}

pub(super) fn given(object: &Value) -> Given {
    match object["metadata"].get("managedFields") {
        None | Some(Value::Null) => Given::Kept,
        Some(Value::Array(list)) if list.is_empty() || list.len() == 1 && list[0] == json!({}) => {
            Given::Cleared
        }
        Some(_) => Given::Replaced,
    }
}

pub(super) fn clear(object: &mut Value) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
}

/// All entries of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Managers(Vec<Entry>);

impl Managers {
    pub(super) fn of(object: &Value) -> Self {
        let entries = object["metadata"]["managedFields"].as_array();
        Self(
            entries
                .into_iter()
                .flatten()
                .filter_map(Entry::decode)
                .collect(),
        )
    }

    pub(super) fn fields_of(&self, manager: &Manager) -> FieldSet {
        self.0
            .iter()
            .find(|e| e.is(manager))
            .map(|e| e.fields.clone())
            .unwrap_or_default()
    }

    pub(super) fn fields_of_others(&self, manager: &Manager) -> FieldSet {
        self.0
            .iter()
            .filter(|entry| !entry.is(manager))
            .fold(FieldSet::default(), |sum, entry| sum.union(&entry.fields))
    }

    pub(super) fn conflicts(&self, manager: &Manager, changed: &FieldSet) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for entry in self.0.iter().filter(|entry| !entry.is(manager)) {
            for field in entry.fields.intersection(changed).told() {
                conflicts.push(Conflict {
                    manager: entry.told(),
                    field,
                });
            }
        }
        conflicts
    }

    pub(super) fn take_from_others(&mut self, manager: &Manager, fields: &FieldSet) {
        for entry in self.0.iter_mut().filter(|entry| !entry.is(manager)) {
            entry.fields = entry.fields.difference(fields);
        }
    }

    /// Takes fields that are gone from everybody.
    pub(super) fn forget(&mut self, gone: &FieldSet) {
        for entry in &mut self.0 {
            entry.fields.cut(gone);
        }
    }

    pub(super) fn set(&mut self, manager: &Manager, fields: FieldSet) {
        let time = manager.time.to_string();
        let time = second(&time);
        match self.0.iter_mut().find(|entry| entry.is(manager)) {
            Some(entry) => {
                entry.fields = fields;
                entry.api_version.clone_from(&manager.api_version);
                entry.time = time;
            }
            None => self.0.push(Entry {
                name: manager.name.clone(),
                operation: manager.operation,
                api_version: manager.api_version.clone(),
                subresource: manager.subresource.clone().unwrap_or_default(),
                time,
                fields,
            }),
        }
    }

    /// Puts the entries into `object`. Where neither the object (`same`) nor any set of fields changed against
    /// `former`, the former entries stay as they were, times included, so that a write without effect is one.
    pub(super) fn write(mut self, object: &mut Value, former: Option<&Value>, same: bool) {
        self.0.retain(|entry| !entry.fields.is_empty());
        let before = former.map(Self::of).unwrap_or_default();
        for entry in &mut self.0 {
            let was = before.0.iter().find(|old| {
                (&old.name, old.operation, &old.api_version, &old.subresource)
                    == (
                        &entry.name,
                        entry.operation,
                        &entry.api_version,
                        &entry.subresource,
                    )
            });
            if let Some(was) = was
                && was.fields == entry.fields
                && same
            {
                entry.time.clone_from(&was.time);
            }
        }
        self.0.sort_by(|a, b| {
            (
                a.operation,
                &a.time,
                &a.name,
                &a.api_version,
                &a.subresource,
            )
                .cmp(&(
                    b.operation,
                    &b.time,
                    &b.name,
                    &b.api_version,
                    &b.subresource,
                ))
        });
        let list: Vec<Value> = self.0.iter().map(Entry::encode).collect();
        if let Some(root) = object.as_object_mut() {
            let meta = root.entry("metadata").or_insert_with(|| json!({}));
            if let Some(meta) = meta.as_object_mut()
                && !list.is_empty()
            {
                meta.insert("managedFields".to_owned(), Value::Array(list));
            }
        }
    }
}

/// A timestamp without fractions of a second, as `metav1.Time` writes it.
fn second(time: &str) -> String {
    match time.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => time.to_owned(),
    }
}

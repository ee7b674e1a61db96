//! One kind as one version of the API serves it: names, scope, subresources, columns, schema and strategy.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::age::age_of;
use super::json_path::JsonPath;
use super::strategy::Strategy;
use crate::machinery::apply::TypeTree;
use crate::machinery::schema::Schema;
use crate::storage::ResourceName;

/// The verbs of an ordinary kind, in discovery's order.
pub const ALL_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// The verbs of a kind that is only asked and never stored.
pub const CREATE_ONLY: &[&str] = &["create"];

/// A kind in one API version.
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The API version within the group.
    pub version: Arc<str>,
    /// The kind's name in `kind`.
    pub kind: Arc<str>,
    /// The name of its lists.
    pub list_kind: Arc<str>,
    /// The resource's name in paths.
    pub plural: Arc<str>,
    /// The resource's name on command lines.
    pub singular: Arc<str>,
    /// Abbreviations for command lines.
    pub short_names: Vec<Arc<str>>,
    /// Groups of resources that it is a member of, such as `all`.
    pub categories: Vec<Arc<str>>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether this version is served; a version that is only stored is not.
    pub served: bool,
    /// Whether using this version earns a warning, and which.
    pub deprecation: Option<Arc<str>>,
    /// The version in which its objects are stored.
    pub storage_version: Arc<str>,
    /// What is served below an object's path.
    pub subresources: Subresources,
    /// The columns of its tables, after the column of names where there is one; cells are of objects in storage form.
    pub columns: Vec<Column>,
    /// The verbs that are served.
    pub verbs: &'static [&'static str],
    /// The fields that field selectors may name besides `metadata.name` and `metadata.namespace`.
    pub selectable: Vec<Selectable>,
    /// What its objects look like.
    pub schema: KindSchema,
    /// The rules that no schema tells.
    pub strategy: &'static dyn Strategy,
    /// The habits in which kinds differ.
    pub habits: Habits,
    /// Whether it comes from a CustomResourceDefinition.
    pub custom: bool,
    /// Whether its CustomResourceDefinition is being deleted, so that nothing new may be made.
    pub terminating: bool,
    /// Where its objects are stored; two groups may serve one resource.
    pub stored_as: ResourceName,
}

/// What is served below an object's path.
#[derive(Clone, Debug, Default)]
pub struct Subresources {
    /// `status` is written apart from the rest.
    pub status: bool,
    /// `scale`, where its numbers are.
    pub scale: Option<ScalePaths>,
    /// Others: `eviction`, `binding`, `finalize`.
    pub others: &'static [&'static str],
}

/// Where a scalable kind keeps its numbers, as dotted paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// The wanted number, below `spec`.
    pub spec: String,
    /// The observed number, below `status`.
    pub status: String,
    /// The label selector: a string for custom kinds, an object for built-in ones.
    pub selector: Option<String>,
}

/// A field that field selectors may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selectable {
    /// The name in the selector.
    pub label: String,
    /// The dotted path of the value.
    pub path: Vec<String>,
    /// The value when the field is absent.
    pub default: &'static str,
}

impl Selectable {
    /// A field whose label is its path.
    pub fn new(path: &str) -> Self {
        Self::labelled(path, path, "")
    }

    /// A field that is selected by another name than its path, or has a default.
    pub fn labelled(label: &str, path: &str, default: &'static str) -> Self {
        Self {
            label: label.to_owned(),
            path: path.split('.').map(str::to_owned).collect(),
            default,
        }
    }

    /// The value in `object`, as selectors compare it.
    pub fn value(&self, object: &Value) -> String {
        let found = self
            .path
            .iter()
            .try_fold(object, |at, step| at.get(step.as_str()));
        match found {
            Some(Value::String(text)) if text.is_empty() => self.default.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => self.default.to_owned(),
            Some(other) => other.to_string(),
        }
    }
}

/// What a kind's objects look like.
#[derive(Clone)]
pub struct KindSchema {
    /// The schema that discovery publishes.
    pub openapi: Arc<Value>,
    /// The schema that prunes, defaults and validates, where there is one.
    pub structural: Option<Arc<Schema>>,
    /// How two writers' fields merge.
    pub tree: Arc<TypeTree>,
}

/// What a write to `status` may change beside the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusWrites {
    /// Nothing: all other metadata stays as it is.
    StatusOnly,
    /// Metadata too, as kubelets do to Nodes and Pods.
    Metadata,
}

/// The habits in which kinds differ.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// `metadata.generation` counts the changes of what is wanted.
    pub generation: bool,
    /// An update without a resourceVersion overwrites whatever is there.
    pub unconditional_update: bool,
    /// An update of an absent object creates it.
    pub create_on_update: bool,
    /// A deletion answers with the object instead of a Status.
    pub returns_deleted: bool,
    /// What a status write may change.
    pub status_writes: StatusWrites,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            generation: false,
            unconditional_update: true,
            create_on_update: false,
            returns_deleted: false,
            status_writes: StatusWrites::Metadata,
        }
    }
}

/// A table column.
#[derive(Clone)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// The OpenAPI type of its cells.
    pub r#type: String,
    /// The OpenAPI format; empty when there is none.
    pub format: String,
    /// What it shows.
    pub description: String,
    /// 0 is always shown, more only in wide output.
    pub priority: i32,
    /// Where its cells come from.
    pub source: ColumnSource,
}

/// Where a column's cells come from.
#[derive(Clone)]
pub enum ColumnSource {
    /// A value of the object.
    Path(Arc<JsonPath>),
    /// A function of the object and the time.
    Cell(fn(&Value, Timestamp) -> Value),
}

impl Column {
    /// A built-in kind's column.
    pub fn cells(
        name: &str,
        r#type: &str,
        priority: i32,
        cell: fn(&Value, Timestamp) -> Value,
    ) -> Self {
        Self {
            name: name.to_owned(),
            r#type: r#type.to_owned(),
            format: String::new(),
            description: String::new(),
            priority,
            source: ColumnSource::Cell(cell),
        }
    }

    /// The cell for one object.
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match &self.source {
            ColumnSource::Cell(cell) => cell(object, now),
            ColumnSource::Path(path) => match path.first(object) {
                None | Some(Value::Null) => Value::Null,
                Some(value) => cell_of(&self.r#type, value, now),
            },
        }
    }
}

fn cell_of(r#type: &str, value: &Value, now: Timestamp) -> Value {
    match (r#type, value) {
        ("integer", Value::Number(number)) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|float| float as i64))
            .map_or(Value::Null, Value::from),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(then) => age_of(then, now).into(),
            Err(_) => "<invalid>".into(),
        },
        ("string", Value::String(_)) => value.clone(),
        ("string", other) => other.to_string().into(),
        _ => Value::Null,
    }
}

impl Kind {
    /// Where its objects are stored.
    pub fn resource(&self) -> ResourceName {
        self.stored_as.clone()
    }

    /// `group/version`, or the version alone in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural.group`, as messages and CustomResourceDefinition names have it.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether tables of this kind begin with a column of names, as all do but those of events, which end with one.
    pub fn names_come_first(&self) -> bool {
        self.custom || &*self.kind != "Event"
    }

    /// Whether this is that built-in kind.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        !self.custom && &*self.group == group && &*self.kind == kind
    }

    /// The fields that a writer of the object, or of a subresource, does not come to manage, because the write resets
    /// them.
    pub fn reset(&self, subresource: Option<&str>) -> &'static [&'static [&'static str]] {
        match subresource {
            None if self.subresources.status => &[&["status"]],
            Some("status") if self.habits.status_writes == StatusWrites::StatusOnly => {
                &[&["spec"], &["metadata"]]
            }
            Some("status") => &[&["spec"]],
            _ => &[],
        }
    }

    /// The values that field selectors can ask for, from an object in storage form.
    pub fn fields(&self, object: &Value) -> Vec<(String, String)> {
        self.selectable
            .iter()
            .map(|field| (field.label.clone(), field.value(object)))
            .collect()
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.kind)
    }
}

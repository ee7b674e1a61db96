//! Sets of fields, and how `fieldsV1` writes them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::tree::{ListKey, Shape};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A field.
    Field(String),
    /// An item by its keys, as canonical JSON.
    Key(String),
    /// An item by its value, as canonical JSON.
    Value(String),
}

impl Step {
    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => format!("k:{keys}"),
            Self::Value(value) => format!("v:{value}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (sort, rest) = text.split_once(':')?;
        match sort {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => Some(Self::Key(canonical(rest)?)),
            "v" => Some(Self::Value(canonical(rest)?)),
            _ => None,
        }
    }

    /// As messages write it.
    fn told(&self) -> String {
        match self {
            Self::Field(name) => format!(".{name}"),
            Self::Key(keys) => {
                let pairs: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("[{}]", pairs.join(","))
            }
            Self::Value(value) => format!("[={value}]"),
        }
    }
}

fn canonical(json: &str) -> Option<String> {
    let value: Value = serde_json::from_str(json).ok()?;
    Some(value.to_string())
}

/// The step to an item of a keyed list; nothing when it lacks a key that has no default.
pub(super) fn key_step(item: &Value, keys: &[ListKey]) -> Option<Step> {
    let mut id = Map::new();
    for key in keys {
        let value = item.get(&key.name).or(key.default.as_ref())?;
        id.insert(key.name.clone(), value.clone());
    }
    Some(Step::Key(Value::Object(id).to_string()))
}

pub(super) fn value_step(item: &Value) -> Step {
    Step::Value(item.to_string())
}

/// The parts of a value that are managed apart; nothing when it is managed as one.
pub(super) fn parts<'a>(
    value: &'a Value,
    shape: &'a Shape,
) -> Option<Vec<(Step, &'a Value, &'a Shape)>> {
    static LEAF: Shape = Shape::Atomic;
    match (value, shape) {
        (Value::Object(map), Shape::Struct { .. } | Shape::Deduced) => Some(
            map.iter()
                .map(|(name, value)| (Step::Field(name.clone()), value, shape.field(name)))
                .collect(),
        ),
        (Value::Array(list), Shape::Set) => Some(
            list.iter()
                .map(|item| (value_step(item), item, &LEAF))
                .collect(),
        ),
        (Value::Array(list), Shape::ListMap { keys, item: below }) => list
            .iter()
            .map(|item| key_step(item, keys).map(|step| (step, item, &**below)))
            .collect(),
        _ => None,
    }
}

/// A set of fields, as a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    /// Whether the field itself is in the set, not only what is below it.
    pub(super) member: bool,
    pub(super) children: BTreeMap<Step, FieldSet>,
}

/// What the server itself writes is nobody's.
const SYSTEM: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "generation",
    "managedFields",
    "resourceVersion",
    "deletionTimestamp",
];

impl FieldSet {
    /// The fields that an object sets.
    pub(super) fn of(value: &Value, shape: &Shape) -> Self {
        let mut set = Self::default();
        match parts(value, shape) {
            Some(found) if !found.is_empty() => {
                for (step, value, below) in found {
                    let mut child = Self::of(value, below);
                    // An item of a list is a field of its own besides what is in it.
                    child.member |= !matches!(step, Step::Field(_));
                    set.children.insert(step, child);
                }
            }
            _ => set.member = true,
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.values().all(Self::is_empty)
    }

    fn tidy(mut self) -> Self {
        self.children.retain(|_, child| !child.is_empty());
        self
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.member |= other.member;
        for (step, child) in &other.children {
            let merged = sum
                .children
                .get(step)
                .map_or_else(|| child.clone(), |own| own.union(child));
            sum.children.insert(step.clone(), merged);
        }
        sum
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let children = self
            .children
            .iter()
            .filter_map(|(step, child)| {
                Some((step.clone(), child.intersection(other.children.get(step)?)))
            })
            .collect();
        Self {
            member: self.member && other.member,
            children,
        }
        .tidy()
    }

    /// The fields of this set that are not in the other.
    pub(super) fn difference(&self, other: &Self) -> Self {
        let children = self
            .children
            .iter()
            .map(|(step, child)| {
                let rest = other
                    .children
                    .get(step)
                    .map_or_else(|| child.clone(), |o| child.difference(o));
                (step.clone(), rest)
            })
            .collect();
        Self {
            member: self.member && !other.member,
            children,
        }
        .tidy()
    }

    /// Takes out the fields of `other` and everything below them.
    pub(super) fn cut(&mut self, other: &Self) {
        if other.member {
            self.member = false;
            // What is gone as a whole is gone with all that was in it; a mere change of a leaf has nothing below.
            if other.children.is_empty() {
                self.children.clear();
            }
        }
        for (step, below) in &other.children {
            if let Some(child) = self.children.get_mut(step) {
                child.cut(below);
                if child.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    pub(super) fn strip_system_fields(&mut self) {
        for name in ["apiVersion", "kind"] {
            self.children.remove(&Step::Field(name.to_owned()));
        }
        let at = Step::Field("metadata".to_owned());
        if let Some(meta) = self.children.get_mut(&at) {
            meta.member = false;
            for name in SYSTEM {
                meta.children.remove(&Step::Field(name.to_owned()));
            }
            if meta.is_empty() {
                self.children.remove(&at);
            }
        }
    }

    pub(super) fn remove_below(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let step = Step::Field((*first).to_owned());
        if rest.is_empty() {
            self.children.remove(&step);
        } else if let Some(child) = self.children.get_mut(&step) {
            child.remove_below(rest);
            if child.is_empty() {
                self.children.remove(&step);
            }
        }
    }

    /// The members' paths as messages write them.
    pub(super) fn told(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, path: &str, into: &mut Vec<String>) {
        if self.member {
            into.push(path.to_owned());
        }
        for (step, child) in &self.children {
            child.collect(&format!("{path}{}", step.told()), into);
        }
    }

    /// As `fieldsV1` writes it.
    pub(super) fn encode(&self) -> Value {
        let mut map = Map::new();
        for (step, child) in &self.children {
            let mut below = child.encode();
            if child.member
                && !child.children.is_empty()
                && let Some(fields) = below.as_object_mut()
            {
                fields.insert(".".to_owned(), Value::Object(Map::new()));
            }
            map.insert(step.encode(), below);
        }
        Value::Object(map)
    }

    /// From what `fieldsV1` says; what is not understood is left out.
    pub(super) fn decode(fields: &Value) -> Self {
        let mut set = Self::default();
        for (key, below) in fields.as_object().into_iter().flatten() {
            let Some(step) = Step::decode(key) else {
                continue;
            };
            let mut child = Self::decode(below);
            let entries = below.as_object().map_or(0, Map::len);
            child.member = entries == 0 || below.get(".").is_some();
            set.children.insert(step, child);
        }
        set
    }
}

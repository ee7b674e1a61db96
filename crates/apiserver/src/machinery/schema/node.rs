//! One place in a schema.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use super::formats::Format;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// What a map's values are.
#[derive(Default)]
pub(super) enum Additional {
    #[default]
    None,
    Any,
    Schema(Box<Node>),
}

#[derive(Default)]
pub(super) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// An inclusive or exclusive bound.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) exclusive: bool,
}

#[derive(Default)]
pub(super) struct Node {
    pub(super) type_: Option<Type>,
    pub(super) nullable: bool,
    pub(super) int_or_string: bool,
    pub(super) preserve_unknown: bool,
    pub(super) embedded: bool,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) additional: Additional,
    pub(super) items: Option<Box<Node>>,
    pub(super) required: Vec<String>,
    pub(super) default: Option<Value>,
    pub(super) values: Vec<Value>,
    pub(super) minimum: Option<Bound>,
    pub(super) maximum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) pattern: Option<Regex>,
    pub(super) format: Option<Format>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) unique_items: bool,
    pub(super) min_properties: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) list: ListType,
    pub(super) all_of: Vec<Node>,
    pub(super) any_of: Vec<Node>,
    pub(super) one_of: Vec<Node>,
    pub(super) not: Option<Box<Node>>,
    pub(super) rules: bool,
}

impl Node {
    /// Whether there is a CEL rule here or below.
    pub(super) fn has_rules(&self) -> bool {
        let below = match &self.additional {
            Additional::Schema(node) => node.has_rules(),
            Additional::None | Additional::Any => false,
        };
        self.rules
            || below
            || self.items.as_ref().is_some_and(|items| items.has_rules())
            || self.properties.values().any(Node::has_rules)
    }
}

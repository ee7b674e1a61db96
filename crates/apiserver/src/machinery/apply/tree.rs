//! How the fields of a kind merge: which maps and lists are taken apart, and by what.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// How one place merges.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Not known: maps are taken apart, lists are not.
    Deduced,
    /// Never taken apart.
    Atomic,
    /// Named fields, and what others are.
    Struct {
        /// The known fields.
        fields: BTreeMap<String, Shape>,
        /// Fields that are not known.
        rest: Box<Shape>,
    },
    /// A list of distinct values.
    Set,
    /// A list of items that are told apart by keys.
    ListMap {
        /// The keys; the first also serves strategic merge patches.
        keys: Vec<ListKey>,
        /// What each item is.
        item: Box<Shape>,
    },
}

/// One key of a keyed list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListKey {
    /// The item's field.
    pub name: String,
    /// Its value where an item does not have it.
    pub default: Option<Value>,
}

static DEDUCED: Shape = Shape::Deduced;
static ATOMIC: Shape = Shape::Atomic;

impl Shape {
    /// What the field of that name is.
    pub fn field(&self, name: &str) -> &Shape {
        match self {
            Shape::Struct { fields, rest } => fields.get(name).unwrap_or(rest),
            Shape::Deduced => &DEDUCED,
            Shape::Atomic | Shape::Set | Shape::ListMap { .. } => &ATOMIC,
        }
    }

    fn of(schema: &Value) -> Shape {
        if schema["x-kubernetes-map-type"] == "atomic" {
            return Shape::Atomic;
        }
        let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
        match schema["type"].as_str() {
            Some("array") => match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => Shape::Set,
                Some("map") => {
                    let item = &schema["items"];
                    let keys = schema["x-kubernetes-list-map-keys"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_str)
                        .map(|name| ListKey {
                            name: name.to_owned(),
                            default: item["properties"][name].get("default").cloned(),
                        })
                        .collect::<Vec<_>>();
                    if keys.is_empty() {
                        return Shape::Atomic;
                    }
                    Shape::ListMap {
                        keys,
                        item: Box::new(Shape::of(item)),
                    }
                }
                _ => Shape::Atomic,
            },
            Some("object") | None => {
                let fields: BTreeMap<String, Shape> = schema["properties"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, field)| (name.clone(), Shape::of(field)))
                    .collect();
                let rest = match schema.get("additionalProperties") {
                    Some(value @ Value::Object(_)) => Shape::of(value),
                    _ => Shape::Deduced,
                };
                if fields.is_empty() && (open || rest == Shape::Deduced) {
                    return Shape::Deduced;
                }
                Shape::Struct {
                    fields,
                    rest: Box::new(rest),
                }
            }
            Some(_) => Shape::Deduced,
        }
    }
}

/// How the fields of a kind merge.
#[derive(Clone, Debug)]
pub struct TypeTree(Arc<Shape>);

impl TypeTree {
    /// From an OpenAPI schema with its `x-kubernetes-list-type` and related marks.
    pub fn from_schema(schema: &Value) -> Self {
        let mut root = match Shape::of(schema) {
            Shape::Struct { fields, rest } => (fields, rest),
            _ => (BTreeMap::new(), Box::new(Shape::Deduced)),
        };
        root.0.insert("metadata".to_owned(), metadata());
        Self(Arc::new(Shape::Struct {
            fields: root.0,
            rest: root.1,
        }))
    }

    /// Of a kind about which nothing is known.
    pub fn deduced() -> Self {
        Self::from_schema(&Value::Null)
    }

    /// The object itself.
    pub fn root(&self) -> &Shape {
        &self.0
    }
}

fn metadata() -> Shape {
    let owner = Shape::ListMap {
        keys: vec![ListKey {
            name: "uid".to_owned(),
            default: None,
        }],
        // An owner reference is replaced as a whole.
        item: Box::new(Shape::Atomic),
    };
    let fields = [
        ("finalizers".to_owned(), Shape::Set),
        ("ownerReferences".to_owned(), owner),
    ];
    Shape::Struct {
        fields: fields.into(),
        rest: Box::new(Shape::Deduced),
    }
}

//! Pruning of unknown fields, and defaults.

use serde_json::Value;

use super::node::{Additional, Node, Type};

/// Fields that every object has, whether the schema names them or not.
const ALWAYS: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(super) fn prune(
    node: &Node,
    value: &mut Value,
    path: &str,
    resource: bool,
    unknown: &mut Vec<String>,
) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| {
                let known = node.preserve_unknown
                    || node.properties.contains_key(key)
                    || !matches!(node.additional, Additional::None)
                    || (resource || node.embedded) && ALWAYS.contains(&key.as_str());
                if !known {
                    unknown.push(join(path, key));
                }
                known
            });
            for (key, below) in map.iter_mut() {
                if (resource || node.embedded) && ALWAYS.contains(&key.as_str()) {
                    continue;
                }
                let child = match (node.properties.get(key), &node.additional) {
                    (Some(child), _) => child,
                    (None, Additional::Schema(child)) => child,
                    (None, _) => continue,
                };
                prune(child, below, &join(path, key), false, unknown);
            }
        }
        Value::Array(list) => {
            if let Some(items) = &node.items {
                for (index, item) in list.iter_mut().enumerate() {
                    prune(items, item, &format!("{path}[{index}]"), false, unknown);
                }
            }
        }
        _ => {}
    }
}

pub(super) fn default(node: &Node, value: &mut Value, drops_nulls: bool) {
    match value {
        Value::Object(map) => {
            map.retain(|key, below| {
                let Some(child) = node.properties.get(key).filter(|_| below.is_null()) else {
                    return !(below.is_null() && drops_nulls && !node.preserve_unknown);
                };
                // Null stands for absent where there is a default to take its place.
                !(drops_nulls || !child.nullable && child.default.is_some())
            });
            for (key, child) in &node.properties {
                if let Some(default) = &child.default
                    && !map.contains_key(key)
                {
                    map.insert(key.clone(), default.clone());
                }
            }
            for (key, below) in map.iter_mut() {
                match (node.properties.get(key), &node.additional) {
                    (Some(child), _) => default(child, below, drops_nulls),
                    (None, Additional::Schema(child)) => default(child, below, drops_nulls),
                    (None, _) => {}
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = node
                .items
                .as_ref()
                .filter(|_| node.type_ != Some(Type::Object))
            {
                for item in list {
                    default(items, item, drops_nulls);
                }
            }
        }
        _ => {}
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

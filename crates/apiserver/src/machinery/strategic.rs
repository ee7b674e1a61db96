//! Strategic merge patches: merge patches in which lists of keyed items merge by key.

use serde_json::{Map, Value};

use super::apply::TypeTree;
use super::apply::tree::Shape;
use super::patch::PatchError;

/// Applies a strategic merge patch, with the directives `$patch`, `$retainKeys`, `$deleteFromPrimitiveList` and
/// `$setElementOrder`.
///
/// # Errors
/// When a directive is unknown or an item of a keyed list has no key.
pub fn strategic_merge(
    target: &Value,
    patch: &Value,
    tree: &TypeTree,
) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError(
            "a strategic merge patch is a JSON object".to_owned(),
        ));
    };
    let target = match target {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    Ok(merge_map(target, patch, tree.root())?.map_or(Value::Null, Value::Object))
}

/// The merged map, or nothing when the patch deletes it.
fn merge_map(
    mut target: Map<String, Value>,
    patch: &Map<String, Value>,
    shape: &Shape,
) -> Result<Option<Map<String, Value>>, PatchError> {
    match patch.get("$patch").map(|d| d.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("delete") => return Ok(None),
        Some("replace") => {
            let mut whole = patch.clone();
            whole.remove("$patch");
            return Ok(Some(whole));
        }
        Some(other) => return Err(PatchError(format!("unknown patch type: {other}"))),
    }
    if let Some(keep) = patch.get("$retainKeys").and_then(Value::as_array) {
        target.retain(|key, _| keep.iter().any(|k| k == key));
    }
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(list), Some(gone)) = (
                target.get_mut(field).and_then(Value::as_array_mut),
                value.as_array(),
            ) {
                list.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        let below = shape.field(key);
        let merged = match (value, target.remove(key)) {
            (Value::Null, _) => None,
            (Value::Object(patch), Some(Value::Object(now))) => {
                merge_map(now, patch, below)?.map(Value::Object)
            }
            (Value::Object(patch), _) => merge_map(Map::new(), patch, below)?.map(Value::Object),
            (Value::Array(patch), now) => {
                let now = match now {
                    Some(Value::Array(list)) => list,
                    _ => Vec::new(),
                };
                Some(Value::Array(merge_list(now, patch, below)?))
            }
            (scalar, _) => Some(scalar.clone()),
        };
        if let Some(merged) = merged {
            target.insert(key.clone(), merged);
        }
    }
    for (key, order) in patch {
        if let (Some(field), Some(order)) =
            (key.strip_prefix("$setElementOrder/"), order.as_array())
            && let Some(list) = target.get_mut(field).and_then(Value::as_array_mut)
        {
            set_order(list, order, shape.field(field));
        }
    }
    Ok(Some(target))
}

fn merge_list(now: Vec<Value>, patch: &[Value], shape: &Shape) -> Result<Vec<Value>, PatchError> {
    match shape {
        Shape::Set => {
            let mut merged = now;
            for item in patch {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            Ok(merged)
        }
        Shape::ListMap { keys, item: below } => merge_keyed(now, patch, &keys[0].name, below),
        _ => {
            let replaced = patch.iter().filter(|item| item.get("$patch").is_none());
            Ok(replaced.cloned().collect())
        }
    }
}

fn merge_keyed(
    mut now: Vec<Value>,
    patch: &[Value],
    key: &str,
    below: &Shape,
) -> Result<Vec<Value>, PatchError> {
    let replaces = |item: &Value| item["$patch"] == "replace" && item.get(key).is_none();
    if patch.iter().any(replaces) {
        return Ok(patch
            .iter()
            .filter(|item| !replaces(item))
            .cloned()
            .collect());
    }
    for item in patch {
        let Value::Object(fields) = item else {
            return Err(PatchError(format!(
                "an item of a list that merges by {key:?} is not an object: {item}"
            )));
        };
        let Some(id) = fields.get(key) else {
            return Err(PatchError(format!(
                "map: {item} does not contain declared merge key: {key}"
            )));
        };
        let at = now.iter().position(|old| old.get(key) == Some(id));
        let old = match at.map(|at| now[at].take()) {
            Some(Value::Object(old)) => old,
            _ => Map::new(),
        };
        match (merge_map(old, fields, below)?, at) {
            (Some(merged), Some(at)) => now[at] = Value::Object(merged),
            (Some(merged), None) => now.push(Value::Object(merged)),
            (None, Some(at)) => drop(now.remove(at)),
            (None, None) => {}
        }
    }
    Ok(now)
}

/// Orders the items that `order` names as it names them; others keep their place after those before them.
fn set_order(list: &mut Vec<Value>, order: &[Value], shape: &Shape) {
    let place = |item: &Value| match shape {
        Shape::ListMap { keys, .. } => {
            let key = keys[0].name.as_str();
            order.iter().position(|o| o.get(key) == item.get(key))
        }
        _ => order.iter().position(|o| o == item),
    };
    let (mut named, others): (Vec<_>, Vec<_>) = std::mem::take(list)
        .into_iter()
        .partition(|item| place(item).is_some());
    named.sort_by_key(|item| place(item));
    named.extend(others);
    *list = named;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tree() -> TypeTree {
        TypeTree::from_schema(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "containers": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}, "image": {"type": "string"},
                    "args": {"type": "array", "items": {"type": "string"}}}}},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}}}),
        )
    }

    #[test]
    fn keyed_lists_merge_by_key_and_plain_ones_are_replaced() {
        let target = json!({"spec": {"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "2"}], "tags": ["t"]}});
        let check = |patch: Value, expected: Value| {
            assert_eq!(
                strategic_merge(&target, &json!({"spec": patch}), &tree()).unwrap()["spec"],
                expected
            );
        };
        check(
            json!({"containers": [{"name": "b", "image": "3", "args": ["y"]}, {"name": "c"}], "tags": ["u", "t"]}),
            json!({"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b", "image": "3", "args": ["y"]}, {"name": "c"}], "tags": ["t", "u"]}),
        );
        check(
            json!({"containers": [{"name": "a", "$patch": "delete"}], "tags": null}),
            json!({"containers": [{"name": "b", "image": "2"}]}),
        );
        check(
            json!({"containers": [{"$patch": "replace"}, {"name": "z"}], "$deleteFromPrimitiveList/tags": ["t"]}),
            json!({"containers": [{"name": "z"}], "tags": []}),
        );
        check(
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
            json!({"containers": [{"name": "b", "image": "2"}, {"name": "a", "image": "1", "args": ["x"]}], "tags": ["t"]}),
        );
    }

    #[test]
    fn an_item_without_its_key_is_refused() {
        assert!(
            strategic_merge(
                &json!({}),
                &json!({"spec": {"containers": [{"image": "1"}]}}),
                &tree()
            )
            .is_err()
        );
    }
}

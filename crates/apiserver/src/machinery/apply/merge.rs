//! Merging what is applied into what is there, and taking out what nobody wants any more.

use serde_json::{Map, Value};

use super::fields::{FieldSet, Step, key_step, value_step};
use super::tree::Shape;

/// `live` with the fields of `applied` set.
pub(super) fn merge(live: &Value, applied: &Value, shape: &Shape) -> Value {
    match (live, applied, shape) {
        (Value::Object(live), Value::Object(applied), Shape::Struct { .. } | Shape::Deduced) => {
            let mut merged = live.clone();
            for (name, value) in applied {
                let was = merged.get(name).unwrap_or(&Value::Null);
                let now = merge(was, value, shape.field(name));
                merged.insert(name.clone(), now);
            }
            Value::Object(merged)
        }
        (_, Value::Object(applied), Shape::Struct { .. } | Shape::Deduced) => {
            let merged: Map<String, Value> = applied
                .iter()
                .map(|(name, value)| (name.clone(), merge(&Value::Null, value, shape.field(name))))
                .collect();
            Value::Object(merged)
        }
        (Value::Array(live), Value::Array(applied), Shape::Set) => {
            let only_live = live.iter().filter(|item| !applied.contains(item)).cloned();
            Value::Array(ordered(
                live,
                applied,
                only_live.collect(),
                applied.clone(),
                value_step,
            ))
        }
        (Value::Array(live), Value::Array(applied), Shape::ListMap { keys, item: below }) => {
            let step = |item: &Value| key_step(item, keys).unwrap_or_else(|| value_step(item));
            let merged: Vec<Value> = applied
                .iter()
                .map(|item| {
                    let id = step(item);
                    let was = live
                        .iter()
                        .find(|old| step(old) == id)
                        .unwrap_or(&Value::Null);
                    merge(was, item, below)
                })
                .collect();
            let ids: Vec<Step> = applied.iter().map(step).collect();
            let only_live = live.iter().filter(|old| !ids.contains(&step(old))).cloned();
            Value::Array(ordered(live, applied, only_live.collect(), merged, step))
        }
        (_, applied, _) => applied.clone(),
    }
}

/// The applied items in their order, with items that only the live list has kept behind their former predecessors.
fn ordered(
    live: &[Value],
    applied: &[Value],
    only_live: Vec<Value>,
    merged: Vec<Value>,
    step: impl Fn(&Value) -> Step,
) -> Vec<Value> {
    if only_live.is_empty() {
        return merged;
    }
    let ids: Vec<Step> = applied.iter().map(&step).collect();
    let mut result: Vec<(Option<Step>, Value)> =
        ids.iter().cloned().map(Some).zip(merged).collect();
    let mut predecessor: Option<Step> = None;
    for item in live {
        let id = step(item);
        if !ids.contains(&id) {
            let at = predecessor
                .as_ref()
                .and_then(|p| result.iter().position(|(s, _)| s.as_ref() == Some(p)))
                .map_or(0, |at| at + 1);
            result.insert(at, (Some(id.clone()), item.clone()));
        }
        predecessor = Some(id);
    }
    result.into_iter().map(|(_, item)| item).collect()
}

/// Takes the fields of `gone` out of `value`; a container that is left empty goes too, unless it is `wanted` itself.
pub(super) fn remove(value: &mut Value, gone: &FieldSet, wanted: &FieldSet, shape: &Shape) {
    static NOTHING: FieldSet = FieldSet {
        member: false,
        children: std::collections::BTreeMap::new(),
    };
    let kept = |step: &Step| wanted.children.get(step).unwrap_or(&NOTHING);
    match value {
        Value::Object(map) => {
            for (step, below) in &gone.children {
                let Step::Field(name) = step else {
                    continue;
                };
                let wanted = kept(step);
                if let Some(child) = map.get_mut(name) {
                    remove(child, below, wanted, shape.field(name));
                    if wanted.is_empty() && is_void(child, below) {
                        map.remove(name);
                    }
                }
            }
        }
        Value::Array(list) => {
            let (keys, item_shape) = match shape {
                Shape::ListMap { keys, item } => (Some(keys), &**item),
                _ => (None, shape),
            };
            list.retain_mut(|item| {
                let step = match keys {
                    Some(keys) => key_step(item, keys).unwrap_or_else(|| value_step(item)),
                    None => value_step(item),
                };
                let Some(below) = gone.children.get(&step) else {
                    return true;
                };
                let wanted = kept(&step);
                remove(item, below, wanted, item_shape);
                !(below.member && wanted.is_empty())
            });
        }
        _ => {}
    }
}

/// Whether a field goes: it was dropped itself, or all that was in it.
fn is_void(child: &Value, gone: &FieldSet) -> bool {
    match child {
        Value::Object(map) => map.is_empty() || gone.member && gone.children.is_empty(),
        Value::Array(list) => list.is_empty() || gone.member && gone.children.is_empty(),
        _ => gone.member,
    }
}

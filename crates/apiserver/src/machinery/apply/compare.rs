//! Which fields differ between two states of an object.

use serde_json::Value;

use super::fields::{FieldSet, parts};
use super::tree::Shape;

/// The fields that are new or different in `after`.
pub(super) fn changed(before: &Value, after: &Value, shape: &Shape) -> FieldSet {
    let mut set = FieldSet::default();
    if before == after {
        return set;
    }
    match (parts(before, shape), parts(after, shape)) {
        (Some(old), Some(new)) => {
            for (step, value, below) in new {
                let child = match old.iter().find(|(s, _, _)| *s == step) {
                    Some((_, was, _)) => changed(was, value, below),
                    None => added(value, below),
                };
                if !child.is_empty() {
                    set.children.insert(step, child);
                }
            }
        }
        _ => return added(after, shape),
    }
    set
}

/// Everything in `value`, containers included, since none of it was there.
fn added(value: &Value, shape: &Shape) -> FieldSet {
    let mut set = FieldSet {
        member: true,
        ..FieldSet::default()
    };
    for (step, value, below) in parts(value, shape).into_iter().flatten() {
        set.children.insert(step, added(value, below));
    }
    set
}

/// The fields that `before` has and `after` has not.
pub(super) fn removed(before: &Value, after: &Value, shape: &Shape) -> FieldSet {
    let mut set = FieldSet::default();
    if before == after {
        return set;
    }
    if let Some(old) = parts(before, shape) {
        let new = parts(after, shape).unwrap_or_default();
        for (step, was, below) in old {
            let child = match new.iter().find(|(s, _, _)| *s == step) {
                Some((_, value, _)) => removed(was, value, below),
                None => FieldSet {
                    member: true,
                    ..FieldSet::default()
                },
            };
            if !child.is_empty() {
                set.children.insert(step, child);
            }
        }
    }
    set
}

//! JSON patches (RFC 6902) and merge patches (RFC 7386); strategic merge is in its own file.

use serde_json::{Map, Value};

pub use super::strategic::strategic_merge;

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatchError(pub(super) String);

/// How many operations a JSON patch may have, as in kube-apiserver.
const MAX_OPERATIONS: usize = 10_000;

/// Applies a JSON patch.
///
/// # Errors
/// When it is malformed, a path does not exist, or a test fails.
pub fn json_patch(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    if patch
        .as_array()
        .is_some_and(|list| list.len() > MAX_OPERATIONS)
    {
        return Err(PatchError(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}"
        )));
    }
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| PatchError(format!("error decoding patch: {error}")))?;
    let mut patched = target.clone();
    json_patch::patch(&mut patched, &patch).map_err(|error| {
        PatchError(format!(
            "the server rejected our request due to an error in our request: {error}"
        ))
    })?;
    Ok(patched)
}

/// Applies a merge patch.
pub fn merge_patch(target: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else {
        return patch.clone();
    };
    let mut merged = match target {
        Value::Object(target) => target.clone(),
        _ => Map::new(),
    };
    for (key, value) in patch {
        if value.is_null() {
            merged.remove(key);
        } else {
            let below = merge_patch(merged.get(key).unwrap_or(&Value::Null), value);
            merged.insert(key.clone(), below);
        }
    }
    Value::Object(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_patch_sets_removes_and_replaces_lists() {
        let merged = merge_patch(
            &json!({"a": {"b": 1, "c": [1, 2]}, "d": 4}),
            &json!({"a": {"b": null, "c": [3], "e": {"f": null, "g": 1}}}),
        );
        assert_eq!(merged, json!({"a": {"c": [3], "e": {"g": 1}}, "d": 4}));
    }

    #[test]
    fn a_json_patch_with_a_failing_test_changes_nothing() {
        let target = json!({"a": 1});
        let patch = json!([{"op": "replace", "path": "/a", "value": 2}, {"op": "test", "path": "/a", "value": 1}]);
        assert!(json_patch(&target, &patch).is_err());
        let patch = json!([{"op": "test", "path": "/a", "value": 1}, {"op": "add", "path": "/b", "value": [1]}]);
        assert_eq!(
            json_patch(&target, &patch).unwrap(),
            json!({"a": 1, "b": [1]})
        );
    }
}

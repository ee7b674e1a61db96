//! Namespaces: born active with a finalizer of their own, which only the `finalize` subresource takes away.

use serde_json::{Value, json};

use crate::registry::strategy::{Strategy, at, child, keep, set_default};

/// The finalizer in `spec.finalizers` that stands for a namespace's content.
pub const CONTENT: &str = "kubernetes";

/// The strategy of Namespaces.
pub struct Namespaces;

impl Strategy for Namespaces {
    fn default(&self, object: &mut Value) {
        // Every namespace can be selected by its name.
        let name = object["metadata"]["name"].clone();
        if !name.as_str().unwrap_or("").is_empty()
            && let Some(metadata) = child(object, "metadata")
            && let Some(labels) = child(metadata, "labels")
        {
            labels["kubernetes.io/metadata.name"] = name;
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"phase": "Active"});
        if let Some(spec) = child(object, "spec") {
            set_default(spec, "finalizers", json!([]));
            if let Some(finalizers) = spec["finalizers"].as_array_mut()
                && !finalizers.iter().any(|f| f == CONTENT)
            {
                finalizers.push(json!(CONTENT));
            }
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        // The finalizers of the content are changed through `finalize` alone.
        keep(new, old, "spec");
    }

    fn mark_deleting(&self, object: &mut Value) {
        if let Some(status) = child(object, "status") {
            status["phase"] = json!("Terminating");
        }
    }

    fn holds(&self, object: &Value) -> bool {
        at(object, &["spec", "finalizers"])
            .and_then(Value::as_array)
            .is_some_and(|finalizers| !finalizers.is_empty())
    }
}

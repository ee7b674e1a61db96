//! Schemas that derives cannot express: conditions, label selectors, identifiers.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Pattern of a DNS-1123 subdomain.
pub(crate) const SUBDOMAIN: &str =
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Pattern of a kind's name.
pub(crate) const KIND: &str = r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$";
/// Pattern of a condition type, with an optional domain.
pub(crate) const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// Pattern of a taint's key.
pub(crate) const TAINT_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
/// Pattern of a label or taint value.
pub(crate) const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// `metav1.Condition`s as a list-map by type, at most 32.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time",
                    "description": "When the status last changed."},
                "message": {"type": "string", "maxLength": 32768, "description": "The reason in words."},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0,
                    "description": "The metadata.generation that the condition was set for."},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "Why the status is what it is, in one CamelCase word."},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"],
                    "description": "Whether it holds."},
                "type": {"type": "string", "maxLength": 316, "pattern": CONDITION_TYPE,
                    "description": "What the condition is about."}
            }
        }
    })
}

/// A label selector that is replaced as a whole.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "description": "Requirements, all of which must hold.",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "description": "The label."},
                        "operator": {"type": "string", "description": "In, NotIn, Exists or DoesNotExist."},
                        "values": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"},
                            "description": "What In and NotIn compare with."}
                    }
                }
            },
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"},
                "description": "Labels and the values that they must have."}
        }
    })
}

/// A reference to any object, as core/v1 has it, replaced as a whole.
pub(crate) fn object_reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": {"type": "string"},
            "fieldPath": {"type": "string"},
            "kind": {"type": "string"},
            "name": {"type": "string"},
            "namespace": {"type": "string"},
            "resourceVersion": {"type": "string"},
            "uid": {"type": "string"}
        }
    })
}

/// References to Nodes, at most 10,000, replaced as a whole.
pub(crate) fn node_references(generator: &mut SchemaGenerator) -> Schema {
    let item = object_reference(generator);
    json_schema!({
        "type": "array",
        "maxItems": 10000,
        "x-kubernetes-list-type": "atomic",
        "items": item
    })
}

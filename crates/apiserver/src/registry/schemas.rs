//! Schemas of the built-in kinds, from the types of `k8s-openapi`, with the marks that tell how lists merge.

use std::sync::Arc;

use k8s_openapi::api::{apps, batch, coordination, core, events, policy, scheduling, storage};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::KindSchema;
use crate::machinery::apply::TypeTree;
use crate::machinery::schema::Schema;

/// The prefix of references within a generated schema.
pub const DEFINITIONS: &str = "#/$defs/";

/// Lists whose items are told apart by keys, as the Kubernetes API documents them: type, field, keys. A type of `*`
/// stands for every type. The first key is also the one of strategic merge patches.
const KEYED: &[(&str, &str, &[&str])] = &[
    ("*", "conditions", &["type"]),
    ("*", "ownerReferences", &["uid"]),
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "volumes", &["name"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    (
        "PodSpec",
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("PodSpec", "schedulingGates", &["name"]),
    ("PodSpec", "resourceClaims", &["name"]),
    ("PodStatus", "podIPs", &["ip"]),
    ("Container", "env", &["name"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("EphemeralContainer", "env", &["name"]),
    ("EphemeralContainer", "volumeMounts", &["mountPath"]),
    ("ServiceSpec", "ports", &["port", "protocol"]),
    ("ServiceAccount", "secrets", &["name"]),
    ("ServiceAccount", "imagePullSecrets", &["name"]),
    ("NodeStatus", "addresses", &["type"]),
];

/// Lists of distinct values.
const SETS: &[(&str, &str)] = &[("*", "finalizers"), ("NodeSpec", "podCIDRs")];

/// Maps that are replaced as a whole.
const ATOMIC: &[&str] = &[
    "LabelSelector",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectReference",
    "LocalObjectReference",
    "SecretReference",
    "TypedLocalObjectReference",
];

/// Values that keyed items have when they do not say.
const KEY_DEFAULTS: &[(&str, &str, &str)] = &[
    ("ContainerPort", "protocol", "TCP"),
    ("ServicePort", "protocol", "TCP"),
];

/// The schema of a built-in kind; of one that is not known here, a schema that accepts anything.
pub fn builtin(group: &str, version: &str, kind: &str) -> KindSchema {
    let generated = match (group, version, kind) {
        ("", "v1", "Namespace") => generate::<core::v1::Namespace>(),
        ("", "v1", "Secret") => generate::<core::v1::Secret>(),
        ("", "v1", "ConfigMap") => generate::<core::v1::ConfigMap>(),
        ("", "v1", "Event") => generate::<core::v1::Event>(),
        ("", "v1", "Node") => generate::<core::v1::Node>(),
        ("", "v1", "Pod") => generate::<core::v1::Pod>(),
        ("", "v1", "PersistentVolume") => generate::<core::v1::PersistentVolume>(),
        ("", "v1", "PersistentVolumeClaim") => generate::<core::v1::PersistentVolumeClaim>(),
        ("", "v1", "Service") => generate::<core::v1::Service>(),
        ("", "v1", "ServiceAccount") => generate::<core::v1::ServiceAccount>(),
        ("apps", "v1", "Deployment") => generate::<apps::v1::Deployment>(),
        ("apps", "v1", "ReplicaSet") => generate::<apps::v1::ReplicaSet>(),
        ("apps", "v1", "DaemonSet") => generate::<apps::v1::DaemonSet>(),
        ("apps", "v1", "StatefulSet") => generate::<apps::v1::StatefulSet>(),
        ("apps", "v1", "ControllerRevision") => generate::<apps::v1::ControllerRevision>(),
        ("batch", "v1", "Job") => generate::<batch::v1::Job>(),
        ("policy", "v1", "PodDisruptionBudget") => generate::<policy::v1::PodDisruptionBudget>(),
        ("coordination.k8s.io", "v1", "Lease") => generate::<coordination::v1::Lease>(),
        ("events.k8s.io", "v1", "Event") => generate::<events::v1::Event>(),
        ("scheduling.k8s.io", "v1", "PriorityClass") => generate::<scheduling::v1::PriorityClass>(),
        ("storage.k8s.io", "v1", "StorageClass") => generate::<storage::v1::StorageClass>(),
        ("storage.k8s.io", "v1", "VolumeAttachment") => generate::<storage::v1::VolumeAttachment>(),
        ("storage.k8s.io", "v1", "CSINode") => generate::<storage::v1::CSINode>(),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition") => {
            generate::<apiextensions::v1::CustomResourceDefinition>()
        }
        _ => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    };
    let inlined = inline(&generated);
    KindSchema {
        structural: Some(Arc::new(Schema::builtin(&inlined))),
        tree: Arc::new(TypeTree::from_schema(&inlined)),
        openapi: Arc::new(generated),
    }
}

fn generate<T: JsonSchema>() -> Value {
    let generator = SchemaGenerator::new(SchemaSettings::draft2020_12());
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    let title = T::schema_name().into_owned();
    let name = short_name(&title).to_owned();
    mark(&name, &mut schema);
    if let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        for (full, definition) in definitions {
            mark(short_name(full), definition);
        }
    }
    schema
}

fn short_name(full: &str) -> &str {
    full.rsplit('.').next().unwrap_or(full)
}

/// Adds what the generated schema of one type lacks.
fn mark(name: &str, schema: &mut Value) {
    if ATOMIC.contains(&name) {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (field, property) in properties {
        let is = |owner: &str, wanted: &str| (owner == "*" || owner == name) && wanted == field;
        if property["type"] == "array" {
            if let Some((_, _, keys)) = KEYED.iter().find(|(owner, wanted, _)| is(owner, wanted)) {
                property["x-kubernetes-list-type"] = "map".into();
                property["x-kubernetes-list-map-keys"] = json!(keys);
            } else if SETS.iter().any(|(owner, wanted)| is(owner, wanted)) {
                property["x-kubernetes-list-type"] = "set".into();
            }
        }
        if let Some((_, _, default)) = KEY_DEFAULTS
            .iter()
            .find(|(owner, wanted, _)| is(owner, wanted))
        {
            property["default"] = (*default).into();
        }
    }
}

/// The schema with every reference replaced by what it refers to; where a type contains itself, anything goes.
fn inline(schema: &Value) -> Value {
    let nothing = Map::new();
    let definitions = schema["$defs"].as_object().unwrap_or(&nothing);
    expand(schema, definitions, &mut Vec::new())
}

fn expand<'a>(
    schema: &'a Value,
    definitions: &'a Map<String, Value>,
    inside: &mut Vec<&'a str>,
) -> Value {
    let open = || json!({"x-kubernetes-preserve-unknown-fields": true});
    let Some(map) = schema.as_object() else {
        return open();
    };
    if let Some(name) = map
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|r| r.strip_prefix(DEFINITIONS))
    {
        if inside.contains(&name) {
            return open();
        }
        let Some(definition) = definitions.get(name) else {
            return open();
        };
        inside.push(name);
        let expanded = expand(definition, definitions, inside);
        inside.pop();
        return expanded;
    }
    let mut result = Map::new();
    for (key, value) in map {
        match key.as_str() {
            "$defs" | "description" | "title" | "$schema" => {}
            "properties" => {
                let fields: Map<String, Value> = value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, field)| (name.clone(), expand(field, definitions, inside)))
                    .collect();
                result.insert(key.clone(), Value::Object(fields));
            }
            "items" | "additionalProperties" if value.is_object() => {
                result.insert(key.clone(), expand(value, definitions, inside));
            }
            _ => {
                result.insert(key.clone(), value.clone());
            }
        }
    }
    let shapeless = match result.get("type").and_then(Value::as_str) {
        None => !result.contains_key("x-kubernetes-int-or-string"),
        Some("object") => {
            !result.contains_key("properties") && !result.contains_key("additionalProperties")
        }
        Some(_) => false,
    };
    if shapeless {
        result.insert(
            "x-kubernetes-preserve-unknown-fields".to_owned(),
            true.into(),
        );
    }
    Value::Object(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployment_is_pruned_and_its_lists_merge_by_key() {
        let schema = builtin("apps", "v1", "Deployment");
        let mut object = json!({"metadata": {}, "spec": {"replicas": 1, "oops": 1, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"creationTimestamp": null, "labels": {"a": "b"}}, "spec": {"containers": [
                {"name": "a", "image": "x", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}}, "ports": [{"containerPort": 80}]}]}}}});
        let structural = schema.structural.unwrap();
        assert_eq!(structural.prune(&mut object), ["spec.oops"]);
        structural.default(&mut object);
        assert_eq!(structural.validate(&object, None), []);
        assert_eq!(
            object["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"],
            "TCP"
        );
        assert!(
            object["spec"]["template"]["metadata"]
                .get("creationTimestamp")
                .is_none()
        );
        let patch =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "y"}]}}}});
        let merged =
            crate::machinery::patch::strategic_merge(&object, &patch, &schema.tree).unwrap();
        let container = &merged["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(
            (&container["image"], &container["ports"][0]["containerPort"]),
            (&json!("y"), &json!(80))
        );
    }

    #[test]
    fn a_definition_may_contain_schemas_of_any_depth() {
        let schema = builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let deep = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "object",
            "x-kubernetes-validations": [{"rule": "true"}], "default": {"x": [1]}}}}}});
        let mut object = json!({"metadata": {}, "spec": {"group": "g", "scope": "Namespaced", "names": {"kind": "K", "plural": "ks"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": deep.clone()}}]}});
        assert_eq!(
            schema.structural.unwrap().prune(&mut object),
            Vec::<String>::new()
        );
        assert_eq!(
            object["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            deep
        );
    }
}

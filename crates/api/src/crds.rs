//! The CustomResourceDefinitions, made from the types.

use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::{
    ASGCluster, ASGMachine, ASGMachinePool, CORE_GROUP, Cluster, INFRASTRUCTURE_GROUP, Machine,
    MachineDrainRule, MachineHealthCheck, MachinePool, MachinePoolPolicy, SimCluster, SimMachine,
    SimMachinePool,
};

/// A printer column: name, type, path, whether only in wide output.
type Column = (&'static str, &'static str, &'static str, bool);

const PAUSED: &str = ".status.conditions[?(@.type==\"Paused\")].status";
const AGE: Column = ("Age", "date", ".metadata.creationTimestamp", false);

// The first and the last are of `spec.topology`, which Muster leaves out; they stay, so that rows read as elsewhere.
const CLUSTER: &[Column] = &[
    (
        "ClusterClass",
        "string",
        ".spec.topology.classRef.name",
        false,
    ),
    (
        "Available",
        "string",
        ".status.conditions[?(@.type==\"Available\")].status",
        false,
    ),
    (
        "CP Desired",
        "integer",
        ".status.controlPlane.desiredReplicas",
        false,
    ),
    (
        "CP Current",
        "integer",
        ".status.controlPlane.replicas",
        true,
    ),
    (
        "CP Ready",
        "integer",
        ".status.controlPlane.readyReplicas",
        true,
    ),
    (
        "CP Available",
        "integer",
        ".status.controlPlane.availableReplicas",
        false,
    ),
    (
        "CP Up-to-date",
        "integer",
        ".status.controlPlane.upToDateReplicas",
        false,
    ),
    (
        "W Desired",
        "integer",
        ".status.workers.desiredReplicas",
        false,
    ),
    ("W Current", "integer", ".status.workers.replicas", true),
    ("W Ready", "integer", ".status.workers.readyReplicas", true),
    (
        "W Available",
        "integer",
        ".status.workers.availableReplicas",
        false,
    ),
    (
        "W Up-to-date",
        "integer",
        ".status.workers.upToDateReplicas",
        false,
    ),
    ("Paused", "string", PAUSED, true),
    ("Phase", "string", ".status.phase", false),
    AGE,
    ("Version", "string", ".spec.topology.version", false),
];

const MACHINE: &[Column] = &[
    ("Cluster", "string", ".spec.clusterName", false),
    ("Node Name", "string", ".status.nodeRef.name", false),
    ("Provider ID", "string", ".spec.providerID", true),
    ("Failure domain", "string", ".status.failureDomain", false),
    (
        "Ready",
        "string",
        ".status.conditions[?(@.type==\"Ready\")].status",
        false,
    ),
    (
        "Available",
        "string",
        ".status.conditions[?(@.type==\"Available\")].status",
        false,
    ),
    (
        "Up-to-date",
        "string",
        ".status.conditions[?(@.type==\"UpToDate\")].status",
        false,
    ),
    (
        "Internal-IP",
        "string",
        ".status.addresses[?(@.type==\"InternalIP\")].address",
        true,
    ),
    (
        "External-IP",
        "string",
        ".status.addresses[?(@.type==\"ExternalIP\")].address",
        true,
    ),
    ("OS-Image", "string", ".status.nodeInfo.osImage", true),
    ("Paused", "string", PAUSED, true),
    ("Phase", "string", ".status.phase", false),
    AGE,
    ("Version", "string", ".spec.version", false),
];

const POOL: &[Column] = &[
    ("Cluster", "string", ".spec.clusterName", false),
    ("Desired", "integer", ".spec.replicas", false),
    ("Current", "integer", ".status.replicas", false),
    ("Ready", "integer", ".status.readyReplicas", false),
    ("Available", "integer", ".status.availableReplicas", false),
    ("Up-to-date", "integer", ".status.upToDateReplicas", false),
    ("Paused", "string", PAUSED, true),
    ("Phase", "string", ".status.phase", false),
    AGE,
    ("Version", "string", ".spec.template.spec.version", false),
];

const HEALTH_CHECK: &[Column] = &[
    ("Cluster", "string", ".spec.clusterName", false),
    ("Replicas", "integer", ".status.expectedMachines", false),
    ("Healthy", "integer", ".status.currentHealthy", false),
    ("Paused", "string", PAUSED, true),
    AGE,
];

const DRAIN_RULE: &[Column] = &[
    ("Behavior", "string", ".spec.drain.behavior", false),
    ("Order", "string", ".spec.drain.order", false),
    AGE,
];

const POLICY: &[Column] = &[
    ("Pool", "string", ".spec.machinePoolName", false),
    (
        "Deletion",
        "string",
        ".spec.machineDeletion.replacement",
        false,
    ),
    ("Order", "string", ".spec.scaleDown.order", false),
    ("Zones", "string", ".spec.scaleDown.zoneBalance", false),
    ("Rollout", "string", ".spec.rollout.type", false),
    ("Max surge", "string", ".spec.rollout.maxSurge", true),
    (
        "Max unavailable",
        "string",
        ".spec.rollout.maxUnavailable",
        true,
    ),
    ("Budget", "string", ".spec.disruption.maxUnavailable", true),
    (
        "Accepted",
        "string",
        ".status.conditions[?(@.type==\"Accepted\")].status",
        false,
    ),
    (
        "Reason",
        "string",
        ".status.conditions[?(@.type==\"Accepted\")].reason",
        true,
    ),
    AGE,
];

const SIM_CLUSTER: &[Column] = &[
    ("Ready", "boolean", ".status.ready", false),
    (
        "Endpoint",
        "string",
        ".spec.controlPlaneEndpoint.host",
        true,
    ),
    ("Version", "string", ".spec.kubernetesVersion", false),
    AGE,
];

const SIM_POOL: &[Column] = &[
    ("Ready", "boolean", ".status.ready", false),
    ("Instances", "integer", ".status.replicas", false),
    AGE,
];

const SIM_MACHINE: &[Column] = &[
    ("Provider ID", "string", ".spec.providerID", false),
    ("Zone", "string", ".status.failureDomain", false),
    ("State", "string", ".status.instanceState", false),
    ("Ready", "boolean", ".status.ready", false),
    AGE,
];

const ASG_CLUSTER: &[Column] = &[
    ("Ready", "boolean", ".status.ready", false),
    ("Region", "string", ".spec.region", false),
    AGE,
];

const ASG_POOL: &[Column] = &[
    ("Ready", "boolean", ".status.ready", false),
    ("Instances", "integer", ".status.replicas", false),
    ("Group", "string", ".spec.providerID", true),
    AGE,
];

const ASG_MACHINE: &[Column] = &[
    ("Provider ID", "string", ".spec.providerID", false),
    ("Zone", "string", ".status.failureDomain", false),
    ("Type", "string", ".status.instanceType", false),
    ("State", "string", ".status.lifecycleState", false),
    ("Ready", "boolean", ".status.ready", false),
    AGE,
];

/// Definitions of the provider for AWS, for programs that have it.
pub fn aws() -> Vec<Value> {
    vec![
        definition::<ASGCluster>(ASG_CLUSTER),
        definition::<ASGMachinePool>(ASG_POOL),
        definition::<ASGMachine>(ASG_MACHINE),
    ]
}

/// All definitions, as `muster crds` prints them.
pub fn all() -> Vec<Value> {
    vec![
        definition::<Cluster>(CLUSTER),
        definition::<Machine>(MACHINE),
        definition::<MachinePool>(POOL),
        definition::<MachineHealthCheck>(HEALTH_CHECK),
        with_required_metadata(definition::<MachineDrainRule>(DRAIN_RULE)),
        with_whole_defaults(definition::<MachinePoolPolicy>(POLICY)),
        definition::<SimCluster>(SIM_CLUSTER),
        definition::<SimMachinePool>(SIM_POOL),
        definition::<SimMachine>(SIM_MACHINE),
    ]
}

/// The definition of MachineSets, for an API that has none: Cluster Autoscaler's `clusterapi` provider does not start before
/// it has listed them. Muster makes none, and where Cluster API is installed its own definition stays.
pub fn machine_sets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("machinesets.{CORE_GROUP}"),
            "labels": {"clusterctl.cluster.x-k8s.io": ""},
        },
        "spec": {
            "group": CORE_GROUP,
            "names": {
                "kind": "MachineSet",
                "listKind": "MachineSetList",
                "plural": "machinesets",
                "singular": "machineset",
                "shortNames": ["ms"],
                "categories": ["cluster-api"],
            },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1beta2",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "description": "Machines of one sort, one by one. Muster makes none and acts on none.",
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                }},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "Cluster", "type": "string", "jsonPath": ".spec.clusterName"},
                    {"name": "Desired", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

fn definition<K: CustomResourceExt>(columns: &[Column]) -> Value {
    let mut crd =
        serde_json::to_value(K::crd()).expect("a definition is made of strings, numbers and maps");
    let group = crd["spec"]["group"].as_str().unwrap_or_default().to_owned();
    let mut labels = Map::new();
    labels.insert("clusterctl.cluster.x-k8s.io".to_owned(), "".into());
    if group == INFRASTRUCTURE_GROUP {
        for contract in ["v1beta1", "v1beta2"] {
            labels.insert(format!("cluster.x-k8s.io/{contract}"), "v1alpha1".into());
        }
    }
    if group != INFRASTRUCTURE_GROUP && group != CORE_GROUP {
        // Nothing owns a policy, so clusterctl is told to move it along.
        labels.insert("clusterctl.cluster.x-k8s.io/move".to_owned(), "".into());
    }
    crd["metadata"]["labels"] = Value::Object(labels);
    let columns: Vec<Value> = columns
        .iter()
        .map(|(name, type_, path, wide)| {
            let mut column = json!({"name": name, "type": type_, "jsonPath": path});
            if *wide {
                column["priority"] = 10.into();
            }
            column
        })
        .collect();
    for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
        version["additionalPrinterColumns"] = columns.clone().into();
        let schema = &mut version["schema"]["openAPIV3Schema"];
        tidy(schema);
        add_object_fields(schema);
    }
    crd
}

/// The fields that every object has, which the derive leaves out.
fn add_object_fields(schema: &mut Value) {
    let fields = &mut schema["properties"];
    fields["apiVersion"] =
        json!({"type": "string", "description": "Group and version of this form of the object."});
    fields["kind"] = json!({"type": "string", "description": "Kind of the object."});
    fields["metadata"] = json!({"type": "object"});
}

/// Makes `metadata` a required field, as Cluster API has it for some kinds.
fn with_required_metadata(mut crd: Value) -> Value {
    for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
        if let Value::Array(required) = &mut version["schema"]["openAPIV3Schema"]["required"] {
            required.insert(0, "metadata".into());
        }
    }
    crd
}

/// Writes out what holds where a policy says nothing: each part of the spec is there, with the defaults of its fields.
fn with_whole_defaults(mut crd: Value) -> Value {
    for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
        let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        // A 0 that means something.
        spec["rollout"]["properties"]["maxUnavailable"]["default"] = json!(0);
        for (_, part) in spec.as_object_mut().into_iter().flatten() {
            if part["type"] != "object" {
                continue;
            }
            // Whole, since a server holds a default to the rules as it is written. Source: Kubernetes.
            let fields = part["properties"].as_object().into_iter().flatten();
            let whole: serde_json::Map<String, Value> = fields
                .filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone())))
                .collect();
            part["default"] = Value::Object(whole);
        }
    }
    crd
}

/// Makes of a derived schema what is written by hand for Cluster API: absent instead of null, whole numbers as bounds,
/// defaults only where they mean something.
fn tidy(schema: &mut Value) {
    let Value::Object(map) = schema else {
        return;
    };
    map.remove("nullable");
    map.remove("title");
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let void = match map.get("default") {
        Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Number(number)) => number.as_i64() == Some(0),
        Some(Value::Bool(value)) => !value,
        None => false,
    };
    if void || map.get("default").is_some_and(Value::is_object) {
        map.remove("default");
    }
    for bound in ["minimum", "maximum"] {
        if let Some(whole) = map
            .get(bound)
            .and_then(Value::as_f64)
            .filter(|n| n.fract() == 0.0)
        {
            #[expect(clippy::cast_possible_truncation, reason = "bounds of 32-bit fields")]
            map.insert(bound.to_owned(), (whole as i64).into());
        }
    }
    for (key, below) in map.iter_mut() {
        match (key.as_str(), below) {
            ("properties", Value::Object(fields)) => fields.values_mut().for_each(tidy),
            ("items" | "additionalProperties", below) => tidy(below),
            ("anyOf" | "oneOf" | "allOf", Value::Array(parts)) => parts.iter_mut().for_each(tidy),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_defines_machine_sets_as_muster_up_does() {
        let example = include_str!("../../../examples/machinesets.yaml");
        let example: Value = serde_saphyr::from_str(example).unwrap();
        assert_eq!(example, machine_sets());
    }
}

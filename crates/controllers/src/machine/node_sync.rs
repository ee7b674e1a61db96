//! What a Machine gives to its Node: labels, annotations and taints, in one patch, and only when something differs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use muster_api::keys::Annotation;
use muster_api::machine::TaintPropagation;
use muster_api::{Machine, names};
use regex::Regex;
use serde_json::{Map, Value, json};

/// Labels and annotations that go from Machines to Nodes beside those of Cluster API's own domains.
#[derive(Clone, Debug, Default)]
pub struct Additional {
    /// Patterns of keys of labels.
    pub labels: Vec<Regex>,
    /// Patterns of keys of annotations.
    pub annotations: Vec<Regex>,
}

/// Whether a label of a Machine goes to its Node. Source: Cluster API.
fn is_synced_label(key: &str, additional: &Additional) -> bool {
    if additional
        .labels
        .iter()
        .any(|pattern| pattern.is_match(key))
    {
        return true;
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain == "node-role.kubernetes.io"
        || ["node-restriction.kubernetes.io", "node.cluster.x-k8s.io"]
            .iter()
            .any(|managed| within(domain, managed))
}

fn within(domain: &str, managed: &str) -> bool {
    domain == managed
        || domain
            .strip_suffix(managed)
            .is_some_and(|rest| rest.ends_with('.'))
}

fn is_synced_annotation(key: &str, additional: &Additional) -> bool {
    additional
        .annotations
        .iter()
        .any(|pattern| pattern.is_match(key))
        || within(
            key.split_once('/').map_or("", |(domain, _)| domain),
            "node.cluster.x-k8s.io",
        )
}

fn tracked(node: &Node, annotation: Annotation) -> Vec<String> {
    let text = annotation.text(node).unwrap_or_default();
    text.split(',')
        .filter(|key| !key.is_empty())
        .map(str::to_owned)
        .collect()
}

/// A map's changes: what is wanted and differs, and null for what was tracked and is wanted no longer.
fn changes(
    have: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
    tracked: &[String],
) -> Map<String, Value> {
    let mut changes = Map::new();
    for (key, value) in wanted {
        if have.get(key) != Some(value) {
            changes.insert(key.clone(), value.as_str().into());
        }
    }
    for key in tracked {
        if !wanted.contains_key(key) && have.contains_key(key) {
            changes.insert(key.clone(), Value::Null);
        }
    }
    changes
}

/// The patch that brings a Node in step with its Machine; nothing when it is.
pub(super) fn patch(
    machine: &Machine,
    node: &Node,
    interruptible: bool,
    additional: &Additional,
) -> Option<Value> {
    let mut labels: BTreeMap<String, String> = machine
        .labels()
        .iter()
        .filter(|(key, _)| is_synced_label(key, additional))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if interruptible {
        labels.insert(names::INTERRUPTIBLE.into(), String::new());
    }
    let mut annotations: BTreeMap<String, String> = machine
        .annotations()
        .iter()
        .filter(|(key, _)| is_synced_annotation(key, additional))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let own_keys = annotations.keys().cloned().collect::<Vec<_>>().join(",");
    let owner = machine
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true));
    let mut identity = vec![
        (names::NODE_CLUSTER_NAME, machine.spec.cluster_name.clone()),
        (
            names::NODE_CLUSTER_NAMESPACE,
            machine.namespace().unwrap_or_default(),
        ),
        (names::NODE_MACHINE, machine.name_any()),
        (
            names::NODE_LABELS_FROM_MACHINE,
            labels.keys().cloned().collect::<Vec<_>>().join(","),
        ),
        (names::NODE_ANNOTATIONS_FROM_MACHINE, own_keys),
        (names::NODE_TAINTS_FROM_MACHINE, always(machine).join(",")),
    ];
    if let Some(owner) = owner {
        identity.push((names::NODE_OWNER_KIND, owner.kind.clone()));
        identity.push((names::NODE_OWNER_NAME, owner.name.clone()));
    }
    annotations.extend(identity.into_iter().map(|(key, value)| (key.into(), value)));
    let label_changes = changes(
        node.labels(),
        &labels,
        &tracked(node, names::NODE_LABELS_FROM_MACHINE),
    );
    let mut annotation_changes = changes(
        node.annotations(),
        &annotations,
        &tracked(node, names::NODE_ANNOTATIONS_FROM_MACHINE),
    );
    let taints = taints(machine, node);
    // The deletion that it was cordoned for did not come to pass: this Machine lives.
    let cordoned = names::NODE_CORDONED_FOR.is_on(node);
    if cordoned {
        annotation_changes.insert(names::NODE_CORDONED_FOR.into(), Value::Null);
    }
    if label_changes.is_empty() && annotation_changes.is_empty() && taints.is_none() {
        return None;
    }
    let mut patch = json!({"metadata": {
        "resourceVersion": node.resource_version(),
        "labels": label_changes,
        "annotations": annotation_changes,
    }});
    if let Some(taints) = taints {
        patch["spec"] = json!({"taints": taints});
    }
    if cordoned {
        patch["spec"]["unschedulable"] = Value::Null;
    }
    Some(patch)
}

/// The taints that are kept in step, as they are tracked.
fn always(machine: &Machine) -> Vec<String> {
    let mut list: Vec<String> = machine
        .spec
        .taints
        .iter()
        .filter(|taint| taint.propagation == TaintPropagation::Always)
        .map(|taint| format!("{}:{}", taint.key, taint.effect.as_str()))
        .collect();
    list.sort();
    list
}

/// The Node's taints as they are to be; nothing when they are.
fn taints(machine: &Machine, node: &Node) -> Option<Vec<Value>> {
    let have: Vec<Value> = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten())
        .map(|t| json!(t))
        .collect();
    let first = !names::NODE_TAINTS_FROM_MACHINE.is_on(node);
    let tracked = tracked(node, names::NODE_TAINTS_FROM_MACHINE);
    let id = |taint: &Value| {
        format!(
            "{}:{}",
            taint["key"].as_str().unwrap_or_default(),
            taint["effect"].as_str().unwrap_or_default()
        )
    };
    let keep = always(machine);
    let mut wanted: Vec<Value> = have
        .iter()
        .filter(|taint| {
            taint["key"] != names::UNINITIALIZED_TAINT && taint["key"] != names::DRAINS_SOON_TAINT
        })
        .filter(|taint| !tracked.contains(&id(taint)) || keep.contains(&id(taint)))
        .cloned()
        .collect();
    for taint in &machine.spec.taints {
        if taint.propagation == TaintPropagation::OnInitialization && !first {
            continue;
        }
        let mut value = json!({"key": taint.key, "effect": taint.effect.as_str()});
        if let Some(text) = &taint.value {
            value["value"] = text.as_str().into();
        }
        match wanted.iter_mut().find(|other| id(other) == id(&value)) {
            Some(other) if other["value"] != value["value"] => *other = value,
            Some(_) => {}
            None => wanted.push(value),
        }
    }
    (wanted != have).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(machine: &Machine, node: &Node, interruptible: bool) -> Option<Value> {
        super::patch(machine, node, interruptible, &Additional::default())
    }

    #[test]
    fn patterns_bring_further_labels_and_annotations_to_the_node() {
        let additional = Additional {
            labels: vec![Regex::new("^team$").unwrap()],
            annotations: Vec::new(),
        };
        let fresh = node(json!({}), json!({}), json!([]));
        let machine = machine(json!({"team": "pay", "teams": "no"}), json!([]));
        let patch = super::patch(&machine, &fresh, false, &additional).unwrap();
        assert_eq!(patch["metadata"]["labels"], json!({"team": "pay"}));
    }

    #[test]
    fn what_was_cordoned_and_tainted_for_a_deletion_that_did_not_happen_is_undone() {
        let marked = node(
            json!({}),
            json!({names::NODE_CORDONED_FOR: "m"}),
            json!([{"key": names::DRAINS_SOON_TAINT, "effect": "PreferNoSchedule"}]),
        );
        let change = patch(&machine(json!({}), json!([])), &marked, false).unwrap();
        assert_eq!(
            change["metadata"]["annotations"][names::NODE_CORDONED_FOR.key()],
            Value::Null
        );
        assert_eq!(change["spec"], json!({"taints": [], "unschedulable": null}));
        let theirs = node(json!({}), json!({}), json!([]));
        let change = patch(&machine(json!({}), json!([])), &theirs, false).unwrap();
        assert_eq!(
            change["spec"],
            Value::Null,
            "a cordon of somebody else's stays"
        );
    }

    fn machine(labels: Value, taints: Value) -> Machine {
        serde_json::from_value(json!({
            "metadata": {"name": "m", "namespace": "ns", "labels": labels,
                "ownerReferences": [{"apiVersion": "x", "kind": "MachinePool", "name": "p", "uid": "u", "controller": true}]},
            "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {"apiGroup": "g", "kind": "K", "name": "m"}, "taints": taints}
        }))
        .unwrap()
    }

    fn node(labels: Value, annotations: Value, taints: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n", "resourceVersion": "7", "labels": labels, "annotations": annotations},
            "spec": {"taints": taints}}))
        .unwrap()
    }

    /// The Node as it is after a patch.
    fn patched(node: &Node, patch: &Value) -> Node {
        let mut value = json!(node);
        for part in ["labels", "annotations"] {
            for (key, change) in patch["metadata"][part].as_object().unwrap() {
                if change.is_null() {
                    value["metadata"][part].as_object_mut().unwrap().remove(key);
                } else {
                    value["metadata"][part][key] = change.clone();
                }
            }
        }
        if patch["spec"].is_object() {
            value["spec"]["taints"] = patch["spec"]["taints"].clone();
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn managed_domains_reach_the_node_and_are_taken_away_again() {
        let labels = json!({"node-role.kubernetes.io/worker": "", "a.node.cluster.x-k8s.io/team": "pay", "app": "x"});
        let fresh = node(
            json!({"app": "mine"}),
            json!({}),
            json!([{"key": names::UNINITIALIZED_TAINT, "effect": "NoSchedule"}]),
        );
        let first = patch(&machine(labels, json!([])), &fresh, false).unwrap();
        let after = patched(&fresh, &first);
        assert_eq!(after.labels()["node-role.kubernetes.io/worker"], "");
        assert_eq!(after.labels()["a.node.cluster.x-k8s.io/team"], "pay");
        assert_eq!(after.labels()["app"], "mine");
        assert_eq!(
            after.annotations()[names::NODE_OWNER_KIND.key()],
            "MachinePool"
        );
        assert!(
            after
                .spec
                .as_ref()
                .unwrap()
                .taints
                .as_ref()
                .unwrap()
                .is_empty()
        );
        let fewer = machine(json!({"node-role.kubernetes.io/worker": ""}), json!([]));
        let after = patched(&after, &patch(&fewer, &after, false).unwrap());
        assert!(!after.labels().contains_key("a.node.cluster.x-k8s.io/team"));
        assert_eq!(patch(&fewer, &after, false), None, "nothing to do twice");
    }

    #[test]
    fn taints_follow_their_propagation_and_those_of_others_stay() {
        let both = json!([
            {"key": "a", "effect": "NoSchedule", "propagation": "Always"},
            {"key": "b", "effect": "NoSchedule", "propagation": "OnInitialization"}
        ]);
        let fresh = node(
            json!({}),
            json!({}),
            json!([{"key": "other", "effect": "NoExecute"}]),
        );
        let after = patched(
            &fresh,
            &patch(&machine(json!({}), both), &fresh, false).unwrap(),
        );
        let names = |node: &Node| -> Vec<String> {
            node.spec
                .as_ref()
                .unwrap()
                .taints
                .iter()
                .flatten()
                .map(|t| t.key.clone())
                .collect()
        };
        assert_eq!(names(&after), ["other", "a", "b"]);
        let none = machine(json!({}), json!([]));
        let after = patched(&after, &patch(&none, &after, false).unwrap());
        assert_eq!(names(&after), ["other", "b"]);
    }
}

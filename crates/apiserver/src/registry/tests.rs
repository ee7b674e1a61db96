//! The registry as discovery and tables see it.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ColumnSource, Registry, crd};

/// A table row: the cells that are shown without `-o wide`, then the others.
fn row(group: &str, kind: &str, object: &Value) -> String {
    let kind = Registry::new().by_kind(group, "v1", kind).unwrap();
    let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    let cells = |wide: bool| -> Vec<String> {
        let columns = kind
            .columns
            .iter()
            .filter(|column| (column.priority > 0) == wide);
        let texts = columns.map(|column| match column.cell(object, now) {
            Value::String(text) => text,
            other => other.to_string(),
        });
        texts.collect()
    };
    format!("{} | {}", cells(false).join(" "), cells(true).join(" "))
}

const BORN: &str = "2026-01-01T00:00:00Z";

#[test]
fn names_of_resources_are_unique_within_a_version() {
    let registry = Registry::new();
    let mut seen = HashSet::new();
    for kind in registry.snapshot().iter() {
        assert!(
            seen.insert((
                kind.group.clone(),
                kind.version.clone(),
                kind.plural.clone()
            )),
            "{kind:?}"
        );
        assert!(
            kind.columns
                .iter()
                .all(|column| matches!(column.source, ColumnSource::Cell(_)))
        );
        let found = registry
            .resolve(&kind.group, &kind.version, &kind.plural)
            .unwrap();
        assert_eq!(found.kind, kind.kind);
    }
}

#[test]
fn pods_show_the_most_telling_state() {
    let pod = |status: Value, deleting: bool| {
        let mut pod = json!({
            "metadata": {"creationTimestamp": BORN},
            "spec": {"nodeName": "n", "containers": [{"name": "a"}, {"name": "b"}]},
            "status": status,
        });
        if deleting {
            pod["metadata"]["deletionTimestamp"] = json!(BORN);
        }
        row("", "Pod", &pod)
    };
    let running = json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
        {"ready": true, "restartCount": 1, "state": {"running": {}},
         "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}},
        {"ready": false, "restartCount": 1, "state": {"running": {}}},
    ]});
    assert_eq!(
        pod(running.clone(), false),
        "1/2 Running 2 (5m ago) 60m | 10.0.0.1 n <none> <none>"
    );
    assert_eq!(
        pod(running, true),
        "1/2 Terminating 2 (5m ago) 60m | 10.0.0.1 n <none> <none>"
    );
    let waiting = json!({"phase": "Pending", "containerStatuses": [
        {"ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}},
    ]});
    assert_eq!(
        pod(waiting, false),
        "0/2 ImagePullBackOff 0 60m | <none> n <none> <none>"
    );
    let done = json!({"phase": "Succeeded", "containerStatuses": [
        {"ready": false, "restartCount": 0, "state": {"terminated": {"reason": "Completed", "exitCode": 0}}},
    ]});
    assert_eq!(
        pod(done, true),
        "0/2 Completed 0 60m | <none> n <none> <none>"
    );
}

#[test]
fn nodes_show_readiness_cordon_and_roles() {
    let node = json!({
        "metadata": {"creationTimestamp": BORN, "labels": {
            "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/gpu": "",
        }},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.37.2", "osImage": "Sim", "kernelVersion": "6", "containerRuntimeVersion": "c"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    });
    assert_eq!(
        row("", "Node", &node),
        "Ready,SchedulingDisabled gpu,worker 60m v1.37.2 | 10.0.0.1 <none> Sim 6 c"
    );
}

#[test]
fn workloads_and_budgets_show_their_counts() {
    let deployment = json!({
        "metadata": {"creationTimestamp": BORN},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}},
        },
        "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2},
    });
    assert_eq!(
        row("apps", "Deployment", &deployment),
        "2/3 3 2 60m | web web:1 app=web"
    );
    let budget = json!({
        "metadata": {"creationTimestamp": BORN}, "spec": {"maxUnavailable": "10%"}, "status": {"disruptionsAllowed": 1},
    });
    assert_eq!(
        row("policy", "PodDisruptionBudget", &budget),
        "N/A 10% 1 60m | "
    );
}

#[test]
fn events_show_what_happened_to_what() {
    let event = json!({
        "metadata": {"name": "web.1"}, "type": "Normal", "reason": "Drained", "message": "all pods are gone\n",
        "involvedObject": {"kind": "Machine", "name": "w-1"}, "source": {"component": "muster"},
        "lastTimestamp": "2026-01-01T00:59:00Z", "firstTimestamp": "2026-01-01T00:30:00Z", "count": 2,
    });
    assert_eq!(
        row("", "Event", &event),
        "60s Normal Drained machine/w-1 all pods are gone |  muster 30m 2 web.1"
    );
}

#[test]
fn versions_rank_by_maturity_then_number() {
    let mut versions = ["v1alpha1", "v2", "foo", "v1beta2", "v1", "v10", "v1beta10"];
    versions.sort_by_key(|version| std::cmp::Reverse(crd::priority(version)));
    assert_eq!(
        versions,
        ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]
    );
}

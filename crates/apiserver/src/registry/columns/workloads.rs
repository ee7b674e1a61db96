//! The table columns of workloads: wanted, there, ready.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, columns, count, joined, or, pairs, strings};
use crate::registry::age::age_of;
use crate::registry::kind::Column;
use crate::registry::strategy::{at, number_at, text_at};

/// Deployment columns.
pub fn deployments() -> Vec<Column> {
    columns(&[
        ("Ready", "string", 0, |object, _| ready_of(object)),
        ("Up-to-date", "integer", 0, |object, _| {
            count(object, &["status", "updatedReplicas"])
        }),
        ("Available", "integer", 0, |object, _| {
            count(object, &["status", "availableReplicas"])
        }),
        ("Age", "string", 0, age),
        ("Containers", "string", 1, |object, _| {
            templates(object, "name")
        }),
        ("Images", "string", 1, |object, _| {
            templates(object, "image")
        }),
        ("Selector", "string", 1, |object, _| {
            selector_text(at(object, &["spec", "selector"]))
        }),
    ])
}

fn ready_of(object: &Value) -> Value {
    let ready = number_at(object, &["status", "readyReplicas"]).unwrap_or(0);
    let wanted = number_at(object, &["spec", "replicas"]).unwrap_or(0);
    format!("{ready}/{wanted}").into()
}

/// ReplicaSet columns.
pub fn replica_sets() -> Vec<Column> {
    columns(&[
        ("Desired", "integer", 0, |object, _| {
            count(object, &["spec", "replicas"])
        }),
        ("Current", "integer", 0, |object, _| {
            count(object, &["status", "replicas"])
        }),
        ("Ready", "integer", 0, |object, _| {
            count(object, &["status", "readyReplicas"])
        }),
        ("Age", "string", 0, age),
        ("Containers", "string", 1, |object, _| {
            templates(object, "name")
        }),
        ("Images", "string", 1, |object, _| {
            templates(object, "image")
        }),
        ("Selector", "string", 1, |object, _| {
            selector_text(at(object, &["spec", "selector"]))
        }),
    ])
}

/// DaemonSet columns.
pub fn daemon_sets() -> Vec<Column> {
    columns(&[
        ("Desired", "integer", 0, |object, _| {
            count(object, &["status", "desiredNumberScheduled"])
        }),
        ("Current", "integer", 0, |object, _| {
            count(object, &["status", "currentNumberScheduled"])
        }),
        ("Ready", "integer", 0, |object, _| {
            count(object, &["status", "numberReady"])
        }),
        ("Up-to-date", "integer", 0, |object, _| {
            count(object, &["status", "updatedNumberScheduled"])
        }),
        ("Available", "integer", 0, |object, _| {
            count(object, &["status", "numberAvailable"])
        }),
        ("Node Selector", "string", 0, |object, _| {
            or(
                &pairs(at(object, &["spec", "template", "spec", "nodeSelector"])),
                "<none>",
            )
        }),
        ("Age", "string", 0, age),
        ("Containers", "string", 1, |object, _| {
            templates(object, "name")
        }),
        ("Images", "string", 1, |object, _| {
            templates(object, "image")
        }),
        ("Selector", "string", 1, |object, _| {
            selector_text(at(object, &["spec", "selector"]))
        }),
    ])
}

/// StatefulSet columns.
pub fn stateful_sets() -> Vec<Column> {
    columns(&[
        ("Ready", "string", 0, |object, _| ready_of(object)),
        ("Age", "string", 0, age),
        ("Containers", "string", 1, |object, _| {
            templates(object, "name")
        }),
        ("Images", "string", 1, |object, _| {
            templates(object, "image")
        }),
    ])
}

/// ControllerRevision columns.
pub fn revisions() -> Vec<Column> {
    columns(&[
        ("Controller", "string", 0, |object, _| {
            let owners = at(object, &["metadata", "ownerReferences"]).and_then(Value::as_array);
            let Some(owner) = owners
                .into_iter()
                .flatten()
                .find(|owner| owner["controller"] == true)
            else {
                return "<none>".into();
            };
            let group = text_at(owner, &["apiVersion"])
                .split_once('/')
                .map_or("", |(group, _)| group);
            let kind = text_at(owner, &["kind"]).to_lowercase();
            let name = text_at(owner, &["name"]);
            if group.is_empty() {
                format!("{kind}/{name}")
            } else {
                format!("{kind}.{group}/{name}")
            }
            .into()
        }),
        ("Revision", "integer", 0, |object, _| {
            count(object, &["revision"])
        }),
        ("Age", "string", 0, age),
    ])
}

/// Job columns.
pub fn jobs() -> Vec<Column> {
    columns(&[
        ("Status", "string", 0, |object, _| {
            let conditions = at(object, &["status", "conditions"]).and_then(Value::as_array);
            let has = |kind: &str| {
                conditions
                    .into_iter()
                    .flatten()
                    .any(|condition| condition["type"] == kind && condition["status"] == "True")
            };
            match () {
                () if has("Complete") => "Complete",
                () if has("Failed") => "Failed",
                () if !object["metadata"]["deletionTimestamp"].is_null() => "Terminating",
                () if has("Suspended") => "Suspended",
                () if has("FailureTarget") => "FailureTarget",
                () => "Running",
            }
            .into()
        }),
        ("Completions", "string", 0, |object, _| {
            let done = number_at(object, &["status", "succeeded"]).unwrap_or(0);
            match number_at(object, &["spec", "completions"]) {
                Some(wanted) => format!("{done}/{wanted}"),
                None => format!("{done}/1"),
            }
            .into()
        }),
        ("Duration", "string", 0, |object, now| {
            let start = text_at(object, &["status", "startTime"]).parse::<Timestamp>();
            let end = text_at(object, &["status", "completionTime"]).parse::<Timestamp>();
            start.map_or_else(
                |_| "".into(),
                |start| age_of(start, end.unwrap_or(now)).into(),
            )
        }),
        ("Age", "string", 0, age),
        ("Containers", "string", 1, |object, _| {
            templates(object, "name")
        }),
        ("Images", "string", 1, |object, _| {
            templates(object, "image")
        }),
        ("Selector", "string", 1, |object, _| {
            selector_text(at(object, &["spec", "selector"]))
        }),
    ])
}

fn templates(object: &Value, field: &'static str) -> Value {
    let containers =
        at(object, &["spec", "template", "spec", "containers"]).and_then(Value::as_array);
    joined(
        containers
            .into_iter()
            .flatten()
            .map(|c| text_at(c, &[field])),
        "",
    )
}

fn selector_text(selector: Option<&Value>) -> Value {
    let Some(selector) = selector else {
        return "<none>".into();
    };
    let mut parts = Vec::new();
    let labels = pairs(selector.get("matchLabels"));
    if !labels.is_empty() {
        parts.push(labels);
    }
    for term in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let key = text_at(term, &["key"]);
        let values: Vec<&str> = strings(term.get("values")).collect();
        parts.push(match text_at(term, &["operator"]) {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    or(&parts.join(","), "<none>")
}

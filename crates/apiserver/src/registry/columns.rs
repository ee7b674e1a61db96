//! The table columns of the built-in kinds, as `kubectl get` shows them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::{age_cell, age_of};
use super::kind::Column;
use super::strategy::{at, number_at, text_at};

type Cell = fn(&Value, Timestamp) -> Value;

/// Columns from `(name, type, priority, cell)`.
fn columns(of: &[(&str, &str, i32, Cell)]) -> Vec<Column> {
    of.iter()
        .map(|(name, kind, priority, cell)| Column::cells(name, kind, *priority, *cell))
        .collect()
}

fn age(object: &Value, now: Timestamp) -> Value {
    age_cell(at(object, &["metadata", "creationTimestamp"]), now).into()
}

fn or(text: &str, otherwise: &str) -> Value {
    if text.is_empty() {
        otherwise.into()
    } else {
        text.into()
    }
}

fn count(object: &Value, path: &[&str]) -> Value {
    number_at(object, path).unwrap_or(0).into()
}

fn joined<'a>(parts: impl IntoIterator<Item = &'a str>, otherwise: &str) -> Value {
    let parts: Vec<&str> = parts.into_iter().collect();
    or(&parts.join(","), otherwise)
}

fn strings(value: Option<&Value>) -> impl Iterator<Item = &str> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
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

fn pairs(map: Option<&Value>) -> String {
    let parts: Vec<String> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    parts.join(",")
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

/// The columns of kinds that have nothing else to show than their age.
pub fn plain() -> Vec<Column> {
    columns(&[("Age", "string", 0, age)])
}

/// Pod columns.
pub fn pods() -> Vec<Column> {
    columns(&[
        ("Ready", "string", 0, |pod, _| {
            let statuses = at(pod, &["status", "containerStatuses"]).and_then(Value::as_array);
            let ready = statuses
                .into_iter()
                .flatten()
                .filter(|s| s["ready"] == true)
                .count();
            let total = at(pod, &["spec", "containers"])
                .and_then(Value::as_array)
                .map_or(0, Vec::len);
            format!("{ready}/{total}").into()
        }),
        ("Status", "string", 0, |pod, _| pod_status(pod).into()),
        ("Restarts", "string", 0, |pod, now| {
            restarts(pod, now).into()
        }),
        ("Age", "string", 0, age),
        ("IP", "string", 1, |pod, _| {
            or(text_at(pod, &["status", "podIP"]), "<none>")
        }),
        ("Node", "string", 1, |pod, _| {
            or(text_at(pod, &["spec", "nodeName"]), "<none>")
        }),
        ("Nominated Node", "string", 1, |pod, _| {
            or(text_at(pod, &["status", "nominatedNodeName"]), "<none>")
        }),
        ("Readiness Gates", "string", 1, |pod, _| {
            let gates = at(pod, &["spec", "readinessGates"]).and_then(Value::as_array);
            let Some(gates) = gates.filter(|gates| !gates.is_empty()) else {
                return "<none>".into();
            };
            let conditions = at(pod, &["status", "conditions"]).and_then(Value::as_array);
            let ready = gates
                .iter()
                .filter(|gate| {
                    conditions.into_iter().flatten().any(|condition| {
                        condition["type"] == gate["conditionType"] && condition["status"] == "True"
                    })
                })
                .count();
            format!("{ready}/{}", gates.len()).into()
        }),
    ])
}

fn restarts(pod: &Value, now: Timestamp) -> String {
    let statuses = at(pod, &["status", "containerStatuses"]).and_then(Value::as_array);
    let total: i64 = statuses
        .into_iter()
        .flatten()
        .filter_map(|status| status["restartCount"].as_i64())
        .sum();
    let last = statuses
        .into_iter()
        .flatten()
        .filter_map(|status| {
            text_at(status, &["lastState", "terminated", "finishedAt"])
                .parse::<Timestamp>()
                .ok()
        })
        .max();
    match last {
        Some(last) if total > 0 => format!("{total} ({} ago)", age_of(last, now)),
        _ => total.to_string(),
    }
}

/// The one word that tells a pod's state: the most telling of phase, reason and the containers' states.
fn pod_status(pod: &Value) -> String {
    let status = &pod["status"];
    let mut reason = text_at(status, &["phase"]).to_owned();
    if !text_at(status, &["reason"]).is_empty() {
        text_at(status, &["reason"]).clone_into(&mut reason);
    }
    let gated = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| {
            condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated"
        });
    if gated {
        "SchedulingGated".clone_into(&mut reason);
    }
    let ended = |state: &Value| {
        let terminated = &state["terminated"];
        match (
            text_at(terminated, &["reason"]),
            terminated["signal"].as_i64(),
            terminated["exitCode"].as_i64(),
        ) {
            ("", Some(signal), _) if signal != 0 => format!("Signal:{signal}"),
            ("", _, code) => format!("ExitCode:{}", code.unwrap_or(0)),
            (why, _, _) => why.to_owned(),
        }
    };
    let inits = status["initContainerStatuses"].as_array();
    let total = at(pod, &["spec", "initContainers"])
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    let mut initializing = false;
    for (index, container) in inits.into_iter().flatten().enumerate() {
        let state = &container["state"];
        if state["terminated"]["exitCode"] == 0 || container["started"] == true {
            continue;
        }
        initializing = true;
        let waiting = text_at(state, &["waiting", "reason"]);
        reason = if !state["terminated"].is_null() {
            format!("Init:{}", ended(state))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{total}")
        };
        break;
    }
    if !initializing {
        let mut running = false;
        for container in status["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .rev()
        {
            let state = &container["state"];
            let waiting = text_at(state, &["waiting", "reason"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut reason);
            } else if !state["terminated"].is_null() {
                reason = ended(state);
            } else if container["ready"] == true && !state["running"].is_null() {
                running = true;
            }
        }
        if reason == "Completed" && running {
            let ready = status["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
            reason = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        if status["reason"] == "NodeLost" {
            return "Unknown".to_owned();
        }
        if !["Succeeded", "Failed"].contains(&text_at(status, &["phase"])) {
            return "Terminating".to_owned();
        }
    }
    reason
}

/// Node columns.
pub fn nodes() -> Vec<Column> {
    columns(&[
        ("Status", "string", 0, |node, _| {
            let ready = at(node, &["status", "conditions"])
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .find(|condition| condition["type"] == "Ready");
            let mut text = match ready {
                Some(condition) if condition["status"] == "True" => "Ready",
                Some(_) => "NotReady",
                None => "Unknown",
            }
            .to_owned();
            if node["spec"]["unschedulable"] == true {
                text.push_str(",SchedulingDisabled");
            }
            text.into()
        }),
        ("Roles", "string", 0, |node, _| {
            let labels = at(node, &["metadata", "labels"]).and_then(Value::as_object);
            let mut roles: Vec<&str> = labels
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| {
                    let role = key.strip_prefix("node-role.kubernetes.io/");
                    role.or_else(|| {
                        (key == "kubernetes.io/role")
                            .then(|| value.as_str())
                            .flatten()
                    })
                })
                .filter(|role| !role.is_empty())
                .collect();
            roles.sort_unstable();
            roles.dedup();
            joined(roles, "<none>")
        }),
        ("Age", "string", 0, age),
        ("Version", "string", 0, |node, _| {
            text_at(node, &["status", "nodeInfo", "kubeletVersion"]).into()
        }),
        ("Internal-IP", "string", 1, |node, _| {
            address(node, "InternalIP")
        }),
        ("External-IP", "string", 1, |node, _| {
            address(node, "ExternalIP")
        }),
        ("OS-Image", "string", 1, |node, _| {
            or(
                text_at(node, &["status", "nodeInfo", "osImage"]),
                "<unknown>",
            )
        }),
        ("Kernel-Version", "string", 1, |node, _| {
            or(
                text_at(node, &["status", "nodeInfo", "kernelVersion"]),
                "<unknown>",
            )
        }),
        ("Container-Runtime", "string", 1, |node, _| {
            or(
                text_at(node, &["status", "nodeInfo", "containerRuntimeVersion"]),
                "<unknown>",
            )
        }),
    ])
}

fn address(node: &Value, kind: &str) -> Value {
    let addresses = at(node, &["status", "addresses"]).and_then(Value::as_array);
    let found = addresses
        .into_iter()
        .flatten()
        .find(|address| address["type"] == kind);
    or(
        found.map_or("", |address| text_at(address, &["address"])),
        "<none>",
    )
}

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

/// PodDisruptionBudget columns.
pub fn budgets() -> Vec<Column> {
    fn limit(object: &Value, field: &str) -> Value {
        match at(object, &["spec", field]) {
            Some(Value::String(text)) => text.as_str().into(),
            Some(Value::Number(number)) => number.to_string().into(),
            _ => "N/A".into(),
        }
    }
    columns(&[
        ("Min Available", "string", 0, |object, _| {
            limit(object, "minAvailable")
        }),
        ("Max Unavailable", "string", 0, |object, _| {
            limit(object, "maxUnavailable")
        }),
        ("Allowed Disruptions", "integer", 0, |object, _| {
            count(object, &["status", "disruptionsAllowed"])
        }),
        ("Age", "string", 0, age),
    ])
}

/// Secret columns.
pub fn secrets() -> Vec<Column> {
    columns(&[
        ("Type", "string", 0, |object, _| {
            text_at(object, &["type"]).into()
        }),
        ("Data", "integer", 0, |object, _| entries(object, &["data"])),
        ("Age", "string", 0, age),
    ])
}

fn entries(object: &Value, fields: &[&str]) -> Value {
    let total: usize = fields
        .iter()
        .map(|field| object[*field].as_object().map_or(0, serde_json::Map::len))
        .sum();
    total.into()
}

/// ConfigMap columns.
pub fn config_maps() -> Vec<Column> {
    columns(&[
        ("Data", "integer", 0, |object, _| {
            entries(object, &["data", "binaryData"])
        }),
        ("Age", "string", 0, age),
    ])
}

/// Namespace columns.
pub fn namespaces() -> Vec<Column> {
    columns(&[
        ("Status", "string", 0, |object, _| {
            text_at(object, &["status", "phase"]).into()
        }),
        ("Age", "string", 0, age),
    ])
}

/// Lease columns.
pub fn leases() -> Vec<Column> {
    columns(&[
        ("Holder", "string", 0, |object, _| {
            text_at(object, &["spec", "holderIdentity"]).into()
        }),
        ("Age", "string", 0, age),
    ])
}

/// ServiceAccount columns. The number of secrets left the tables with the secrets themselves.
pub fn service_accounts() -> Vec<Column> {
    plain()
}

/// Service columns.
pub fn services() -> Vec<Column> {
    columns(&[
        ("Type", "string", 0, |object, _| {
            text_at(object, &["spec", "type"]).into()
        }),
        ("Cluster-IP", "string", 0, |object, _| {
            or(text_at(object, &["spec", "clusterIP"]), "<none>")
        }),
        ("External-IP", "string", 0, |object, _| {
            joined(strings(at(object, &["spec", "externalIPs"])), "<none>")
        }),
        ("Port(s)", "string", 0, |object, _| {
            let ports = at(object, &["spec", "ports"]).and_then(Value::as_array);
            let parts: Vec<String> = ports
                .into_iter()
                .flatten()
                .map(|port| {
                    let node = port["nodePort"].as_i64().filter(|node| *node > 0);
                    let node = node.map_or(String::new(), |node| format!(":{node}"));
                    format!("{}{node}/{}", port["port"], text_at(port, &["protocol"]))
                })
                .collect();
            or(&parts.join(","), "<none>")
        }),
        ("Age", "string", 0, age),
        ("Selector", "string", 1, |object, _| {
            or(&pairs(at(object, &["spec", "selector"])), "<none>")
        }),
    ])
}

/// Event columns, from objects in core form.
pub fn events() -> Vec<Column> {
    fn last_seen(event: &Value, now: Timestamp) -> Value {
        let series = text_at(event, &["series", "lastObservedTime"]);
        let times = [
            series,
            text_at(event, &["lastTimestamp"]),
            text_at(event, &["eventTime"]),
        ];
        let found = times.into_iter().find(|text| !text.is_empty());
        age_cell(found.map(Value::from).as_ref(), now).into()
    }
    columns(&[
        ("Last Seen", "string", 0, last_seen),
        ("Type", "string", 0, |event, _| {
            text_at(event, &["type"]).into()
        }),
        ("Reason", "string", 0, |event, _| {
            text_at(event, &["reason"]).into()
        }),
        ("Object", "string", 0, |event, _| {
            let kind = text_at(event, &["involvedObject", "kind"]).to_lowercase();
            let name = text_at(event, &["involvedObject", "name"]);
            if name.is_empty() {
                kind
            } else {
                format!("{kind}/{name}")
            }
            .into()
        }),
        ("Subobject", "string", 1, |event, _| {
            text_at(event, &["involvedObject", "fieldPath"]).into()
        }),
        ("Source", "string", 1, |event, _| {
            let component = text_at(event, &["source", "component"]);
            let component = if component.is_empty() {
                text_at(event, &["reportingComponent"])
            } else {
                component
            };
            let host = text_at(event, &["source", "host"]);
            let host = if host.is_empty() {
                text_at(event, &["reportingInstance"])
            } else {
                host
            };
            if host.is_empty() {
                component.to_owned()
            } else {
                format!("{component}, {host}")
            }
            .into()
        }),
        ("Message", "string", 0, |event, _| {
            text_at(event, &["message"]).trim().into()
        }),
        ("First Seen", "string", 1, |event, now| {
            let first = text_at(event, &["firstTimestamp"]);
            let first = if first.is_empty() {
                text_at(event, &["eventTime"])
            } else {
                first
            };
            age_cell(
                Some(first)
                    .filter(|text| !text.is_empty())
                    .map(Value::from)
                    .as_ref(),
                now,
            )
            .into()
        }),
        ("Count", "string", 1, |event, _| {
            let count =
                number_at(event, &["series", "count"]).or_else(|| number_at(event, &["count"]));
            count.filter(|count| *count > 0).unwrap_or(1).into()
        }),
        ("Name", "string", 1, |event, _| {
            text_at(event, &["metadata", "name"]).into()
        }),
    ])
}

fn access_modes(modes: Option<&Value>) -> Value {
    let short = strings(modes).map(|mode| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    });
    joined(short, "")
}

/// PersistentVolume columns.
pub fn volumes() -> Vec<Column> {
    columns(&[
        ("Capacity", "string", 0, |object, _| {
            text_at(object, &["spec", "capacity", "storage"]).into()
        }),
        ("Access Modes", "string", 0, |object, _| {
            access_modes(at(object, &["spec", "accessModes"]))
        }),
        ("Reclaim Policy", "string", 0, |object, _| {
            text_at(object, &["spec", "persistentVolumeReclaimPolicy"]).into()
        }),
        ("Status", "string", 0, |object, _| phase(object)),
        ("Claim", "string", 0, |object, _| {
            let claim = &object["spec"]["claimRef"];
            if claim.is_null() {
                return "".into();
            }
            format!(
                "{}/{}",
                text_at(claim, &["namespace"]),
                text_at(claim, &["name"])
            )
            .into()
        }),
        ("StorageClass", "string", 0, |object, _| {
            text_at(object, &["spec", "storageClassName"]).into()
        }),
        ("VolumeAttributesClass", "string", 0, |object, _| {
            or(
                text_at(object, &["spec", "volumeAttributesClassName"]),
                "<unset>",
            )
        }),
        ("Reason", "string", 0, |object, _| {
            text_at(object, &["status", "reason"]).into()
        }),
        ("Age", "string", 0, age),
        ("VolumeMode", "string", 1, |object, _| {
            or(text_at(object, &["spec", "volumeMode"]), "<unset>")
        }),
    ])
}

fn phase(object: &Value) -> Value {
    if object["metadata"]["deletionTimestamp"].is_null() {
        text_at(object, &["status", "phase"]).into()
    } else {
        "Terminating".into()
    }
}

/// PersistentVolumeClaim columns.
pub fn claims() -> Vec<Column> {
    columns(&[
        ("Status", "string", 0, |object, _| phase(object)),
        ("Volume", "string", 0, |object, _| {
            text_at(object, &["spec", "volumeName"]).into()
        }),
        ("Capacity", "string", 0, |object, _| {
            text_at(object, &["status", "capacity", "storage"]).into()
        }),
        ("Access Modes", "string", 0, |object, _| {
            access_modes(at(object, &["status", "accessModes"]))
        }),
        ("StorageClass", "string", 0, |object, _| {
            text_at(object, &["spec", "storageClassName"]).into()
        }),
        ("VolumeAttributesClass", "string", 0, |object, _| {
            or(
                text_at(object, &["spec", "volumeAttributesClassName"]),
                "<unset>",
            )
        }),
        ("Age", "string", 0, age),
        ("VolumeMode", "string", 1, |object, _| {
            or(text_at(object, &["spec", "volumeMode"]), "<unset>")
        }),
    ])
}

/// VolumeAttachment columns.
pub fn attachments() -> Vec<Column> {
    columns(&[
        ("Attacher", "string", 0, |object, _| {
            text_at(object, &["spec", "attacher"]).into()
        }),
        ("PV", "string", 0, |object, _| {
            text_at(object, &["spec", "source", "persistentVolumeName"]).into()
        }),
        ("Node", "string", 0, |object, _| {
            text_at(object, &["spec", "nodeName"]).into()
        }),
        ("Attached", "boolean", 0, |object, _| {
            json!(object["status"]["attached"] == true)
        }),
        ("Age", "string", 0, age),
    ])
}

/// StorageClass columns.
pub fn storage_classes() -> Vec<Column> {
    columns(&[
        ("Provisioner", "string", 0, |object, _| {
            text_at(object, &["provisioner"]).into()
        }),
        ("ReclaimPolicy", "string", 0, |object, _| {
            text_at(object, &["reclaimPolicy"]).into()
        }),
        ("VolumeBindingMode", "string", 0, |object, _| {
            text_at(object, &["volumeBindingMode"]).into()
        }),
        ("AllowVolumeExpansion", "string", 0, |object, _| {
            json!(object["allowVolumeExpansion"] == true)
        }),
        ("Age", "string", 0, age),
    ])
}

/// CSINode columns.
pub fn csi_nodes() -> Vec<Column> {
    columns(&[
        ("Drivers", "integer", 0, |object, _| {
            at(object, &["spec", "drivers"])
                .and_then(Value::as_array)
                .map_or(0, Vec::len)
                .into()
        }),
        ("Age", "string", 0, age),
    ])
}

/// PriorityClass columns.
pub fn priority_classes() -> Vec<Column> {
    columns(&[
        ("Value", "integer", 0, |object, _| count(object, &["value"])),
        ("Global-Default", "boolean", 0, |object, _| {
            json!(object["globalDefault"] == true)
        }),
        ("Age", "string", 0, age),
        ("PreemptionPolicy", "string", 1, |object, _| {
            text_at(object, &["preemptionPolicy"]).into()
        }),
    ])
}

/// CustomResourceDefinition columns.
pub fn definitions() -> Vec<Column> {
    columns(&[("Created At", "date", 0, |object, _| {
        text_at(object, &["metadata", "creationTimestamp"]).into()
    })])
}

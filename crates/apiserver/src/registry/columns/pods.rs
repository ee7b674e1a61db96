//! The table columns of pods: one word for their state.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, columns, or};
use crate::registry::age::age_of;
use crate::registry::kind::Column;
use crate::registry::strategy::{at, text_at};

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

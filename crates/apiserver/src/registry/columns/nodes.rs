//! The table columns of nodes.

use serde_json::Value;

use super::{age, columns, joined, or};
use crate::registry::kind::Column;
use crate::registry::strategy::{at, text_at};

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

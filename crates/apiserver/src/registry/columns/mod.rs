//! The table columns of the built-in kinds, as `kubectl get` shows them.

mod events;
mod nodes;
mod pods;
mod volumes;
mod workloads;

pub use events::events;
pub use nodes::nodes;
pub use pods::pods;
pub use volumes::{attachments, claims, csi_nodes, storage_classes, volumes};
pub use workloads::{daemon_sets, deployments, jobs, replica_sets, revisions, stateful_sets};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::registry::age::age_cell;
use crate::registry::kind::Column;
use crate::registry::strategy::{at, number_at, text_at};

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

fn pairs(map: Option<&Value>) -> String {
    let parts: Vec<String> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")))
        .collect();
    parts.join(",")
}

/// The columns of kinds that have nothing else to show than their age.
pub fn plain() -> Vec<Column> {
    columns(&[("Age", "string", 0, age)])
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

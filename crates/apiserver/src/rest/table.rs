//! Tables, as `kubectl get` shows them.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::read::metadata;
use crate::registry::{Kind, convert};

/// A table of objects. `headed` tells whether columns are described, which later events of a watch do not repeat.
pub(super) fn table(
    kind: &Kind,
    meta: Value,
    objects: &[Value],
    include: Option<&str>,
    now: Timestamp,
    headed: bool,
) -> Value {
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let name = kind
                .names_come_first()
                .then(|| object["metadata"]["name"].clone());
            // Cells are of objects as they are stored, which only the newer form of events differs from.
            let shown = if convert::needs_conversion(kind) {
                Cow::Owned(convert::to_storage(kind, object.clone()))
            } else {
                Cow::Borrowed(object)
            };
            let cells: Vec<Value> = name
                .into_iter()
                .chain(kind.columns.iter().map(|column| column.cell(&shown, now)))
                .collect();
            let mut row = json!({"cells": cells});
            match include {
                Some("None") => row["object"] = Value::Null,
                Some("Object") => row["object"] = object.clone(),
                _ => row["object"] = metadata(object),
            }
            row
        })
        .collect();
    let columns = if headed { columns(kind) } else { Vec::new() };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn columns(kind: &Kind) -> Vec<Value> {
    let name = json!({
        "name": "Name",
        "type": "string",
        "format": "name",
        "description": "Name must be unique within a namespace.",
        "priority": 0,
    });
    let others = kind.columns.iter().map(|column| {
        json!({
            "name": column.name,
            "type": column.r#type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        })
    });
    let name = kind.names_come_first().then_some(name);
    name.into_iter().chain(others).collect()
}

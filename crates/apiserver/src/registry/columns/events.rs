//! The table columns of events.

use jiff::Timestamp;
use serde_json::Value;

use super::columns;
use crate::registry::age::age_cell;
use crate::registry::kind::Column;
use crate::registry::strategy::{number_at, text_at};

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

//! Query parameters, read once.

use crate::failure::Failure;
use crate::machinery::selector::{FieldSelector, LabelSelector};
use crate::write::FieldValidation;

#[derive(Debug, Default)]
pub(super) struct Query {
    pub(super) watch: bool,
    pub(super) label_selector: LabelSelector,
    pub(super) field_selector: FieldSelector,
    pub(super) resource_version: String,
    pub(super) resource_version_match: String,
    pub(super) limit: Option<usize>,
    pub(super) continue_token: String,
    pub(super) allow_bookmarks: bool,
    pub(super) send_initial_events: Option<bool>,
    pub(super) timeout_seconds: Option<u64>,
    pub(super) dry_run: bool,
    pub(super) field_manager: Option<String>,
    pub(super) field_validation: FieldValidation,
    pub(super) force: bool,
    pub(super) propagation_policy: Option<String>,
    pub(super) grace_period_seconds: Option<i64>,
    pub(super) include_object: Option<String>,
}

impl Query {
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let mut query = Self::default();
        for (name, value) in form(text) {
            let bad = |why: String| Failure::bad_request(why);
            let truth = || matches!(value.as_str(), "true" | "1" | "True" | "t" | "T" | "TRUE");
            match name.as_str() {
                "watch" => query.watch = truth(),
                "labelSelector" => {
                    query.label_selector =
                        LabelSelector::parse(&value).map_err(|e| bad(e.to_string()))?;
                }
                "fieldSelector" => {
                    query.field_selector =
                        FieldSelector::parse(&value).map_err(|e| bad(e.to_string()))?;
                }
                "resourceVersion" => query.resource_version = value,
                "resourceVersionMatch" => query.resource_version_match = value,
                "limit" => {
                    let limit = value.parse::<usize>().map_err(|_| {
                        bad(format!(
                            "limit: Invalid value: {value:?}: must be a number of at least 0"
                        ))
                    })?;
                    query.limit = Some(limit).filter(|limit| *limit > 0);
                }
                "continue" => query.continue_token = value,
                "allowWatchBookmarks" => query.allow_bookmarks = truth(),
                "sendInitialEvents" => query.send_initial_events = Some(truth()),
                "timeoutSeconds" => query.timeout_seconds = value.parse().ok().filter(|s| *s > 0),
                "dryRun" => match value.as_str() {
                    "All" => query.dry_run = true,
                    "" => {}
                    other => {
                        return Err(bad(format!(
                            "dryRun: Unsupported value: {other:?}: supported values: \"All\""
                        )));
                    }
                },
                "fieldManager" => query.field_manager = Some(value).filter(|v| !v.is_empty()),
                "fieldValidation" => {
                    query.field_validation = match value.as_str() {
                        "Ignore" => FieldValidation::Ignore,
                        "Strict" => FieldValidation::Strict,
                        "Warn" | "" => FieldValidation::Warn,
                        other => {
                            return Err(bad(format!(
                                "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
                            )));
                        }
                    }
                }
                "force" => query.force = truth(),
                "propagationPolicy" => query.propagation_policy = Some(value),
                "gracePeriodSeconds" => query.grace_period_seconds = value.parse().ok(),
                "includeObject" => query.include_object = Some(value),
                // pretty, timeout and what newer clients may send change nothing here.
                _ => {}
            }
        }
        Ok(query)
    }
}

fn form(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (unescape(name), unescape(value))
    })
}

fn unescape(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'+' => out.push(b' '),
            b'%' => {
                let hex = text
                    .get(at + 1..at + 3)
                    .and_then(|hex| u8::from_str_radix(hex, 16).ok());
                if let Some(byte) = hex {
                    out.push(byte);
                    at += 2;
                } else {
                    out.push(b'%');
                }
            }
            other => out.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

//! Nodes: what is capacity is also allocatable unless said otherwise, and identity never changes.

use serde_json::Value;

use crate::machinery::FieldError;
use crate::registry::strategy::{
    Strategy, at, child, forbidden, invalid, required, set_default, text_at, unsupported,
};

/// The strategy of Nodes.
pub struct Nodes;

impl Strategy for Nodes {
    fn default(&self, object: &mut Value) {
        let capacity = object["status"]["capacity"].clone();
        if capacity.is_object()
            && let Some(status) = child(object, "status")
        {
            set_default(status, "allocatable", capacity);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let taints = at(object, &["spec", "taints"]).and_then(Value::as_array);
        let mut seen: Vec<(&str, &str)> = Vec::new();
        for (index, taint) in taints.into_iter().flatten().enumerate() {
            let path = format!("spec.taints[{index}]");
            let (key, effect) = (text_at(taint, &["key"]), text_at(taint, &["effect"]));
            if key.is_empty() {
                errors.push(required(format!("{path}.key"), ""));
            }
            match effect {
                "" => errors.push(required(format!("{path}.effect"), "")),
                "NoSchedule" | "PreferNoSchedule" | "NoExecute" => {}
                other => errors.push(unsupported(
                    format!("{path}.effect"),
                    other,
                    &["NoSchedule", "PreferNoSchedule", "NoExecute"],
                )),
            }
            if seen.contains(&(key, effect)) {
                errors.push(FieldError {
                    kind: crate::machinery::FieldErrorKind::Duplicate,
                    path,
                    value: Some(taint.clone()),
                    detail: "taints must be unique by key and effect pair".to_owned(),
                });
            }
            seen.push((key, effect));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        let before = text_at(old, &["spec", "providerID"]);
        let now = text_at(new, &["spec", "providerID"]);
        if !before.is_empty() && before != now {
            errors.push(forbidden(
                "spec.providerID",
                "node updates may not change providerID except from \"\" to valid",
            ));
        }
        let before = text_at(old, &["spec", "podCIDR"]);
        let now = text_at(new, &["spec", "podCIDR"]);
        if !before.is_empty() && before != now {
            errors.push(forbidden(
                "spec.podCIDRs",
                "node updates may not change podCIDR except from \"\" to valid",
            ));
        }
        errors
    }

    fn validate_status(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let addresses = at(new, &["status", "addresses"]).and_then(Value::as_array);
        let addresses: Vec<&Value> = addresses.into_iter().flatten().collect();
        addresses
            .iter()
            .enumerate()
            .filter(|(index, address)| addresses[..*index].contains(address))
            .map(|(index, address)| FieldError {
                kind: crate::machinery::FieldErrorKind::Duplicate,
                path: format!("status.addresses[{index}]"),
                value: Some((*address).clone()),
                detail: String::new(),
            })
            .collect()
    }
}

/// The strategy of Leases.
pub struct Leases;

impl Strategy for Leases {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(seconds) = at(object, &["spec", "leaseDurationSeconds"]).and_then(Value::as_i64)
            && seconds <= 0
        {
            errors.push(invalid(
                "spec.leaseDurationSeconds",
                seconds,
                "must be greater than 0",
            ));
        }
        if let Some(count) = at(object, &["spec", "leaseTransitions"]).and_then(Value::as_i64)
            && count < 0
        {
            errors.push(invalid(
                "spec.leaseTransitions",
                count,
                "must be greater than or equal to 0",
            ));
        }
        if let Some(Value::String(holder)) = at(object, &["spec", "holderIdentity"])
            && holder.is_empty()
        {
            errors.push(invalid("spec.holderIdentity", "", "must not be empty"));
        }
        errors
    }
}

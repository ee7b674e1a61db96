//! Pods: what a running pod may still change, and how it goes.

use serde_json::{Value, json};

use super::pod_spec::{default_spec, validate_spec};
use crate::machinery::FieldError;
use crate::registry::strategy::{
    Strategy, at, child, forbidden, keep, number_at, set_default, text_at,
};

/// The strategy of Pods.
pub struct Pods;

impl Strategy for Pods {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) {
            default_spec(spec);
            set_default(spec, "enableServiceLinks", true);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        let class = qos_class(&object["spec"]);
        object["status"] = json!({"phase": "Pending", "qosClass": class});
        if let Some(spec) = child(object, "spec") {
            set_default(spec, "serviceAccountName", "default");
            let account = spec["serviceAccountName"].clone();
            set_default(spec, "serviceAccount", account);
        }
    }

    fn prepare_status(&self, new: &mut Value, old: &Value) {
        let owners = old["metadata"].get("ownerReferences").cloned();
        if let Some(metadata) = new["metadata"].as_object_mut() {
            match owners {
                Some(owners) => metadata.insert("ownerReferences".to_owned(), owners),
                None => metadata.remove("ownerReferences"),
            };
        }
        // The class follows from the spec and is nobody's to write.
        if let Some(status) = child(new, "status") {
            keep(status, &old["status"], "qosClass");
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate_spec(&object["spec"], "spec")
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let mut munged = new["spec"].clone();
        let before = &old["spec"];
        for list in ["containers", "initContainers"] {
            let olds = before[list].as_array().map_or(0, Vec::len);
            let news = munged[list].as_array().map_or(0, Vec::len);
            if olds != news {
                errors.push(forbidden(
                    format!("spec.{list}"),
                    "pod updates may not add or remove containers",
                ));
                return errors;
            }
            for (index, container) in munged
                .get_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
                .enumerate()
            {
                if container["image"].as_str().unwrap_or("").is_empty() {
                    errors.push(crate::registry::strategy::required(
                        format!("spec.{list}[{index}].image"),
                        "",
                    ));
                }
                keep(container, &before[list][index], "image");
            }
        }
        if let Some(deadline) = number_at(new, &["spec", "activeDeadlineSeconds"]) {
            let old_deadline = number_at(old, &["spec", "activeDeadlineSeconds"]);
            if old_deadline.is_some_and(|old| deadline > old) {
                errors.push(crate::registry::strategy::invalid(
                    "spec.activeDeadlineSeconds",
                    deadline,
                    "must be less than or equal to previous value",
                ));
            }
            keep(&mut munged, before, "activeDeadlineSeconds");
        }
        let olds = before["tolerations"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let news = munged["tolerations"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        if olds.iter().all(|toleration| news.contains(toleration)) {
            keep(&mut munged, before, "tolerations");
        }
        if munged["terminationGracePeriodSeconds"] == 1
            && before["terminationGracePeriodSeconds"]
                .as_i64()
                .is_some_and(|seconds| seconds < 0)
        {
            keep(&mut munged, before, "terminationGracePeriodSeconds");
        }
        // A pod that waits for its gates may lose them and gain node requirements.
        let gates = |spec: &Value| {
            spec["schedulingGates"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let (old_gates, new_gates) = (gates(before), gates(&munged));
        if new_gates.iter().all(|gate| old_gates.contains(gate)) {
            keep(&mut munged, before, "schedulingGates");
            if !old_gates.is_empty() {
                keep(&mut munged, before, "nodeSelector");
                keep(&mut munged, before, "affinity");
            }
        }
        if munged != *before {
            errors.push(forbidden(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
            ));
        }
        errors
    }

    fn grace_period(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let phase = text_at(object, &["status", "phase"]);
        if text_at(object, &["spec", "nodeName"]).is_empty()
            || ["Succeeded", "Failed"].contains(&phase)
        {
            return Some(0);
        }
        let seconds = asked
            .or_else(|| number_at(object, &["spec", "terminationGracePeriodSeconds"]))
            .unwrap_or(0);
        Some(if seconds < 0 { 1 } else { seconds })
    }
}

/// The quality of service that a pod's requests and limits earn it.
fn qos_class(spec: &Value) -> &'static str {
    let mut any = false;
    let mut guaranteed = true;
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array().into_iter().flatten() {
            for resource in ["cpu", "memory"] {
                let of = |part: &str| {
                    at(container, &["resources", part, resource]).filter(|quantity| {
                        !matches!(quantity.as_str(), Some("0") | None) || quantity.is_number()
                    })
                };
                let (limit, request) = (of("limits"), of("requests"));
                any |= limit.is_some() || request.is_some();
                guaranteed &=
                    limit.is_some() && request.is_none_or(|request| Some(request) == limit);
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

//! Deployments, ReplicaSets, DaemonSets, StatefulSets and Jobs: templates with a selector that never changes.

use serde_json::{Value, json};

use super::pod_spec::{default_spec, validate_template};
use crate::machinery::FieldError;
use crate::registry::strategy::{
    Strategy, child, immutable, invalid, keep, not_negative, number_at, required, set_default,
    text_at, unsupported,
};

/// Which workload a [`Workloads`] is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// `apps/v1` Deployment.
    Deployment,
    /// `apps/v1` ReplicaSet.
    ReplicaSet,
    /// `apps/v1` DaemonSet.
    DaemonSet,
    /// `apps/v1` StatefulSet.
    StatefulSet,
}

/// The strategy of the workloads.
pub struct Workloads(pub Workload);

impl Strategy for Workloads {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else {
            return;
        };
        if let Some(pod) = spec.pointer_mut("/template/spec") {
            default_spec(pod);
        }
        match self.0 {
            Workload::Deployment => {
                set_default(spec, "replicas", 1);
                set_default(spec, "revisionHistoryLimit", 10);
                set_default(spec, "progressDeadlineSeconds", 600);
                rolling(
                    spec,
                    "strategy",
                    json!({"maxUnavailable": "25%", "maxSurge": "25%"}),
                );
            }
            Workload::ReplicaSet => set_default(spec, "replicas", 1),
            Workload::DaemonSet => {
                set_default(spec, "revisionHistoryLimit", 10);
                rolling(
                    spec,
                    "updateStrategy",
                    json!({"maxUnavailable": 1, "maxSurge": 0}),
                );
            }
            Workload::StatefulSet => {
                set_default(spec, "replicas", 1);
                set_default(spec, "podManagementPolicy", "OrderedReady");
                set_default(spec, "revisionHistoryLimit", 10);
                set_default(
                    spec,
                    "persistentVolumeClaimRetentionPolicy",
                    json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
                );
                rolling(spec, "updateStrategy", json!({"partition": 0}));
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = match self.0 {
            Workload::Deployment => json!({}),
            Workload::ReplicaSet => json!({"replicas": 0}),
            Workload::DaemonSet => json!({
                "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
            }),
            Workload::StatefulSet => json!({"replicas": 0, "availableReplicas": 0}),
        };
    }

    fn prepare_status(&self, new: &mut Value, old: &Value) {
        if self.0 == Workload::Deployment
            && let Some(metadata) = child(new, "metadata")
        {
            keep(metadata, &old["metadata"], "labels");
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let spec = &object["spec"];
        let mut errors: Vec<FieldError> = Vec::new();
        errors.extend(not_negative(object, &["spec", "replicas"]));
        errors.extend(not_negative(object, &["spec", "minReadySeconds"]));
        errors.extend(not_negative(object, &["spec", "revisionHistoryLimit"]));
        let selector = &spec["selector"];
        if selector.is_null() {
            errors.push(required("spec.selector", ""));
        } else if is_empty_selector(selector) {
            let what = match self.0 {
                Workload::Deployment => "deployment",
                Workload::ReplicaSet => "replicaset",
                Workload::DaemonSet => "daemonset",
                Workload::StatefulSet => "statefulset",
            };
            errors.push(invalid(
                "spec.selector",
                selector.clone(),
                format!("empty selector is invalid for {what}"),
            ));
        }
        errors.extend(validate_template(spec));
        let restart = text_at(spec, &["template", "spec", "restartPolicy"]);
        if !restart.is_empty() && restart != "Always" {
            errors.push(unsupported(
                "spec.template.spec.restartPolicy",
                restart,
                &["Always"],
            ));
        }
        match self.0 {
            Workload::Deployment => {
                errors.extend(strategy_errors(
                    spec,
                    "strategy",
                    &["Recreate", "RollingUpdate"],
                ));
                let deadline = number_at(spec, &["progressDeadlineSeconds"]);
                let ready = number_at(spec, &["minReadySeconds"]).unwrap_or(0);
                if let Some(deadline) = deadline.filter(|deadline| *deadline <= ready) {
                    errors.push(invalid(
                        "spec.progressDeadlineSeconds",
                        deadline,
                        "must be greater than minReadySeconds",
                    ));
                }
            }
            Workload::DaemonSet | Workload::StatefulSet => {
                errors.extend(strategy_errors(
                    spec,
                    "updateStrategy",
                    &["OnDelete", "RollingUpdate"],
                ));
            }
            Workload::ReplicaSet => {}
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        if self.0 == Workload::StatefulSet {
            let mut copy = new["spec"].clone();
            for field in [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
            ] {
                keep(&mut copy, &old["spec"], field);
            }
            if copy != old["spec"] {
                errors.push(crate::registry::strategy::forbidden(
                    "spec",
                    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
                ));
            }
        } else {
            errors.extend(immutable(new, old, &["spec", "selector"]));
        }
        errors
    }
}

fn rolling(spec: &mut Value, field: &str, parameters: Value) {
    let Some(strategy) = child(spec, field) else {
        return;
    };
    set_default(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate"
        && let Some(rolling) = child(strategy, "rollingUpdate")
    {
        for (key, value) in parameters.as_object().into_iter().flatten() {
            set_default(rolling, key, value.clone());
        }
    }
}

fn strategy_errors(spec: &Value, field: &str, supported: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let strategy = &spec[field];
    let kind = text_at(strategy, &["type"]);
    if !supported.contains(&kind) {
        errors.push(unsupported(format!("spec.{field}.type"), kind, supported));
    }
    let rolling = &strategy["rollingUpdate"];
    if kind != "RollingUpdate" && !rolling.is_null() {
        errors.push(crate::registry::strategy::forbidden(
            format!("spec.{field}.rollingUpdate"),
            format!("may not be specified when strategy `type` is '{kind}'"),
        ));
    }
    if is_zero(&rolling["maxUnavailable"]) && is_zero(&rolling["maxSurge"]) {
        errors.push(invalid(
            format!("spec.{field}.rollingUpdate.maxUnavailable"),
            rolling["maxUnavailable"].clone(),
            "may not be 0 when `maxSurge` is 0",
        ));
    }
    errors
}

fn is_zero(value: &Value) -> bool {
    value == 0 || value == "0%" || value == "0"
}

fn is_empty_selector(selector: &Value) -> bool {
    ["matchLabels", "matchExpressions"]
        .iter()
        .all(|part| match &selector[*part] {
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => true,
        })
}

/// The strategy of Jobs, as far as they are stored.
pub struct Jobs;

impl Strategy for Jobs {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else {
            return;
        };
        if spec["completions"].is_null() && spec["parallelism"].is_null() {
            set_default(spec, "completions", 1);
        }
        set_default(spec, "parallelism", 1);
        set_default(spec, "backoffLimit", 6);
        set_default(spec, "completionMode", "NonIndexed");
        set_default(spec, "suspend", false);
        if let Some(pod) = spec.pointer_mut("/template/spec") {
            default_spec(pod);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({});
        let name = object["metadata"]["name"].clone();
        let uid = object["metadata"]["uid"].clone();
        if object["spec"]["manualSelector"] == true {
            return;
        }
        let Some(spec) = child(object, "spec") else {
            return;
        };
        spec["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
        if let Some(template) = child(spec, "template")
            && let Some(metadata) = child(template, "metadata")
            && let Some(labels) = child(metadata, "labels")
        {
            for prefix in ["", "batch.kubernetes.io/"] {
                labels[format!("{prefix}controller-uid")] = uid.clone();
                labels[format!("{prefix}job-name")] = name.clone();
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_template(&object["spec"]);
        let restart = text_at(object, &["spec", "template", "spec", "restartPolicy"]);
        if !["Never", "OnFailure"].contains(&restart) {
            errors.push(if restart == "Always" {
                unsupported(
                    "spec.template.spec.restartPolicy",
                    restart,
                    &["OnFailure", "Never"],
                )
            } else {
                required(
                    "spec.template.spec.restartPolicy",
                    "valid values: \"OnFailure\", \"Never\"",
                )
            });
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(immutable(new, old, &["spec", "selector"]));
        errors.extend(immutable(new, old, &["spec", "completionMode"]));
        errors
    }
}

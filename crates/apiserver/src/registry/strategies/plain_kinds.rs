//! Budgets, priorities, services and events: kinds with a rule or two each.

use serde_json::{Value, json};

use crate::machinery::FieldError;
use crate::machinery::selector::LabelSelector;
use crate::registry::strategy::{
    Strategy, child, forbidden, immutable, invalid, not_negative, required, set_default, text_at,
    unsupported,
};

/// The strategy of PodDisruptionBudgets.
pub struct Budgets;

impl Strategy for Budgets {
    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        });
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object["spec"];
        if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
            errors.push(invalid(
                "spec",
                spec.clone(),
                "minAvailable and maxUnavailable cannot be both set",
            ));
        }
        for field in ["minAvailable", "maxUnavailable"] {
            errors.extend(count_or_percent(&spec[field], &format!("spec.{field}")));
        }
        if !spec["selector"].is_null()
            && let Err(why) = LabelSelector::from_object(&spec["selector"])
        {
            errors.push(invalid(
                "spec.selector",
                spec["selector"].clone(),
                why.to_string(),
            ));
        }
        let policy = text_at(spec, &["unhealthyPodEvictionPolicy"]);
        if !["", "IfHealthyBudget", "AlwaysAllow"].contains(&policy) {
            errors.push(unsupported(
                "spec.unhealthyPodEvictionPolicy",
                policy,
                &["AlwaysAllow", "IfHealthyBudget"],
            ));
        }
        errors
    }

    fn validate_status(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        [
            "currentHealthy",
            "desiredHealthy",
            "disruptionsAllowed",
            "expectedPods",
        ]
        .iter()
        .filter_map(|field| not_negative(new, &["status", field]))
        .collect()
    }
}

fn count_or_percent(value: &Value, path: &str) -> Vec<FieldError> {
    match value {
        Value::Number(number) if number.as_i64().is_some_and(|n| n < 0) => {
            vec![invalid(
                path,
                value.clone(),
                "must be greater than or equal to 0",
            )]
        }
        Value::String(text) => {
            let digits = text
                .strip_suffix('%')
                .filter(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
            match digits.map(str::parse::<u64>) {
                Some(Ok(percent)) if percent <= 100 => Vec::new(),
                Some(_) => vec![invalid(
                    path,
                    value.clone(),
                    "must not be greater than 100%",
                )],
                None => vec![invalid(
                    path,
                    value.clone(),
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                )],
            }
        }
        _ => Vec::new(),
    }
}

/// The strategy of PriorityClasses.
pub struct PriorityClasses;

impl Strategy for PriorityClasses {
    fn default(&self, object: &mut Value) {
        set_default(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let name = text_at(object, &["metadata", "name"]);
        let value = object["value"].as_i64().unwrap_or(0);
        let system = [
            ("system-node-critical", 2_000_001_000),
            ("system-cluster-critical", 2_000_000_000),
        ];
        if name.starts_with("system-") && !system.contains(&(name, value)) {
            errors.push(forbidden(
                "metadata.name",
                "priority class names with 'system-' prefix are reserved for system use only. error: ".to_owned()
                    + &format!("{name} is not a known system priority class"),
            ));
        } else if !name.starts_with("system-") && value > 1_000_000_000 {
            errors.push(forbidden(
                "value",
                "maximum allowed value of a user defined priority is 1000000000",
            ));
        }
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if new["value"] != old["value"] {
            errors.push(forbidden("value", "may not be changed in an update."));
        }
        errors.extend(immutable(new, old, &["preemptionPolicy"]));
        errors
    }
}

/// The strategy of Services, as far as they are stored: nothing routes to them.
pub struct Services;

impl Strategy for Services {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else {
            return;
        };
        set_default(spec, "type", "ClusterIP");
        set_default(spec, "sessionAffinity", "None");
        if spec["type"] != "ExternalName" {
            set_default(spec, "internalTrafficPolicy", "Cluster");
            set_default(spec, "ipFamilyPolicy", "SingleStack");
            set_default(spec, "ipFamilies", json!(["IPv4"]));
        }
        if spec["type"] == "LoadBalancer" {
            set_default(spec, "allocateLoadBalancerNodePorts", true);
        }
        if spec["type"] == "NodePort" || spec["type"] == "LoadBalancer" {
            set_default(spec, "externalTrafficPolicy", "Cluster");
        }
        for port in spec
            .get_mut("ports")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            set_default(port, "protocol", "TCP");
            let inner = port["port"].clone();
            set_default(port, "targetPort", inner);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"loadBalancer": {}});
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object["spec"];
        let kind = text_at(spec, &["type"]);
        if !["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"].contains(&kind) {
            errors.push(unsupported(
                "spec.type",
                kind,
                &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
            ));
        }
        let headless = kind == "ClusterIP" && spec["clusterIP"] == "None";
        if spec["ports"].as_array().is_none_or(Vec::is_empty) && !headless && kind != "ExternalName"
        {
            errors.push(required("spec.ports", ""));
        }
        errors
    }
}

/// The strategy of Events.
pub struct Events;

impl Strategy for Events {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        // The newer form of events names the object differently and asks for more.
        let is_new = text_at(object, &["apiVersion"]) != "v1";
        let about = if is_new {
            "regarding"
        } else {
            "involvedObject"
        };
        let namespace = text_at(object, &["metadata", "namespace"]);
        let involved = text_at(object, &[about, "namespace"]);
        let fits = if involved.is_empty() {
            // Events of cluster-scoped objects live in the default namespace.
            ["default", "kube-system", ""].contains(&namespace)
        } else {
            involved == namespace
        };
        let mut errors = Vec::new();
        if !fits {
            errors.push(invalid(
                format!("{about}.namespace"),
                involved,
                "does not match event.namespace",
            ));
        }
        if is_new && text_at(object, &["deprecatedSource", "component"]).is_empty() {
            for field in [
                "eventTime",
                "reportingController",
                "reportingInstance",
                "action",
                "reason",
            ] {
                if text_at(object, &[field]).is_empty() {
                    errors.push(required(field, ""));
                }
            }
            let kind = text_at(object, &["type"]);
            if !["Normal", "Warning"].contains(&kind) {
                errors.push(invalid("type", kind, "has invalid value: "));
            }
        }
        errors
    }
}

/// The strategy of ControllerRevisions.
pub struct Revisions;

impl Strategy for Revisions {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        not_negative(object, &["revision"]).into_iter().collect()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = self.validate(new);
        errors.extend(immutable(new, old, &["data"]));
        errors
    }
}

/// The strategy of kinds whose status starts empty.
pub struct EmptyStatus;

impl Strategy for EmptyStatus {
    fn prepare_create(&self, object: &mut Value) {
        if let Some(status) = child(object, "status") {
            *status = json!({});
        }
    }
}

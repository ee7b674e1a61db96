//! What Pods and pod templates share: the defaults of a pod's spec and what makes one valid.

use serde_json::{Value, json};

use crate::machinery::FieldError;
use crate::machinery::selector::LabelSelector;
use crate::registry::strategy::{child, invalid, required, set_default, unsupported};

/// Fills in the defaults of a pod's spec.
pub fn default_spec(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    set_default(spec, "restartPolicy", "Always");
    set_default(spec, "dnsPolicy", "ClusterFirst");
    set_default(spec, "terminationGracePeriodSeconds", 30);
    set_default(spec, "schedulerName", "default-scheduler");
    set_default(spec, "securityContext", json!({}));
    let account = spec["serviceAccountName"].as_str().unwrap_or("").to_owned();
    if !account.is_empty() {
        set_default(spec, "serviceAccount", account);
    }
    let host_network = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        for container in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            default_container(container, host_network);
        }
    }
    for volume in spec
        .get_mut("volumes")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        default_volume(volume);
    }
}

fn default_container(container: &mut Value, host_network: bool) {
    if !container.is_object() {
        return;
    }
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    set_default(container, "resources", json!({}));
    let image = container["image"].as_str().unwrap_or("");
    let policy = if is_moving_tag(image) {
        "Always"
    } else {
        "IfNotPresent"
    };
    set_default(container, "imagePullPolicy", policy);
    for port in container
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        set_default(port, "protocol", "TCP");
        if host_network {
            let inner = port["containerPort"].clone();
            set_default(port, "hostPort", inner);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe).filter(|probe| probe.is_object()) else {
            continue;
        };
        for (key, value) in [
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ] {
            set_default(probe, key, value);
        }
        if let Some(get) = probe.get_mut("httpGet").filter(|get| get.is_object()) {
            set_default(get, "path", "/");
            set_default(get, "scheme", "HTTP");
        }
    }
    for var in container
        .get_mut("env")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(field) = var.pointer_mut("/valueFrom/fieldRef") {
            set_default(field, "apiVersion", "v1");
        }
    }
    // A limit without a request is also the request.
    let limits = container["resources"]["limits"].clone();
    if let (Some(limits), Some(resources)) = (limits.as_object(), child(container, "resources"))
        && let Some(requests) = child(resources, "requests")
    {
        for (name, quantity) in limits {
            set_default(requests, name, quantity.clone());
        }
    }
}

fn is_moving_tag(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    match name.split_once(':') {
        None => true,
        Some((_, tag)) => tag == "latest",
    }
}

fn default_volume(volume: &mut Value) {
    for source in ["secret", "configMap", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(source).filter(|source| source.is_object()) {
            set_default(source, "defaultMode", 420);
        }
    }
    if let Some(path) = volume.get_mut("hostPath").filter(|path| path.is_object()) {
        set_default(path, "type", "");
    }
}

/// What is wrong with a pod's spec, paths below `path`.
pub fn validate_spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        errors.push(required(format!("{path}.containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let at = format!("{path}.{list}[{index}]");
            let name = container["name"].as_str().unwrap_or("");
            if name.is_empty() {
                errors.push(required(format!("{at}.name"), ""));
            } else {
                for detail in crate::machinery::names::dns1123_label(name) {
                    errors.push(invalid(format!("{at}.name"), name, detail));
                }
                if names.contains(&name) {
                    errors.push(FieldError {
                        kind: crate::machinery::FieldErrorKind::Duplicate,
                        path: format!("{at}.name"),
                        value: Some(json!(name)),
                        detail: String::new(),
                    });
                }
                names.push(name);
            }
            if container["image"].as_str().unwrap_or("").is_empty() {
                errors.push(required(format!("{at}.image"), ""));
            }
            errors.extend(resources(
                &container["resources"],
                &format!("{at}.resources"),
            ));
        }
    }
    let restart = spec["restartPolicy"].as_str().unwrap_or("Always");
    if !["Always", "OnFailure", "Never"].contains(&restart) {
        errors.push(unsupported(
            format!("{path}.restartPolicy"),
            restart,
            &["Always", "OnFailure", "Never"],
        ));
    }
    errors
}

fn resources(resources: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for part in ["limits", "requests"] {
        for (name, quantity) in resources[part].as_object().into_iter().flatten() {
            let text = match quantity {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if let Ok(amount) = text.parse::<crate::machinery::quantity::Quantity>()
                && let Some(limit) = resources["limits"][name]
                    .as_str()
                    .filter(|_| part == "requests")
                && let Ok(limit) = limit.parse::<crate::machinery::quantity::Quantity>()
                && amount > limit
            {
                errors.push(invalid(
                    format!("{path}.requests"),
                    text,
                    format!(
                        "must be less than or equal to {name} limit of {}",
                        resources["limits"][name].as_str().unwrap_or("")
                    ),
                ));
            }
        }
    }
    errors
}

/// What is wrong with a workload's template, given the selector that must match it.
pub fn validate_template(template: &Value, selector: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let labels = &template["metadata"]["labels"];
    if let Ok(parsed) = LabelSelector::from_object(selector)
        && !parsed.matches_value(labels)
    {
        errors.push(invalid(
            "spec.template.metadata.labels",
            labels.clone(),
            "`selector` does not match template `labels`",
        ));
    }
    errors.extend(validate_spec(&template["spec"], "spec.template.spec"));
    errors
}

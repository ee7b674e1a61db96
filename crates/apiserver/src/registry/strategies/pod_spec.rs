//! What Pods and pod templates share: the defaults of a pod's spec and what makes one valid.

use serde_json::{Value, json};

use crate::machinery::quantity::{Quantity, QuantityError};
use crate::machinery::selector::LabelSelector;
use crate::machinery::{FieldError, FieldErrorKind};
use crate::registry::strategy::{child, invalid, required, set_default, text_at, unsupported};

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
    validate_with_claims(spec, path, std::iter::empty())
}

/// The same for a spec whose containers may also mount volumes of these names.
fn validate_with_claims<'a>(
    spec: &'a Value,
    path: &str,
    claims: impl Iterator<Item = &'a str>,
) -> Vec<FieldError> {
    let mut errors = volumes(spec, path, claims);
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
            let at = format!("{path}.{part}[{name}]");
            let amount = match amount(quantity) {
                Ok(amount) if amount.is_negative() => {
                    errors.push(invalid(
                        at,
                        quantity.clone(),
                        "must be greater than or equal to 0",
                    ));
                    continue;
                }
                Ok(amount) => amount,
                Err(why) => {
                    errors.push(invalid(at, quantity.clone(), why.to_string()));
                    continue;
                }
            };
            let limit = &resources["limits"][name];
            if part == "requests" && !limit.is_null() && amount_exceeds(amount, limit) {
                let limit = limit
                    .as_str()
                    .map_or_else(|| limit.to_string(), str::to_owned);
                errors.push(invalid(
                    format!("{path}.requests"),
                    quantity.clone(),
                    format!("must be less than or equal to {name} limit of {limit}"),
                ));
            }
        }
    }
    errors
}

fn amount(quantity: &Value) -> Result<Quantity, QuantityError> {
    match quantity {
        Value::String(text) => text.parse(),
        other => other.to_string().parse(),
    }
}

fn amount_exceeds(amount_of: Quantity, limit: &Value) -> bool {
    amount(limit).is_ok_and(|limit| amount_of > limit)
}

/// Volumes have names of their own, and what is mounted is among them.
fn volumes<'a>(
    spec: &'a Value,
    path: &str,
    claims: impl Iterator<Item = &'a str>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let at = format!("{path}.volumes[{index}].name");
        match text_at(volume, &["name"]) {
            "" => errors.push(required(at, "")),
            name if names.contains(&name) => {
                errors.push(FieldError::new(
                    FieldErrorKind::Duplicate,
                    at,
                    Some(name.into()),
                    "",
                ));
            }
            name => names.push(name),
        }
    }
    names.extend(claims);
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            for (mount, found) in container["volumeMounts"]
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
            {
                let at = format!("{path}.{list}[{index}].volumeMounts[{mount}]");
                match text_at(found, &["name"]) {
                    "" => errors.push(required(format!("{at}.name"), "")),
                    name if !names.contains(&name) => errors.push(FieldError::new(
                        FieldErrorKind::NotFound,
                        format!("{at}.name"),
                        Some(name.into()),
                        "",
                    )),
                    _ => {}
                }
                if text_at(found, &["mountPath"]).is_empty() {
                    errors.push(required(format!("{at}.mountPath"), ""));
                }
            }
        }
    }
    errors
}

/// What is wrong with a workload's template: its selector must match it, and its claims are volumes too.
pub fn validate_template(workload: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (template, selector) = (&workload["template"], &workload["selector"]);
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
    let claims = workload["volumeClaimTemplates"]
        .as_array()
        .into_iter()
        .flatten();
    let claims = claims.map(|claim| text_at(claim, &["metadata", "name"]));
    errors.extend(validate_with_claims(
        &template["spec"],
        "spec.template.spec",
        claims,
    ));
    errors
}

//! What Cluster API's provider contract says of objects whose kind is the provider's own.
//!
//! Versions v1beta1 and v1beta2 of the contract are both read, wherever a field moved between them.

use std::collections::BTreeMap;

use kube::core::DynamicObject;
use serde_json::Value;

use crate::reference::MachineAddress;

fn at<'a>(object: &'a DynamicObject, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(&object.data, |value, step| value.get(*step))
}

fn text(object: &DynamicObject, path: &[&str]) -> Option<String> {
    at(object, path)?
        .as_str()
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

fn flag(object: &DynamicObject, path: &[&str]) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or(false)
}

/// Whether an infrastructure object is provisioned: `status.initialization.provisioned` of contract v1beta2, or
/// `status.ready` of v1beta1.
pub fn is_provisioned(object: &DynamicObject) -> bool {
    flag(object, &["status", "initialization", "provisioned"]) || flag(object, &["status", "ready"])
}

/// `spec.providerID`.
pub fn provider_id(object: &DynamicObject) -> Option<String> {
    text(object, &["spec", "providerID"])
}

/// `spec.providerIDList`.
pub fn provider_id_list(object: &DynamicObject) -> Vec<String> {
    at(object, &["spec", "providerIDList"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|id| id.as_str().map(str::to_owned))
        .collect()
}

/// `status.replicas` of an InfraMachinePool.
pub fn replicas(object: &DynamicObject) -> Option<i32> {
    at(object, &["status", "replicas"])?
        .as_i64()
        .and_then(|n| i32::try_from(n).ok())
}

/// `status.infrastructureMachineKind`; an empty string counts as absent.
pub fn infrastructure_machine_kind(object: &DynamicObject) -> Option<String> {
    text(object, &["status", "infrastructureMachineKind"])
}

/// `status.addresses`; what is malformed is left out.
pub fn addresses(object: &DynamicObject) -> Vec<MachineAddress> {
    at(object, &["status", "addresses"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|address| serde_json::from_value(address.clone()).ok())
        .collect()
}

/// `status.failureDomain` of contract v1beta2, else `spec.failureDomain` of v1beta1.
pub fn failure_domain(object: &DynamicObject) -> Option<String> {
    text(object, &["status", "failureDomain"]).or_else(|| text(object, &["spec", "failureDomain"]))
}

/// `status.interruptible`.
pub fn is_interruptible(object: &DynamicObject) -> bool {
    flag(object, &["status", "interruptible"])
}

/// Whether the instance of an InfraMachine was launched from the current template, where its provider says so in
/// `status.upToDate`. Ours: the contract has nothing of the kind.
pub fn is_up_to_date(object: &DynamicObject) -> Option<bool> {
    at(object, &["status", "upToDate"]).and_then(Value::as_bool)
}

/// `status.version` of a control plane's object: the version that all of its API servers have at least. An InfraCluster
/// that is its own control plane says it in the same place.
pub fn control_plane_version(object: &DynamicObject) -> Option<String> {
    text(object, &["status", "version"])
}

/// Whether a bootstrap object has made its data: contract v1beta2's flag, or v1beta1's `status.ready`.
pub fn has_data_secret(object: &DynamicObject) -> bool {
    flag(object, &["status", "initialization", "dataSecretCreated"])
        || flag(object, &["status", "ready"])
}

/// `status.dataSecretName` of a bootstrap object.
pub fn data_secret_name(object: &DynamicObject) -> Option<String> {
    text(object, &["status", "dataSecretName"])
}

/// `spec.controlPlaneEndpoint` of an InfraCluster, once it is complete.
pub fn control_plane_endpoint(object: &DynamicObject) -> Option<crate::cluster::ApiEndpoint> {
    let endpoint = at(object, &["spec", "controlPlaneEndpoint"])?;
    let endpoint: crate::cluster::ApiEndpoint = serde_json::from_value(endpoint.clone()).ok()?;
    endpoint.is_complete().then_some(endpoint)
}

/// `status.failureDomains` of an InfraCluster: a list in contract v1beta2, a map in v1beta1.
pub fn failure_domains(object: &DynamicObject) -> Vec<crate::cluster::FailureDomain> {
    match at(object, &["status", "failureDomains"]) {
        Some(Value::Array(list)) => list
            .iter()
            .filter_map(|domain| serde_json::from_value(domain.clone()).ok())
            .collect(),
        Some(Value::Object(map)) => map
            .iter()
            .map(|(name, domain)| crate::cluster::FailureDomain {
                name: name.clone(),
                control_plane: domain["controlPlane"].as_bool(),
                attributes: BTreeMap::new(),
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// An object's Ready condition: status, reason, message.
pub fn ready_condition(object: &DynamicObject) -> Option<(String, String, String)> {
    let conditions = at(object, &["status", "conditions"])?.as_array()?;
    let ready = conditions.iter().find(|c| c["type"] == "Ready")?;
    let part = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    Some((part("status"), part("reason"), part("message")))
}

/// The API version to use a kind at, from its CRD's labels: the newest contract that is labelled, and of its versions the
/// highest.
pub fn api_version(labels: &BTreeMap<String, String>) -> Option<String> {
    let versions = ["v1beta2", "v1beta1"].into_iter().find_map(|contract| {
        labels
            .get(&format!("cluster.x-k8s.io/{contract}"))
            .filter(|versions| !versions.is_empty())
    })?;
    versions
        .split('_')
        .max_by_key(|version| rank(version))
        .map(str::to_owned)
}

/// Kubernetes' order of versions: stable over beta over alpha, then numbers.
fn rank(version: &str) -> (u8, u64, u64) {
    let numbers = |text: &str| text.parse::<u64>().ok();
    let Some(rest) = version.strip_prefix('v') else {
        return (0, 0, 0);
    };
    for (sort, name) in [(2, "beta"), (1, "alpha")] {
        if let Some((major, minor)) = rest.split_once(name) {
            return (
                sort,
                numbers(major).unwrap_or(0),
                numbers(minor).unwrap_or(0),
            );
        }
    }
    numbers(rest).map_or((0, 0, 0), |major| (3, major, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_contract_and_its_highest_version_win() {
        let labels = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(k, v)| (format!("cluster.x-k8s.io/{k}"), (*v).to_owned()))
                .collect()
        };
        assert_eq!(
            api_version(&labels(&[("v1beta1", "v1alpha3_v1beta1_v1")])).as_deref(),
            Some("v1")
        );
        assert_eq!(
            api_version(&labels(&[
                ("v1beta1", "v9"),
                ("v1beta2", "v1beta2_v1beta10")
            ]))
            .as_deref(),
            Some("v1beta10")
        );
        assert_eq!(api_version(&labels(&[("v1beta2", "")])), None);
    }

    #[test]
    fn provisioned_is_read_at_both_contract_versions() {
        for (status, expected) in [
            (serde_json::json!({"ready": true}), true),
            (
                serde_json::json!({"initialization": {"provisioned": true}}),
                true,
            ),
            (serde_json::json!({"initialization": {}}), false),
            (serde_json::json!(null), false),
        ] {
            let object: DynamicObject =
                serde_json::from_value(serde_json::json!({"metadata": {}, "status": status}))
                    .unwrap();
            assert_eq!(is_provisioned(&object), expected);
        }
    }
}

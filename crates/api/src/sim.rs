//! Kinds of the simulated provider: SimCluster, SimMachinePool, SimMachine.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::cluster::{ApiEndpoint, FailureDomain};
use crate::reference::MachineAddress;

/// What a simulated cluster is wanted to be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "SimCluster",
    namespaced,
    status = "SimClusterStatus",
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    doc = "A workload cluster in the simulated cloud."
)]
#[serde(rename_all = "camelCase")]
pub struct SimClusterSpec {
    /// Version of its API server and the newest that its Nodes may have, such as `v1.37.2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^v[0-9]+\.[0-9]+\.[0-9]+$"))]
    pub kubernetes_version: Option<String>,
    /// Its zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub failure_domains: Vec<String>,
    /// Where its API is; written by the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ApiEndpoint>,
}

/// What a simulated cluster was observed to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SimClusterStatus {
    /// Whether it is provisioned, as contract v1beta1 tells it.
    #[serde(default)]
    pub ready: bool,
    /// Whether it is provisioned, as contract v1beta2 tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<InfrastructureInitialization>,
    /// Version of its API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its zones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<FailureDomain>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// The provisioned flag of contract v1beta2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct InfrastructureInitialization {
    /// Whether the provider has made what was asked for; never goes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
}

/// What a simulated scale group is wanted to be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "SimMachinePool",
    namespaced,
    status = "SimMachinePoolStatus",
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    doc = "A scale group in the simulated cloud."
)]
#[serde(rename_all = "camelCase")]
pub struct SimMachinePoolSpec {
    /// What instances are launched from; changing it makes running ones out of date.
    #[serde(default)]
    pub template: SimTemplate,
    /// Zones to spread over; default the MachinePool's failure domains, then the cluster's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub zones: Vec<String>,
    /// Whether single instances can be terminated; false plays a service that only takes a size.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub individual_deletion: Option<bool>,
    /// Identity of the scale group; written by the provider.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Every current instance; written by the provider.
    #[serde(
        rename = "providerIDList",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 10000), extend("x-kubernetes-list-type" = "atomic"))]
    pub provider_id_list: Vec<String>,
}

/// What instances are launched from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SimTemplate {
    /// From launch until the Node registers; default 20s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_duration: Option<SimDuration>,
    /// From the order to terminate until the instance is gone; default 5s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_duration: Option<SimDuration>,
    /// Capacity of each Node; default 4 CPUs, 16Gi memory, 110 pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Labels that each Node registers with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// Taints that each Node registers with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "taints")]
    pub taints: Vec<Taint>,
}

impl SimTemplate {
    /// From launch until the Node registers.
    pub fn boot(&self) -> Duration {
        self.boot_duration.map_or(Duration::from_secs(20), |d| d.0)
    }

    /// What each Node has room for, as text: what the template says, over the defaults.
    pub fn node_capacity(&self) -> BTreeMap<String, String> {
        let given = self
            .capacity
            .iter()
            .map(|(name, amount)| (name.clone(), amount.0.clone()));
        let usual = [("cpu", "4"), ("memory", "16Gi"), ("pods", "110")];
        let usual = usual.map(|(name, amount)| (name.to_owned(), amount.to_owned()));
        usual.into_iter().chain(given).collect()
    }

    /// Whether instances launched from the one are what the other asks for: what is left to its default is as good as
    /// written, an amount has many spellings, and the order of taints does not matter.
    pub fn means(&self, other: &Self) -> bool {
        let amounts = |template: &Self| -> Vec<(String, String)> {
            let capacity = template.node_capacity().into_iter();
            capacity.map(|(name, text)| (name, amount(&text))).collect()
        };
        let taints = |template: &Self| {
            let parts = template.taints.iter().map(|taint| {
                let value = taint.value.clone().unwrap_or_default();
                (taint.key.clone(), taint.effect.clone(), value)
            });
            parts.collect::<std::collections::BTreeSet<_>>()
        };
        self.boot() == other.boot()
            && self.termination() == other.termination()
            && amounts(self) == amounts(other)
            && self.node_labels == other.node_labels
            && taints(self) == taints(other)
    }

    /// From the order to terminate until the instance is gone.
    pub fn termination(&self) -> Duration {
        self.termination_duration
            .map_or(Duration::from_secs(5), |d| d.0)
    }
}

/// An amount in one spelling of the many that mean the same: `16Gi`, `16384Mi`, `17179869184`. Source: Kubernetes.
fn amount(text: &str) -> String {
    const UNITS: [(&str, f64); 14] = [
        ("Ki", 1_024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
    ];
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let (number, factor) = match unit {
        Some((unit, factor)) => (text.strip_suffix(unit).unwrap_or(text), *factor),
        None => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) => format!("{:.9}", number * factor),
        Err(_) => text.to_owned(),
    }
}

pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
        }
    })
}

fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["key", "effect"],
            "properties": {
                "key": {"type": "string", "minLength": 1},
                "value": {"type": "string"},
                "effect": {"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
                "timeAdded": {"type": "string", "format": "date-time"}
            }
        }
    })
}

/// A span of time, written as Go writes it: `1h30m`, `20s`, `500ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SimDuration(pub Duration);

/// A text that is no span of time.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a duration; write numbers with units, such as 20s, 1m30s or 500ms")]
pub struct DurationError {
    found: String,
}

impl std::str::FromStr for SimDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let error = || DurationError {
            found: text.to_owned(),
        };
        let mut rest = text;
        let mut total = Duration::ZERO;
        if rest.is_empty() {
            return Err(error());
        }
        while !rest.is_empty() {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or_else(error)?;
            let number: f64 = rest[..digits].parse().map_err(|_| error())?;
            rest = &rest[digits..];
            let unit_end = rest
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(rest.len());
            let seconds = match &rest[..unit_end] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return Err(error()),
            };
            rest = &rest[unit_end..];
            let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| error())?;
            total = total.checked_add(part).ok_or_else(error)?;
        }
        Ok(Self(total))
    }
}

impl std::fmt::Display for SimDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if seconds == 0 && nanos > 0 {
            return match nanos {
                n if n % 1_000_000 == 0 => write!(f, "{}ms", n / 1_000_000),
                n if n % 1_000 == 0 => write!(f, "{}us", n / 1_000),
                n => write!(f, "{n}ns"),
            };
        }
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        if nanos == 0 {
            write!(f, "{seconds}s")
        } else {
            let fraction = format!("{nanos:09}");
            write!(f, "{seconds}.{}s", fraction.trim_end_matches('0'))
        }
    }
}

impl Serialize for SimDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SimDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for SimDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(h|m|s|ms|us|µs|ns))+$"})
    }
}

/// What a simulated scale group was observed to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SimMachinePoolStatus {
    /// Whether the group is there, as contract v1beta1 tells it.
    #[serde(default)]
    pub ready: bool,
    /// Whether the group is there, as contract v1beta2 tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<InfrastructureInitialization>,
    /// How many instances there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Kind of the objects for single instances; absent when the group only takes a size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_machine_kind: Option<String>,
    /// Capacity of a Node, for scaling from zero.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Architecture and operating system of a Node, for scaling from zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_info: Option<SimNodeInfo>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Architecture and operating system of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct SimNodeInfo {
    /// Such as amd64.
    pub architecture: String,
    /// Such as linux.
    pub operating_system: String,
}

/// One instance of a simulated scale group.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "SimMachine",
    namespaced,
    status = "SimMachineStatus",
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    doc = "An instance of a scale group in the simulated cloud."
)]
#[serde(rename_all = "camelCase")]
pub struct SimMachineSpec {
    /// Identity of the instance: `sim:///ZONE/i-0123456789abcdef0`.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub provider_id: Option<String>,
}

/// What an instance was observed to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SimMachineStatus {
    /// Whether the instance is there, as contract v1beta1 tells it.
    #[serde(default)]
    pub ready: bool,
    /// Whether the instance is there, as contract v1beta2 tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<InfrastructureInitialization>,
    /// The zone it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Vec<MachineAddress>,
    /// Whether the cloud may take it back at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// What the cloud says of it: Pending, Running, Terminating.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_state: Option<String>,
    /// Whether it was launched from the group's current template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_date: Option<bool>,
    /// When the cloud takes it back, once that was announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_notice: Option<Time>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_compared_by_what_they_mean() {
        let template =
            |value: serde_json::Value| -> SimTemplate { serde_json::from_value(value).unwrap() };
        let taint = |key: &str| serde_json::json!({"key": key, "effect": "NoSchedule"});
        let written = template(serde_json::json!({
            "bootDuration": "20s", "terminationDuration": "5000ms",
            "capacity": {"cpu": "4000m", "memory": "16384Mi", "pods": 110},
            "taints": [taint("a"), taint("b")],
        }));
        let short = template(serde_json::json!({"taints": [taint("b"), taint("a")]}));
        assert!(written.means(&short));
        for other in [
            serde_json::json!({"taints": [taint("a"), taint("b")], "capacity": {"memory": "16G"}}),
            serde_json::json!({"taints": [taint("a"), taint("b")], "bootDuration": "21s"}),
            serde_json::json!({"taints": [taint("a")]}),
            serde_json::json!({"taints": [taint("a"), taint("b")], "nodeLabels": {"x": "y"}}),
        ] {
            assert!(!written.means(&template(other.clone())), "{other}");
        }
    }

    #[test]
    fn a_capacity_may_be_written_as_a_number_and_is_told_as_text() {
        let template: SimTemplate =
            serde_json::from_value(serde_json::json!({"capacity": {"cpu": 8, "memory": "32Gi"}}))
                .unwrap();
        let told = template.node_capacity();
        let told: Vec<(&str, &str)> = told.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(told, [("cpu", "8"), ("memory", "32Gi"), ("pods", "110")]);
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let cases = [
            ("20s", 20_000, "20s"),
            ("1m30s", 90_000, "1m30s"),
            ("500ms", 500, "500ms"),
            ("1.5h", 5_400_000, "1h30m0s"),
            ("0s", 0, "0s"),
            ("2h0m0.25s", 7_200_250, "2h0m0.25s"),
        ];
        for (text, millis, written) in cases {
            let read: SimDuration = text.parse().unwrap();
            assert_eq!(read.0, Duration::from_millis(millis), "{text}");
            assert_eq!(read.to_string(), written);
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_what_is_allowed() {
        for text in [
            "",
            "20",
            "s",
            "20 s",
            "-5s",
            "20x",
            "1e400h",
            "99999999999999999999h",
        ] {
            let error = text.parse::<SimDuration>().unwrap_err().to_string();
            assert!(error.contains("20s"), "{error}");
        }
    }
}

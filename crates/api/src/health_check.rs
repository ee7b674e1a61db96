//! MachineHealthCheck: when a Machine counts as unhealthy, and when something is done about it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::DeprecatedCondition;

/// What a MachineHealthCheck asks for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineHealthCheck",
    namespaced,
    status = "MachineHealthCheckStatus",
    shortname = "mhc",
    shortname = "mhcs",
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    doc = "When Machines count as unhealthy, and when they are repaired."
)]
#[serde(rename_all = "camelCase")]
pub struct MachineHealthCheckSpec {
    /// The Cluster whose Machines are checked; never changes.
    #[schemars(length(min = 1, max = 63))]
    pub cluster_name: String,
    /// Which Machines are checked.
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub selector: LabelSelector,
    /// What is looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<HealthChecks>,
    /// What is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remediation: Option<Remediation>,
}

/// What is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct HealthChecks {
    /// Seconds within which a Machine must have its Node; absent means 600, and 0 that it is not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_startup_timeout_seconds: Option<i32>,
    /// Node conditions that are unhealthy when they last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub unhealthy_node_conditions: Vec<UnhealthyNodeCondition>,
    /// Machine conditions that are unhealthy when they last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub unhealthy_machine_conditions: Vec<UnhealthyMachineCondition>,
}

/// A Node condition that is unhealthy when it lasts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct UnhealthyNodeCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    #[schemars(length(min = 1))]
    pub type_: String,
    /// The status that is unhealthy.
    #[schemars(length(min = 1))]
    pub status: String,
    /// For how many seconds it must last.
    #[schemars(range(min = 0))]
    pub timeout_seconds: i32,
}

/// A Machine condition that is unhealthy when it lasts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct UnhealthyMachineCondition {
    /// Type of the condition; not one that the check itself decides.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316), regex(pattern = crate::schema::CONDITION_TYPE), extend("x-kubernetes-validations" = [{
        "rule": "!['ExternallyRemediated', 'OwnerRemediated', 'HealthCheckSucceeded', 'Available', 'Ready'].exists(own, own == self)",
        "message": "conditions that health checks themselves decide cannot be checked: Ready, Available, HealthCheckSucceeded, OwnerRemediated, ExternallyRemediated"
    }]))]
    pub type_: String,
    /// The status that is unhealthy.
    pub status: ConditionStatus,
    /// For how many seconds it must last.
    #[schemars(range(min = 0))]
    pub timeout_seconds: i32,
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Cannot tell.
    #[default]
    Unknown,
}

/// What is done about unhealthy Machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct Remediation {
    /// When it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_if: Option<RemediationTrigger>,
    /// A template of requests to a remediator outside, in place of the Machine's owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_ref: Option<RemediationTemplateReference>,
}

/// When something is done about unhealthy Machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct RemediationTrigger {
    /// When at most so many are unhealthy; a number, or a percentage of the targets rounded down. Absent means 100%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "int_or_string")]
    pub unhealthy_less_than_or_equal_to: Option<IntOrString>,
    /// When the number of unhealthy ones is in this range, such as `[3-5]`; wins over the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^\[[0-9]+-[0-9]+\]$"))]
    pub unhealthy_in_range: Option<String>,
}

pub(crate) fn int_or_string(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true
    })
}

/// A template of requests to a remediator outside; its version is taken as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RemediationTemplateReference {
    /// Kind.
    #[schemars(length(min = 1, max = 63), regex(pattern = crate::schema::KIND))]
    pub kind: String,
    /// Name, in the namespace of the check.
    #[schemars(length(min = 1, max = 253), regex(pattern = crate::schema::SUBDOMAIN))]
    pub name: String,
    /// Group and version.
    #[schemars(
        length(min = 1, max = 317),
        regex(
            pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[a-z]([-a-z0-9]*[a-z0-9])?$"
        )
    )]
    pub api_version: String,
}

/// What a MachineHealthCheck observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineHealthCheckStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// How many Machines are checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub expected_machines: Option<i32>,
    /// How many of them are healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub current_healthy: Option<i32>,
    /// How many more may be repaired before the limit stops it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub remediations_allowed: Option<i32>,
    /// The generation of the last pass without error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
    /// Names of the Machines that are checked, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10000), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub targets: Vec<String>,
    /// What older API versions reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<DeprecatedHealthCheckStatus>,
}

/// What older API versions reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DeprecatedHealthCheckStatus {
    /// As of v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<HealthCheckStatusV1Beta1>,
}

/// Status fields that v1beta1 had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct HealthCheckStatusV1Beta1 {
    /// Conditions of the old form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<DeprecatedCondition>,
}

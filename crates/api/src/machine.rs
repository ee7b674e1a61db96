//! Machine: one instance of a pool, or any other machine of a cluster.

use k8s_openapi::api::core::v1::NodeSystemInfo;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::{ConditionGate, ContractReference, DeprecatedCondition, MachineAddress};

/// What a Machine is wanted to be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Machine",
    namespaced,
    status = "MachineStatus",
    shortname = "ma",
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    doc = "A machine that is, or is to be, a Node of a cluster."
)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct MachineSpec {
    /// The Cluster it belongs to; never changes.
    #[schemars(length(min = 1, max = 63))]
    pub cluster_name: String,
    /// Where its bootstrap data comes from.
    pub bootstrap: Bootstrap,
    /// The provider's object for it.
    pub infrastructure_ref: ContractReference,
    /// Kubernetes version, with a leading `v`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub version: Option<String>,
    /// The cloud's identity of the instance, equal to the Node's `spec.providerID`.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub provider_id: Option<String>,
    /// The failure domain it is wanted in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub failure_domain: Option<String>,
    /// Seconds for which it must be ready to be available.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_ready_seconds: Option<i32>,
    /// Further conditions that must be good for it to be Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["conditionType"]))]
    pub readiness_gates: Vec<ConditionGate>,
    /// Limits of the steps of its deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<MachineDeletionSpec>,
    /// Taints that its Node gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"]))]
    pub taints: Vec<MachineTaint>,
}

/// Where bootstrap data comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Bootstrap {
    /// An object that makes the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_ref: Option<ContractReference>,
    /// The Secret that has the data under `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 0, max = 253))]
    pub data_secret_name: Option<String>,
}

/// Limits of the steps of a deletion, in seconds. For the first two, absent and 0 mean no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct MachineDeletionSpec {
    /// For the drain of the Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_drain_timeout_seconds: Option<i32>,
    /// For volumes to be detached from the Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_volume_detach_timeout_seconds: Option<i32>,
    /// For the deletion of the Node object; absent means 10, and 0 for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub node_deletion_timeout_seconds: Option<i32>,
}

/// A taint that a Node gets from its Machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct MachineTaint {
    /// Its key.
    #[schemars(length(min = 1, max = 317), regex(pattern = crate::schema::TAINT_KEY))]
    pub key: String,
    /// Its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = crate::schema::LABEL_VALUE))]
    pub value: Option<String>,
    /// What it does to Pods that do not tolerate it.
    pub effect: TaintEffect,
    /// When it is written.
    pub propagation: TaintPropagation,
}

/// What a taint does to Pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum TaintEffect {
    /// They are not scheduled to the Node.
    NoSchedule,
    /// They are rather scheduled elsewhere.
    PreferNoSchedule,
    /// They are not scheduled to the Node, and leave it.
    NoExecute,
}

impl TaintEffect {
    /// As written in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// When a taint is written to the Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum TaintPropagation {
    /// It is kept on the Node as long as the Machine has it.
    Always,
    /// Once, when the Node is first seen.
    OnInitialization,
}

/// What a Machine was observed to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachineStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Steps of the beginning that were reached; they never go back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<MachineInitialization>,
    /// Its Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<MachineNodeReference>,
    /// What the Node says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "node_info")]
    pub node_info: Option<NodeSystemInfo>,
    /// When the phase last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// The failure domain it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub failure_domain: Option<String>,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Vec<MachineAddress>,
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<MachinePhase>,
    /// When the certificates of a control plane machine end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates_expiry_date: Option<Time>,
    /// The generation of the last pass without error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
    /// When the steps of its deletion began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<MachineDeletionStatus>,
    /// What older API versions reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<DeprecatedMachineStatus>,
}

fn node_info(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let names = [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ];
    let mut properties: serde_json::Map<String, serde_json::Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), serde_json::json!({"type": "string"})))
        .collect();
    properties.insert(
        "swap".into(),
        serde_json::json!({"type": "object", "properties": {"capacity": {"type": "integer", "format": "int64"}}}),
    );
    schemars::json_schema!({"type": "object", "required": names, "properties": properties})
}

/// Steps of a machine's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct MachineInitialization {
    /// The provider has made the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// The bootstrap data was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_data_secret_created: Option<bool>,
}

/// The Node of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct MachineNodeReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = crate::schema::SUBDOMAIN))]
    pub name: String,
}

/// Where a machine stands.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[schemars(inline)]
pub enum MachinePhase {
    /// Nothing was done yet.
    Pending,
    /// The instance is being made.
    Provisioning,
    /// The instance is there, its Node not yet.
    Provisioned,
    /// It is a Node.
    Running,
    /// It is being changed in place.
    Updating,
    /// It is being deleted.
    Deleting,
    /// It is gone.
    Deleted,
    /// It failed for good.
    Failed,
    /// Not one of these.
    #[default]
    #[serde(other)]
    Unknown,
}

/// When the steps of a machine's deletion began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct MachineDeletionStatus {
    /// The drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_start_time: Option<Time>,
    /// The wait for volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_node_volume_detach_start_time: Option<Time>,
    /// The wait for pre-drain hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_pre_drain_hook_start_time: Option<Time>,
    /// The wait for pre-terminate hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_pre_terminate_hook_start_time: Option<Time>,
}

/// What older API versions reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DeprecatedMachineStatus {
    /// As of v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<MachineStatusV1Beta1>,
}

/// Status fields that v1beta1 had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct MachineStatusV1Beta1 {
    /// Conditions of the old form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<DeprecatedCondition>,
    /// Why it failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// Why it failed for good, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10240))]
    pub failure_message: Option<String>,
}

impl Machine {
    /// Whether its deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Name of its Node, once known.
    pub fn node_name(&self) -> Option<&str> {
        let node = self.status.as_ref()?.node_ref.as_ref()?;
        Some(&node.name)
    }
}

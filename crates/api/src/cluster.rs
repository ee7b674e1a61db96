//! Cluster: what pools belong to.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::{ConditionGate, ContractReference, DeprecatedCondition, VersionCount};

/// What a Cluster is wanted to be. `topology` (ClusterClass) is not Muster's and is left out.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Cluster",
    namespaced,
    status = "ClusterStatus",
    shortname = "cl",
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    doc = "A Kubernetes cluster that Cluster API manages."
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterSpec {
    /// Whether controllers leave the cluster and all that belongs to it alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Address ranges and names inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_network: Option<ClusterNetwork>,
    /// Where the cluster's API is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ApiEndpoint>,
    /// The control plane's object, where the control plane is managed by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ContractReference>,
    /// The provider's object for the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ContractReference>,
    /// Further conditions that must be good for the cluster to be Available.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["conditionType"]))]
    pub availability_gates: Vec<ConditionGate>,
}

/// Address ranges and names inside a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct ClusterNetwork {
    /// Port that the API server binds to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub api_server_port: Option<i32>,
    /// Ranges of Services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<NetworkRanges>,
    /// Ranges of Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<NetworkRanges>,
    /// DNS domain of Services.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_domain: Option<String>,
}

/// Address ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct NetworkRanges {
    /// CIDR blocks.
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 43)), extend("x-kubernetes-list-type" = "atomic"))]
    pub cidr_blocks: Vec<String>,
}

/// Host and port of an API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct ApiEndpoint {
    /// Host name or address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 512))]
    pub host: String,
    /// Port.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

fn is_zero(port: &i32) -> bool {
    *port == 0
}

impl ApiEndpoint {
    /// Whether host and port are both known.
    pub fn is_complete(&self) -> bool {
        !self.host.is_empty() && self.port != 0
    }
}

/// What a Cluster was observed to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ClusterStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Steps of the beginning that were reached; they never go back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<ClusterInitialization>,
    /// Counters of control plane machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ReplicaCounts>,
    /// Counters of worker machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<ReplicaCounts>,
    /// The places that machines can be spread over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<FailureDomain>,
    /// Where the cluster stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClusterPhase>,
    /// The generation of the last pass without error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
    /// What older API versions reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<DeprecatedClusterStatus>,
}

/// Steps of a cluster's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct ClusterInitialization {
    /// The provider has made what the cluster needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// The cluster's API accepts requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

/// Counters of machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ReplicaCounts {
    /// How many are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// How many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many are up to date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// How many are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// How many are available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// How many run which version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub versions: Vec<VersionCount>,
    /// The versions that an upgrade under way goes through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub upgrade_plan: Vec<UpgradeStep>,
}

/// One version of an upgrade under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct UpgradeStep {
    /// The version.
    #[schemars(length(min = 1, max = 256))]
    pub version: String,
}

/// A place that machines can be spread over, such as a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct FailureDomain {
    /// Its name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Whether control plane machines may be placed there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
    /// What the provider says of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// Where a cluster stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ClusterPhase {
    /// Nothing was done yet.
    Pending,
    /// The infrastructure is being made.
    Provisioning,
    /// The infrastructure is there and the API has an endpoint.
    Provisioned,
    /// It is being deleted.
    Deleting,
    /// It failed for good.
    Failed,
    /// Not one of these.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What older API versions reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DeprecatedClusterStatus {
    /// As of v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<ClusterStatusV1Beta1>,
}

/// Status fields that v1beta1 had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ClusterStatusV1Beta1 {
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

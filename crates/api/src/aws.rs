//! Kinds of the provider for AWS: ASGCluster, ASGMachinePool, ASGMachine.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster::{ApiEndpoint, FailureDomain};
use crate::reference::MachineAddress;
use crate::sim::{InfrastructureInitialization, SimNodeInfo, quantities};

/// Where the Auto Scaling groups of a cluster are, and how AWS is reached.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ASGCluster",
    namespaced,
    status = "ASGClusterStatus",
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    doc = "A cluster whose machine pools are Auto Scaling groups of one AWS account and region."
)]
#[serde(rename_all = "camelCase")]
pub struct ASGClusterSpec {
    /// The region, such as `eu-west-1`.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9-]+$"))]
    pub region: String,
    /// Where AWS's APIs are reached instead of at their public names: a VPC endpoint, or a stand-in for tests.
    #[serde(rename = "endpointURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^https?://"))]
    pub endpoint_url: Option<String>,
    /// Name of a Secret of the same namespace with the keys `accessKeyID`, `secretAccessKey` and, where there is one,
    /// `sessionToken`. Without it credentials are found as AWS's SDKs find them: environment, profile, web identity,
    /// container, instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub credentials_secret_name: Option<String>,
    /// Where the control plane is reached, EKS or any other; it is the user's, as is the Secret with the kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ApiEndpoint>,
    /// Zones that pools may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub failure_domains: Vec<String>,
}

/// What a cluster was observed to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ASGClusterStatus {
    /// Whether AWS is reached, as contract v1beta1 tells it.
    #[serde(default)]
    pub ready: bool,
    /// Whether AWS was reached, as contract v1beta2 tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<InfrastructureInitialization>,
    /// Zones that pools may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<FailureDomain>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// What an Auto Scaling group is wanted to be: one that is there already, or one that Muster makes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ASGMachinePool",
    namespaced,
    status = "ASGMachinePoolStatus",
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    doc = "An Auto Scaling group."
)]
#[x_kube(validation = Rule::new("has(self.adopt) != has(self.launchTemplate)").message("name either adopt, for a group that is there, or launchTemplate, for one that Muster makes"))]
#[serde(rename_all = "camelCase")]
pub struct ASGMachinePoolSpec {
    /// A group that is there already. It is taken as it is; when the pool goes, group and instances stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adopt: Option<Adopt>,
    /// Name of the group that Muster makes; default `NAMESPACE-POOL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub auto_scaling_group_name: Option<String>,
    /// What instances of a group that Muster makes are launched from; a change makes running ones out of date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_template: Option<LaunchTemplate>,
    /// Subnets to launch in, by ID.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(length(min = 1, max = 64)), extend("x-kubernetes-list-type" = "set"))]
    pub subnets: Vec<String>,
    /// Zones to launch in, where no subnets are named; default the MachinePool's failure domains, then the cluster's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub zones: Vec<String>,
    /// Several instance types, on demand or spot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mixed_instances: Option<MixedInstances>,
    /// The group's smallest size; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10000))]
    pub min_size: Option<u32>,
    /// The group's largest size; by default it is raised as the pool needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10000))]
    pub max_size: Option<u32>,
    /// Tags of the group and its instances.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// By which rules the group chooses when something else than Muster scales it in, such as `OldestInstance`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), inner(length(min = 1, max = 64)), extend("x-kubernetes-list-type" = "atomic"))]
    pub termination_policies: Vec<String>,
    /// Seconds between scaling activities of simple policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86400))]
    pub default_cooldown_seconds: Option<u32>,
    /// Processes of the group that are suspended, such as `AZRebalance`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), inner(length(min = 1, max = 64)), extend("x-kubernetes-list-type" = "set"))]
    pub suspended_processes: Vec<String>,
    /// Whether the group launches a replacement when a spot instance is at risk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_rebalance: Option<bool>,
    /// Lets instances that AWS ends wait until they are drained. A group that Muster makes has it unless `enabled` is false;
    /// an adopted one only where it is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_hook: Option<TerminationHook>,
    /// Capacity of a Node, for scaling from zero.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Identity of the group; written by the provider.
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

/// A group that is there already.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Adopt {
    /// Its name.
    #[schemars(length(min = 1, max = 255))]
    pub auto_scaling_group_name: String,
}

/// What instances are launched from: a template that is there, by `id`, or one that Muster makes of the other fields and
/// of the pool's bootstrap data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct LaunchTemplate {
    /// ID of a launch template that is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub id: Option<String>,
    /// Its version, a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16), regex(pattern = r"^[0-9]+$"))]
    pub version: Option<String>,
    /// The machine image.
    #[serde(rename = "amiID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub ami_id: Option<String>,
    /// Such as `m7i.large`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub instance_type: Option<String>,
    /// Security groups, by ID.
    #[serde(
        rename = "securityGroupIDs",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 20), inner(length(min = 1, max = 64)), extend("x-kubernetes-list-type" = "set"))]
    pub security_group_ids: Vec<String>,
    /// Name of the instance profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub iam_instance_profile: Option<String>,
    /// Name of the key pair for SSH.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub key_name: Option<String>,
    /// Volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 40), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["deviceName"]))]
    pub block_devices: Vec<BlockDevice>,
}

/// A volume of each instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct BlockDevice {
    /// Such as `/dev/xvda`.
    #[schemars(length(min = 1, max = 64))]
    pub device_name: String,
    /// Its size in GiB.
    #[serde(rename = "sizeGiB")]
    #[schemars(range(min = 1, max = 65536))]
    pub size_gib: u32,
    /// Such as `gp3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 16))]
    pub volume_type: Option<String>,
    /// Whether it is encrypted; default as the account has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
}

/// Several instance types, on demand or spot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct MixedInstances {
    /// Instance types, the preferred first.
    #[serde(default)]
    #[schemars(length(max = 40), inner(length(min = 1, max = 64)), extend("x-kubernetes-list-type" = "atomic"))]
    pub instance_types: Vec<String>,
    /// How many instances are on demand before any is spot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_demand_base_capacity: Option<u32>,
    /// How many percent of the others are on demand.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub on_demand_percentage_above_base_capacity: Option<u32>,
    /// Such as `price-capacity-optimized`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub spot_allocation_strategy: Option<String>,
}

/// How instances that AWS ends wait for their drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct TerminationHook {
    /// Whether Muster installs a termination lifecycle hook in the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Seconds after which AWS goes on when it hears nothing; default 300. Heartbeats prolong it while a machine drains.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 30, max = 7200))]
    pub heartbeat_timeout_seconds: Option<u32>,
}

/// What a group was observed to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ASGMachinePoolStatus {
    /// Whether the group is there, as contract v1beta1 tells it.
    #[serde(default)]
    pub ready: bool,
    /// Whether the group is there, as contract v1beta2 tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<InfrastructureInitialization>,
    /// How many instances there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Kind of the objects for single instances.
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

/// One instance of an Auto Scaling group.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ASGMachine",
    namespaced,
    status = "ASGMachineStatus",
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    doc = "An instance of an Auto Scaling group."
)]
#[serde(rename_all = "camelCase")]
pub struct ASGMachineSpec {
    /// Identity of the instance: `aws:///ZONE/i-0123456789abcdef0`.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub provider_id: Option<String>,
}

/// What an instance was observed to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ASGMachineStatus {
    /// Whether the instance is there, as contract v1beta1 tells it.
    #[serde(default)]
    pub ready: bool,
    /// Whether the instance is there, as contract v1beta2 tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<InfrastructureInitialization>,
    /// AWS's name of it.
    #[serde(rename = "instanceID", skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// Such as `m7i.large`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// The zone it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// What the group says of it, in AWS's words, such as `InService` or `Terminating:Wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle_state: Option<String>,
    /// Version of the launch template that it was launched from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_template_version: Option<String>,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: Vec<MachineAddress>,
    /// Whether it is a spot instance, which AWS may take back at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// Pending, Running, Leaving or Terminating.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_state: Option<String>,
    /// Whether it was launched from the group's current template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_date: Option<bool>,
    /// When AWS takes it back, once that was announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_notice: Option<Time>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

//! MachinePool: machines of one sort whose number a scale group of the cloud keeps.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::MachineSpec;
use crate::names;
use crate::reference::{DeprecatedCondition, ObjectMeta, VersionCount};

/// What a MachinePool is wanted to be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachinePool",
    namespaced,
    status = "MachinePoolStatus",
    shortname = "mp",
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas"
    ),
    doc = "Machines of one sort whose number a scale group of the cloud keeps."
)]
#[serde(rename_all = "camelCase")]
pub struct MachinePoolSpec {
    /// The Cluster it belongs to; never changes.
    #[schemars(length(min = 1, max = 63))]
    pub cluster_name: String,
    /// How many machines are wanted; when not given, the autoscaler's smallest size or what there is within its bounds, else 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// What its machines are made from.
    pub template: MachineTemplateSpec,
    /// The instances that there are, as the provider reports them; written by the controller.
    #[serde(
        rename = "providerIDList",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 10000), inner(length(min = 1, max = 512)), extend("x-kubernetes-list-type" = "atomic"))]
    pub provider_id_list: Vec<String>,
    /// The failure domains that its machines are spread over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub failure_domains: Vec<String>,
}

/// What machines are made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct MachineTemplateSpec {
    /// Labels and annotations of the Machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    /// The Machines' spec.
    pub spec: MachineSpec,
}

/// What a MachinePool was observed to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct MachinePoolStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Steps of the beginning that were reached; they never go back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialization: Option<MachinePoolInitialization>,
    /// The Nodes of its machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::node_references")]
    pub node_refs: Vec<ObjectReference>,
    /// How many machines there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// How many are available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// How many are up to date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_date_replicas: Option<i32>,
    /// How many run which version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"]))]
    pub versions: Vec<VersionCount>,
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<MachinePoolPhase>,
    /// The generation of the last pass without error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
    /// What older API versions reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<DeprecatedMachinePoolStatus>,
}

/// Steps of a pool's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct MachinePoolInitialization {
    /// The provider has made the scale group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infrastructure_provisioned: Option<bool>,
    /// The bootstrap data was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_data_secret_created: Option<bool>,
}

/// Where a pool stands.
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
pub enum MachinePoolPhase {
    /// Nothing was done yet.
    Pending,
    /// The scale group is being made.
    Provisioning,
    /// The scale group is there, its Nodes not all yet.
    Provisioned,
    /// As many are ready as wanted.
    Running,
    /// More are wanted than are ready.
    ScalingUp,
    /// Fewer are wanted than there are.
    ScalingDown,
    /// The size is owned by something else and is changing.
    Scaling,
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
pub struct DeprecatedMachinePoolStatus {
    /// As of v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<MachinePoolStatusV1Beta1>,
}

/// Status fields that v1beta1 had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct MachinePoolStatusV1Beta1 {
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
    /// How many Nodes are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// How many Nodes are available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// How many are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable_replicas: Option<i32>,
}

impl MachinePool {
    /// How many machines are wanted; negative input counts as none.
    pub fn desired_replicas(&self) -> u32 {
        let default = || self.default_replicas();
        u32::try_from(self.spec.replicas.unwrap_or_else(default)).unwrap_or(0)
    }

    /// How many machines are wanted where `spec.replicas` does not say: what there is, held between the bounds that Cluster
    /// Autoscaler has for the pool, or the lower of them for a pool that has none yet. Without both bounds it is 1.
    /// Source: Cluster API's defaulting of MachinePools.
    pub fn default_replicas(&self) -> i32 {
        let bound = |key: crate::keys::Annotation<u32>| {
            let read = key.read(self).ok().flatten();
            read.and_then(|bound| i32::try_from(bound).ok())
        };
        let bounds = bound(names::AUTOSCALER_MIN_SIZE)
            .zip(bound(names::AUTOSCALER_MAX_SIZE))
            .filter(|(min, max)| min <= max);
        let have = self.status.as_ref().and_then(|status| status.replicas);
        match (bounds, have) {
            (Some((min, max)), Some(have)) => have.clamp(min, max),
            (Some((min, _)), None) => min,
            (None, _) => 1,
        }
    }

    /// What its machines are bootstrapped with: the object, where there is one, else the Secret. What the Secret holds is
    /// no part of it, since it may be renewed at any time.
    pub fn bootstrap_reference(&self) -> Option<String> {
        let bootstrap = &self.spec.template.spec.bootstrap;
        let secret = bootstrap.data_secret_name.as_deref();
        match &bootstrap.config_ref {
            Some(config) => Some(format!("{}/{}", config.kind, config.name)),
            None => secret
                .filter(|name| !name.is_empty())
                .map(|name| format!("Secret/{name}")),
        }
    }

    /// Whether its deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;

    use super::*;

    #[test]
    fn absent_replicas_follow_the_autoscalers_bounds() {
        let mut pool = MachinePool::new("workers", MachinePoolSpec::default());
        assert_eq!(pool.desired_replicas(), 1);
        let bounds = [
            (names::AUTOSCALER_MIN_SIZE, "3"),
            (names::AUTOSCALER_MAX_SIZE, "5"),
        ];
        for (key, value) in bounds {
            pool.annotations_mut().insert(key.into(), value.to_owned());
        }
        assert_eq!(pool.desired_replicas(), 3);
        for (have, wanted) in [(0, 3), (4, 4), (9, 5)] {
            pool.status.get_or_insert_default().replicas = Some(have);
            assert_eq!(pool.desired_replicas(), wanted);
        }
        pool.spec.replicas = Some(7);
        assert_eq!(pool.desired_replicas(), 7, "what is given counts");
        pool.spec.replicas = Some(-1);
        assert_eq!(pool.desired_replicas(), 0);
    }
}

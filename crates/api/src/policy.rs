//! MachinePoolPolicy: what Muster adds to a pool: who goes first, what a deletion does to the size, rollouts, budgets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rollout that may neither add machines nor take any away is refused. What is `0%` is 0.
const NOT_BOTH_NONE: &str = "self.type == 'OnDelete' || !(['0', '0%'].exists(n, n == string(self.maxSurge)) && ['0', '0%'].exists(n, n == string(self.maxUnavailable)))";

/// A whole number from 0 on, or a percentage up to 100.
fn number_or_percentage(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true,
        "minimum": 0,
        "pattern": "^(100|[1-9]?[0-9])%$"
    })
}

/// The policy of one pool of the same namespace.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "muster.dev",
    version = "v1alpha1",
    kind = "MachinePoolPolicy",
    plural = "machinepoolpolicies",
    namespaced,
    status = "MachinePoolPolicyStatus",
    shortname = "mpp",
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    doc = "How Muster decides for one MachinePool."
)]
#[serde(rename_all = "camelCase")]
pub struct MachinePoolPolicySpec {
    /// The MachinePool it is for. A pool has one policy; a second is refused by a condition.
    #[schemars(length(min = 1, max = 253), regex(pattern = crate::schema::SUBDOMAIN))]
    pub machine_pool_name: String,
    /// What the deletion of a Machine does to the size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_deletion: Option<MachineDeletionPolicy>,
    /// Which machines go when the size goes down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<ScaleDownPolicy>,
    /// How outdated machines are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutPolicy>,
    /// How many may be down by repair and rollout together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption: Option<DisruptionPolicy>,
}

/// What the deletion of a Machine does to the size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct MachineDeletionPolicy {
    /// Replace by default.
    #[serde(default)]
    #[schemars(extend("default" = "Replace"))]
    pub replacement: Replacement,
}

/// Whether a deleted Machine is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Replacement {
    /// The pool keeps its size and gets a new machine.
    #[default]
    Replace,
    /// The pool's size goes down by one.
    Shrink,
}

/// Which machines go when the size goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ScaleDownPolicy {
    /// Among machines that are equal otherwise.
    #[serde(default)]
    #[schemars(extend("default" = "LeastDisruption"))]
    pub order: ScaleDownOrder,
    /// How much the balance of zones counts.
    #[serde(default)]
    #[schemars(extend("default" = "Preferred"))]
    pub zone_balance: ZoneBalance,
}

/// An order of machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ScaleDownOrder {
    /// Those whose Pods can go now, then with the fewest Pods, then of the lowest priority, then the youngest.
    #[default]
    LeastDisruption,
    /// The youngest first.
    Newest,
    /// The oldest first.
    Oldest,
    /// By chance, the same for the same pool.
    Random,
}

/// How much the balance of zones counts in a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ZoneBalance {
    /// Zones are never left more than one apart while there is a choice.
    Required,
    /// Balance comes before the order.
    #[default]
    Preferred,
    /// Zones do not count.
    Ignored,
}

/// How outdated machines are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    inline,
    extend("x-kubernetes-validations" = [{
        "rule": NOT_BOTH_NONE,
        "message": "maxSurge and maxUnavailable may not both be 0: no machine could ever be replaced"
    }])
)]
pub struct RolloutPolicy {
    /// By Muster, or when somebody deletes them.
    #[serde(rename = "type", default)]
    #[schemars(extend("default" = "OnDelete"))]
    pub type_: RolloutType,
    /// How many machines more than the size there may be; a number, or a percentage rounded up. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_percentage", extend("default" = 1))]
    pub max_surge: Option<IntOrString>,
    /// How many machines fewer than the size may be available; a number, or a percentage rounded down. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_percentage", extend("default" = 0))]
    pub max_unavailable: Option<IntOrString>,
}

/// Who replaces outdated machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum RolloutType {
    /// Muster, within the limits.
    RollingUpdate,
    /// Whoever deletes them.
    #[default]
    OnDelete,
}

/// How many machines may be down by Muster's own will.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DisruptionPolicy {
    /// A number, or a percentage of the size. Default 10%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "number_or_percentage", extend("default" = "10%"))]
    pub max_unavailable: Option<IntOrString>,
}

/// What became of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachinePoolPolicyStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the last pass without error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub observed_generation: Option<i64>,
}

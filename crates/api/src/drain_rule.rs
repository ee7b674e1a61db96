//! MachineDrainRule: how Pods are treated when a Machine's Node is drained.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which Pods of which Machines are drained how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MachineDrainRule",
    namespaced,
    category = "cluster-api",
    derive = "Default",
    derive = "PartialEq",
    doc = "How Pods are treated when a Machine's Node is drained."
)]
#[serde(rename_all = "camelCase")]
pub struct MachineDrainRuleSpec {
    /// What is done.
    pub drain: DrainSpec,
    /// The Machines it is for, any of these; all when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = [{
        "rule": "self.all(entry, self.exists_one(other, other == entry))", "message": "each entry of machines may be given once"
    }]))]
    pub machines: Vec<DrainRuleMachines>,
    /// The Pods it is for, any of these; all when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = [{
        "rule": "self.all(entry, self.exists_one(other, other == entry))", "message": "each entry of pods may be given once"
    }]))]
    pub pods: Vec<DrainRulePods>,
}

/// What is done with Pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DrainSpec {
    /// The treatment.
    pub behavior: DrainBehavior,
    /// When they are evicted, lower first; only with Drain, and 0 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<i32>,
}

/// Treatment of a Pod in a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum DrainBehavior {
    /// It is evicted.
    #[default]
    Drain,
    /// It is left alone.
    Skip,
    /// It is left to complete, and that is waited for.
    WaitCompleted,
}

/// Machines, by their labels and those of their Cluster; both must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct DrainRuleMachines {
    /// Labels of the Machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Labels of its Cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub cluster_selector: Option<LabelSelector>,
}

/// Pods, by their labels and those of their namespace; both must match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct DrainRulePods {
    /// Labels of the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Labels of its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
}

//! Types that several kinds share.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reference to an object of the same namespace; its API version is found through its CRD's contract labels.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ContractReference {
    /// API group of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = crate::schema::SUBDOMAIN))]
    pub api_group: String,
    /// Kind of the object.
    #[schemars(length(min = 1, max = 63), regex(pattern = crate::schema::KIND))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = crate::schema::SUBDOMAIN))]
    pub name: String,
}

/// How a condition's status counts towards a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Polarity {
    /// True is good.
    #[default]
    Positive,
    /// False is good.
    Negative,
}

/// A further condition that must be good for a summary to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ConditionGate {
    /// Type of a condition in the object's status.
    #[schemars(length(min = 1, max = 316), regex(pattern = crate::schema::CONDITION_TYPE))]
    pub condition_type: String,
    /// Which status is good; Positive when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub polarity: Option<Polarity>,
}

/// How many objects run a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct VersionCount {
    /// The Kubernetes version.
    #[schemars(length(min = 1, max = 256))]
    pub version: String,
    /// How many run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub replicas: Option<i32>,
}

/// Labels and annotations given to objects that are made from a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline, extend("minProperties" = 1))]
pub struct ObjectMeta {
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// An address of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct MachineAddress {
    /// Hostname, ExternalIP, InternalIP, ExternalDNS or InternalDNS.
    #[serde(rename = "type")]
    pub type_: AddressType,
    /// The address.
    #[schemars(length(min = 1, max = 256))]
    pub address: String,
}

/// Sort of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum AddressType {
    /// Host name.
    Hostname,
    /// IP address reachable from outside.
    ExternalIP,
    /// IP address within the cloud's network.
    InternalIP,
    /// DNS name resolvable from outside.
    ExternalDNS,
    /// DNS name within the cloud's network.
    InternalDNS,
}

/// A condition of Cluster API before v1beta2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct DeprecatedCondition {
    /// Type.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 256))]
    pub type_: String,
    /// True, False or Unknown.
    pub status: String,
    /// How bad False is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub severity: Option<String>,
    /// When the status last changed.
    #[schemars(required)]
    pub last_transition_time: Option<Time>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub reason: Option<String>,
    /// Why, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 10240))]
    pub message: Option<String>,
}

/// Objects that report conditions.
pub trait Conditioned {
    /// The conditions; empty when there is no status yet.
    fn conditions(&self) -> &[Condition];

    /// The condition of that type.
    fn condition_of(&self, type_: &str) -> Option<&Condition> {
        self.conditions().iter().find(|c| c.type_ == type_)
    }

    /// Whether the condition of that type is True.
    fn is_true(&self, type_: &str) -> bool {
        self.condition_of(type_).is_some_and(|c| c.status == "True")
    }
}

macro_rules! conditioned {
    ($($kind:ty),+) => {$(
        impl Conditioned for $kind {
            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |status| &status.conditions)
            }
        }
    )+};
}

conditioned!(
    crate::Cluster,
    crate::Machine,
    crate::MachinePool,
    crate::MachineHealthCheck,
    crate::MachinePoolPolicy,
    crate::SimCluster,
    crate::SimMachine,
    crate::SimMachinePool
);

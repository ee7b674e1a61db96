//! The cloud's own API: scale groups and instances.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Api, Client, CustomResource, CustomResourceExt, ResourceExt};
use muster_api::sim::SimTemplate;
use muster_informers::Key;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A scale group, named as the SimMachinePool that it belongs to.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sim.muster.dev",
    version = "v1alpha1",
    kind = "CloudGroup",
    plural = "groups",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    doc = "A scale group of the simulated cloud."
)]
#[serde(rename_all = "camelCase")]
pub struct CloudGroupSpec {
    /// The logical cluster that instances join.
    pub cluster: String,
    /// How many instances are kept.
    pub size: u32,
    /// Terminations that the size has followed already, by instance.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub counted: BTreeSet<String>,
    /// Zones to spread over.
    #[serde(default)]
    pub zones: Vec<String>,
    /// How many instances a zone has room for; no entry is no limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, u32>,
    /// What new instances are launched from.
    pub template: Template,
}

/// What an instance is launched from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Kubernetes version of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it boots with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<String>,
    /// The SimMachinePool's template.
    pub machine: SimTemplate,
}

impl Template {
    /// Whether instances launched from the one are what the other asks for.
    pub fn means(&self, other: &Self) -> bool {
        self.version == other.version
            && self.bootstrap == other.bootstrap
            && self.machine.means(&other.machine)
    }
}

/// An instance, named by its ID.
#[expect(
    clippy::duplicated_attributes,
    reason = "columns of the same type are not the same column"
)]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "sim.muster.dev",
    version = "v1alpha1",
    kind = "CloudInstance",
    plural = "instances",
    namespaced,
    status = "CloudInstanceStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "An instance of the simulated cloud.",
    printcolumn(name = "Group", type_ = "string", json_path = ".spec.group"),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.zone"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state")
)]
#[serde(rename_all = "camelCase")]
pub struct CloudInstanceSpec {
    /// Its group.
    pub group: String,
    /// The logical cluster that it joins.
    pub cluster: String,
    /// The zone it is in.
    pub zone: String,
    /// When it was launched.
    pub launched: Option<Time>,
    /// What it was launched from.
    pub template: Template,
    /// That it is to be terminated, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination: Option<Termination>,
    /// When the cloud takes it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruption: Option<Time>,
    /// Its kubelet does not answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// What it is doing never ends: booting, or terminating.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hung: bool,
}

/// A termination that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Termination {
    /// When.
    pub at: Option<Time>,
    /// Whether the group's size goes down with it.
    pub lowers_size: bool,
}

/// Where an instance stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudInstanceStatus {
    /// Pending or Running.
    #[serde(default)]
    pub state: String,
}

impl CloudInstance {
    /// Key of its group.
    pub fn group_key(&self) -> Key {
        Key::new(self.namespace().unwrap_or_default(), &self.spec.group)
    }

    /// The same as its Node's `spec.providerID`.
    pub fn provider_id(&self) -> String {
        format!("sim:///{}/{}", self.spec.zone, self.name_any())
    }

    /// Whether its Node registered.
    pub fn is_running(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.state == "Running")
    }

    /// Whether it is to be terminated.
    pub fn is_terminating(&self) -> bool {
        self.spec.termination.is_some()
    }

    /// Whether its kubelet answers.
    pub fn is_alive(&self) -> bool {
        self.is_running() && !self.is_terminating() && !self.spec.failed
    }
}

/// Defines the cloud's kinds in its API.
///
/// # Errors
/// When the API refuses.
pub async fn install(client: &Client) -> Result<(), kube::Error> {
    define(client, &[CloudGroup::crd(), CloudInstance::crd()]).await
}

/// Applies definitions and waits until they are served.
///
/// # Errors
/// When the API refuses.
pub async fn define(
    client: &Client,
    definitions: &[CustomResourceDefinition],
) -> Result<(), kube::Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        let name = definition.name_any();
        api.patch(
            &name,
            &PatchParams::apply("muster").force(),
            &Patch::Apply(definition),
        )
        .await?;
        let established = conditions::is_crd_established();
        let current = api.get(&name).await?;
        if !established.matches_object(Some(&current))
            && let Err(error) = await_condition(api.clone(), &name, established).await
        {
            tracing::warn!(%error, name, "a definition is not established yet");
        }
    }
    Ok(())
}

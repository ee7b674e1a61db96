//! An infrastructure and a bootstrap provider, and a repairer, that do nothing by themselves: a test plays them.
//!
//! Their kinds are a provider's as Cluster API's contract has it and nothing more, so that what Muster's core does for
//! providers that are not its own can be seen, whatever those do or leave undone.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use muster_provider_sim::cloud::types::define;
use serde_json::{Value, json};

use crate::world::World;

/// API group of the scripted kinds.
pub const GROUP: &str = "scripted.example.com";

/// The contract version that the kinds say they satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// Flags are `status.ready`.
    V1Beta1,
    /// Flags are under `status.initialization`.
    V1Beta2,
}

impl Contract {
    fn label(self) -> &'static str {
        match self {
            Self::V1Beta1 => "cluster.x-k8s.io/v1beta1",
            Self::V1Beta2 => "cluster.x-k8s.io/v1beta2",
        }
    }

    /// The status of an infrastructure object that is provisioned.
    pub fn provisioned(self) -> Value {
        match self {
            Self::V1Beta1 => json!({"ready": true}),
            Self::V1Beta2 => json!({"initialization": {"provisioned": true}}),
        }
    }

    /// The status of a bootstrap object whose data is in that Secret.
    pub fn bootstrapped(self, secret: &str) -> Value {
        match self {
            Self::V1Beta1 => json!({"ready": true, "dataSecretName": secret}),
            Self::V1Beta2 => {
                json!({"initialization": {"dataSecretCreated": true}, "dataSecretName": secret})
            }
        }
    }
}

/// The providers, of one world.
pub struct Scripted {
    client: Client,
    contract: Contract,
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind))
}

fn definition(kind: &str, contract: Contract) -> anyhow::Result<CustomResourceDefinition> {
    let plural = format!("{}s", kind.to_lowercase());
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    Ok(serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}"), "labels": {contract.label(): "v1"}},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    }))?)
}

impl Scripted {
    /// Defines the kinds in a world.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn define(world: &World, contract: Contract) -> anyhow::Result<Self> {
        let kinds = [
            "ScriptedMachinePool",
            "ScriptedMachine",
            "ScriptedConfig",
            "ScriptedRemediation",
            "ScriptedRemediationTemplate",
        ];
        let definitions = kinds.map(|kind| definition(kind, contract));
        let definitions: Vec<_> = definitions.into_iter().collect::<Result<_, _>>()?;
        define(&world.client, &definitions).await?;
        Ok(Self {
            client: world.client.clone(),
            contract,
        })
    }

    /// The objects of one of the kinds.
    pub fn all(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "default", &resource(kind))
    }

    /// A MachinePool on a ScriptedMachinePool of its name, with this in the spec of its template.
    pub fn manifest(name: &str, replicas: u32, template: &Value) -> String {
        let mut spec = json!({
            "clusterName": "quickstart",
            "bootstrap": {"dataSecretName": "workers-bootstrap"},
            "infrastructureRef": {"apiGroup": GROUP, "kind": "ScriptedMachinePool", "name": name},
        });
        for (field, value) in template.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterName": "quickstart", "replicas": replicas, "template": {"spec": spec}},
        })
        .to_string()
    }

    /// Makes the pool's object of a kind.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn create(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let object = DynamicObject::new(name, &resource(kind));
        self.all(kind)
            .create(&PostParams::default(), &object)
            .await?;
        Ok(())
    }

    /// Makes a template of requests to the repairer, whose requests have this spec and label.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn remediation(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let kind = "ScriptedRemediationTemplate";
        let template = json!({"metadata": {"labels": {"made": "from-template"}}, "spec": spec});
        let object =
            DynamicObject::new(name, &resource(kind)).data(json!({"spec": {"template": template}}));
        self.all(kind)
            .create(&PostParams::default(), &object)
            .await?;
        Ok(())
    }

    /// Says something in the status of an object.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn say(&self, kind: &str, name: &str, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        let params = PatchParams::default();
        self.all(kind).patch_status(name, &params, &patch).await?;
        Ok(())
    }

    /// The pool has these instances, and is provisioned.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn has(&self, pool: &str, provider_ids: &[&str]) -> anyhow::Result<()> {
        let kind = "ScriptedMachinePool";
        let spec = Patch::Merge(json!({"spec": {"providerIDList": provider_ids}}));
        let params = PatchParams::default();
        self.all(kind).patch(pool, &params, &spec).await?;
        let mut status = self.contract.provisioned();
        status["replicas"] = provider_ids.len().into();
        status["infrastructureMachineKind"] = "ScriptedMachine".into();
        self.say(kind, pool, status).await
    }

    /// Makes the InfraMachine of an instance, provisioned.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn machine(&self, pool: &str, name: &str, provider_id: &str) -> anyhow::Result<()> {
        let kind = "ScriptedMachine";
        let owner = self.all("ScriptedMachinePool").get(pool).await?;
        let uid = owner.uid().context("a stored object has a uid")?;
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": kind,
            "metadata": {
                "name": name,
                "labels": {"cluster.x-k8s.io/cluster-name": "quickstart", "cluster.x-k8s.io/pool-name": pool},
                "ownerReferences": [{"apiVersion": format!("{GROUP}/v1"), "kind": "ScriptedMachinePool", "name": pool, "uid": uid}],
            },
            "spec": {"providerID": provider_id},
        }))?;
        self.all(kind)
            .create(&PostParams::default(), &object)
            .await?;
        self.say(kind, name, self.contract.provisioned()).await
    }
}

/// A Node of an instance that no simulated kubelet looks after, ready or not.
///
/// # Errors
/// When the API refuses.
pub async fn node(
    workload: &Client,
    name: &str,
    provider_id: &str,
    ready: bool,
) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(workload.clone());
    let node: Node = serde_json::from_value(
        json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}}),
    )?;
    match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        done => drop(done?),
    }
    let condition = |type_: &str, status: bool| {
        let status = if status { "True" } else { "False" };
        json!({"type": type_, "status": status, "reason": "Scripted", "message": "as the test wants it",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let pressures = ["MemoryPressure", "DiskPressure", "PIDPressure"];
    let mut conditions: Vec<Value> = pressures.map(|type_| condition(type_, false)).to_vec();
    conditions.push(condition("Ready", ready));
    let status = json!({"status": {"conditions": conditions}});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

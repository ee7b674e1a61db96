//! The engine, from the requests' side: a cluster in memory, in virtual time.

mod definitions;
mod deletion;
mod evictions;
mod objects;
mod workloads;

use std::sync::Arc;

use jiff::Timestamp;
use muster_clock::Clock;
use serde_json::{Value, json};

use super::{Cluster, DeleteOptions, Deleted, FieldValidation, Options, PatchKind, Written, key};
use crate::failure::Failure;
use crate::registry::Kind;
use crate::storage::{ClusterName, Storage};

/// A furnished cluster and short ways to use it; requests go to the namespace `default`.
pub(crate) struct World(pub Arc<Cluster>);

impl World {
    pub(crate) async fn new() -> Self {
        let clock = Clock::following_tokio(Timestamp::UNIX_EPOCH);
        let cluster = Cluster::open(ClusterName::new("test"), Storage::in_memory(), clock);
        cluster
            .furnish()
            .await
            .expect("a fresh storage takes the first objects");
        Self(cluster)
    }

    pub(crate) fn kind(&self, plural: &str) -> Arc<Kind> {
        let all = self.0.registry.snapshot();
        all.iter()
            .find(|kind| &*kind.plural == plural)
            .unwrap_or_else(|| panic!("{plural} is served"))
            .clone()
    }

    pub(crate) async fn create(&self, plural: &str, body: Value) -> Result<Value, Failure> {
        self.write(plural, body, &options())
            .await
            .map(|written| written.object.to_value())
    }

    pub(crate) async fn write(
        &self,
        plural: &str,
        body: Value,
        options: &Options,
    ) -> Result<Written, Failure> {
        let kind = self.kind(plural);
        let body = complete(&kind, body);
        let namespace = body["metadata"]["namespace"]
            .as_str()
            .unwrap_or("default")
            .to_owned();
        self.0.create(&kind, &namespace, None, body, options).await
    }

    pub(crate) async fn update(
        &self,
        plural: &str,
        sub: Option<&str>,
        body: Value,
    ) -> Result<Value, Failure> {
        let kind = self.kind(plural);
        let name = body["metadata"]["name"].as_str().unwrap_or("").to_owned();
        let body = complete(&kind, body);
        let written = self
            .0
            .update(&kind, "default", &name, sub, body, &options())
            .await?;
        Ok(written.object.to_value())
    }

    pub(crate) async fn merge(
        &self,
        plural: &str,
        name: &str,
        sub: Option<&str>,
        patch: Value,
    ) -> Result<Value, Failure> {
        let kind = self.kind(plural);
        let written = self
            .0
            .patch(
                &kind,
                "default",
                name,
                sub,
                PatchKind::Merge,
                patch,
                &options(),
            )
            .await?;
        Ok(written.object.to_value())
    }

    pub(crate) async fn delete(
        &self,
        plural: &str,
        name: &str,
        options: DeleteOptions,
    ) -> Result<Deleted, Failure> {
        self.0
            .delete(&self.kind(plural), "default", name, &options)
            .await
    }

    pub(crate) async fn evict(&self, name: &str) -> Result<Value, Failure> {
        let body =
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let kind = self.kind("pods");
        self.0
            .sub_create(&kind, "default", name, "eviction", body, &options())
            .await
    }

    pub(crate) async fn bind(&self, name: &str, node: &str) -> Result<Value, Failure> {
        let body = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
        let kind = self.kind("pods");
        self.0
            .sub_create(&kind, "default", name, "binding", body, &options())
            .await
    }

    pub(crate) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let kind = self.kind(plural);
        let found = self
            .0
            .storage
            .get(&self.0.name, &kind.stored_as, &key(&kind, "default", name));
        found.map(|stored| stored.value())
    }
}

pub(crate) fn options() -> Options {
    Options {
        user_agent_manager: "test".to_owned(),
        validation: FieldValidation::Strict,
        ..Options::default()
    }
}

/// A body with its kind, as clients send it.
fn complete(kind: &Kind, mut body: Value) -> Value {
    body["kind"] = json!(&*kind.kind);
    body["apiVersion"] = json!(kind.api_version());
    body
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "web:1"}]},
    })
}

pub(crate) fn widgets() -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.replicas"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "replicas": {"type": "integer", "minimum": 0},
                        "colour": {"type": "string", "default": "red"},
                    }},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                }}},
            }],
        },
    })
}

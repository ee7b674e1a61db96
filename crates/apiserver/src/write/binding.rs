//! The `binding` subresource of Pods: a scheduler's decision.

use serde_json::{Value, json};

use super::update::verdict;
use super::{ATTEMPTS, Cluster, Options, key, meta, too_contended};
use crate::failure::Failure;
use crate::registry::Kind;
use crate::registry::strategy::{child, required, text_at};

impl Cluster {
    /// Serves a creation below an object's path: a pod's `binding` or `eviction`.
    ///
    /// # Errors
    /// As a Kubernetes API server: 400, 404, 409, 422, 429.
    pub async fn sub_create(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        subresource: &str,
        body: Value,
        options: &Options,
    ) -> Result<Value, Failure> {
        if !kind.subresources.others.contains(&subresource) {
            return Err(Failure::no_such_path());
        }
        match subresource {
            "binding" => self.bind(kind, namespace, name, &body, options).await,
            "eviction" => self.evict(kind, namespace, name, &body, options).await,
            _ => Err(Failure::method_not_allowed_here()),
        }
    }

    async fn bind(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        body: &Value,
        options: &Options,
    ) -> Result<Value, Failure> {
        let node = text_at(body, &["target", "name"]);
        if node.is_empty() {
            return Err(Failure::invalid_kind(
                "",
                "Binding",
                name,
                &[required("target.name", "")],
            ));
        }
        let target = text_at(body, &["target", "kind"]);
        if !["", "Node"].contains(&target) {
            let error =
                crate::registry::strategy::unsupported("target.kind", target, &["Node", "<empty>"]);
            return Err(Failure::invalid_kind("", "Binding", name, &[error]));
        }
        let key = key(kind, namespace, name);
        let conflict = |why: String| Failure::conflict_on("", "pods/binding", name, &why);
        for _ in 0..ATTEMPTS {
            let current = self.current(kind, &key)?;
            let uid = meta::uid(body);
            if !uid.is_empty() && uid != &*current.uid {
                return Err(conflict(format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    current.uid
                )));
            }
            let old = current.value();
            if meta::is_deleting(&old) {
                return Err(conflict(format!(
                    "pod {name} is being deleted, cannot be assigned to a host"
                )));
            }
            let bound = text_at(&old, &["spec", "nodeName"]);
            if !bound.is_empty() {
                return Err(conflict(format!(
                    "pod {name} is already assigned to node \"{bound}\""
                )));
            }
            if old["spec"]["schedulingGates"]
                .as_array()
                .is_some_and(|gates| !gates.is_empty())
            {
                return Err(conflict(format!(
                    "pod {name} has non-empty .spec.schedulingGates"
                )));
            }
            let mut new = old.clone();
            new["spec"]["nodeName"] = json!(node);
            for field in ["annotations", "labels"] {
                let given = body["metadata"][field].as_object();
                if let Some(given) = given.filter(|given| !given.is_empty())
                    && let Some(metadata) = child(&mut new, "metadata")
                    && let Some(map) = child(metadata, field)
                {
                    for (key, value) in given {
                        map[key] = value.clone();
                    }
                }
            }
            let now = meta::time(self.clock.now());
            set_condition(
                &mut new,
                json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}),
            );
            let verdict = verdict(kind, new, &old);
            if self
                .carry_out(kind, &key, &current, verdict, options)
                .await?
                .is_some()
            {
                return Ok(json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
                }));
            }
        }
        Err(too_contended(kind, name))
    }
}

/// Sets a condition of an object's status, in the place of the one of its type.
pub(super) fn set_condition(object: &mut Value, condition: Value) {
    let Some(status) = child(object, "status") else {
        return;
    };
    crate::registry::strategy::set_default(status, "conditions", json!([]));
    let Some(conditions) = status["conditions"].as_array_mut() else {
        return;
    };
    match conditions
        .iter_mut()
        .find(|known| known["type"] == condition["type"])
    {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

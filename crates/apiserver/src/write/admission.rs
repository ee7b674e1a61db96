//! What a new object needs to find in its cluster: a living namespace, a known priority.

use serde_json::{Value, json};

use super::{Cluster, key};
use crate::failure::{Cause, Failure};
use crate::registry::Kind;
use crate::registry::strategy::text_at;
use crate::storage::{ObjectKey, ResourceName};

impl Cluster {
    /// Refuses new objects where none may be made.
    pub(super) fn admit_create(
        &self,
        kind: &Kind,
        namespace: &str,
        object: &mut Value,
    ) -> Result<(), Failure> {
        if kind.terminating {
            let mut failure = Failure::method_not_allowed(kind, "create").status().clone();
            failure.message =
                "create not allowed while custom resource definition is terminating".to_owned();
            return Err(Failure::from(failure));
        }
        if kind.namespaced {
            self.living_namespace(kind, namespace, object)?;
        }
        if kind.is("", "Pod") {
            self.priority(kind, object)?;
        }
        Ok(())
    }

    fn living_namespace(
        &self,
        kind: &Kind,
        namespace: &str,
        object: &Value,
    ) -> Result<(), Failure> {
        let resource = ResourceName {
            group: "".into(),
            plural: "namespaces".into(),
        };
        let key = ObjectKey {
            namespace: "".into(),
            name: namespace.into(),
        };
        let Some(found) = self.storage.get(&self.name, &resource, &key) else {
            return Err(Failure::resource_not_found("", "namespaces", namespace));
        };
        let terminating = found
            .fields
            .iter()
            .any(|(field, value)| &**field == "status.phase" && &**value == "Terminating");
        if terminating {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            return Err(
                Failure::forbidden(kind, super::meta::name(object), &why).because(Cause {
                    reason: "NamespaceTerminating".to_owned(),
                    message: format!("namespace {namespace} is being terminated"),
                    field: "metadata.namespace".to_owned(),
                }),
            );
        }
        Ok(())
    }

    /// Resolves a pod's priority class into its number.
    fn priority(&self, kind: &Kind, pod: &mut Value) -> Result<(), Failure> {
        let class = text_at(pod, &["spec", "priorityClassName"]).to_owned();
        let mut priority = json!(0);
        let mut preemption = json!("PreemptLowerPriority");
        if !class.is_empty() {
            let Some(classes) = self
                .registry
                .by_kind("scheduling.k8s.io", "v1", "PriorityClass")
            else {
                return Ok(());
            };
            let Some(found) =
                self.storage
                    .get(&self.name, &classes.stored_as, &key(&classes, "", &class))
            else {
                let why = format!("no PriorityClass with name {class} was found");
                return Err(Failure::forbidden(kind, super::meta::name(pod), &why));
            };
            let found = found.value();
            priority = found["value"].clone();
            preemption = found["preemptionPolicy"].clone();
        }
        if let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) {
            spec["priority"] = priority;
            crate::registry::strategy::set_default(spec, "preemptionPolicy", preemption);
        }
        Ok(())
    }
}

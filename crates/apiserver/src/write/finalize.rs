//! The `finalize` subresource of Namespaces: the only way to their `spec.finalizers`.

use serde_json::Value;

use super::update::{precondition, verdict};
use super::{ATTEMPTS, Cluster, Options, Written, key, meta, too_contended};
use crate::failure::Failure;
use crate::registry::Kind;
use crate::registry::strategy::keep;

impl Cluster {
    /// Replaces a namespace's `spec.finalizers`; the last one gone, a namespace that was asked to go is.
    pub(super) async fn finalize(
        &self,
        kind: &Kind,
        name: &str,
        body: &Value,
        options: &Options,
    ) -> Result<Written, Failure> {
        let key = key(kind, "", name);
        for _ in 0..ATTEMPTS {
            let current = self.current(kind, &key)?;
            precondition(kind, body, &current, true)?;
            let old = current.value();
            let mut new = old.clone();
            keep(&mut new, body, "spec");
            let verdict = verdict(kind, new, &old);
            if let Some(object) = self
                .carry_out(kind, &key, &current, verdict, options)
                .await?
            {
                return Ok(Written {
                    object,
                    created: false,
                    warnings: Vec::new(),
                });
            }
        }
        Err(too_contended(kind, name))
    }

    /// Takes the content's finalizer from a namespace that is empty.
    pub(crate) async fn release_namespace(&self, kind: &Kind, name: &str) -> Result<(), Failure> {
        let key = key(kind, "", name);
        let mut body = self.current(kind, &key)?.value();
        meta::of_mut(&mut body).remove("resourceVersion");
        if let Some(finalizers) = body["spec"]["finalizers"].as_array_mut() {
            finalizers
                .retain(|finalizer| finalizer != crate::registry::strategies::namespace::CONTENT);
        }
        self.finalize(kind, name, &body, &Options::default())
            .await
            .map(drop)
    }
}

//! Creation.

use serde_json::Value;

use super::decode::{Source, check, decode};
use super::{Body, Cluster, Options, Written, key, meta, validity};
use crate::failure::Failure;
use crate::machinery::apply::{self, Operation};
use crate::registry::{Kind, crd};
use crate::storage::Expect;

/// How often a generated name is tried anew because it was taken.
const NAMES: usize = 8;

impl Cluster {
    /// Creates an object. `hint` is a name that the request has outside the body.
    ///
    /// # Errors
    /// As a Kubernetes API server: 400, 403, 404 for the namespace, 409, 422.
    pub async fn create(
        &self,
        kind: &Kind,
        namespace: &str,
        hint: Option<&str>,
        body: Value,
        options: &Options,
    ) -> Result<Written, Failure> {
        let generated = meta::name(&body).is_empty() && hint.is_none();
        let attempts = if generated { NAMES } else { 1 };
        let mut taken = None;
        for _ in 0..attempts {
            match self
                .create_once(kind, namespace, hint, body.clone(), Source::Body, options)
                .await
            {
                Err(failure) if generated && failure.reason() == "AlreadyExists" => {
                    taken = Some(failure)
                }
                done => return done,
            }
        }
        Err(taken.unwrap_or_else(|| Failure::internal("no name could be generated")))
    }

    /// One attempt to create an object; its managed fields are recorded unless apply has done so.
    pub(super) async fn create_once(
        &self,
        kind: &Kind,
        namespace: &str,
        hint: Option<&str>,
        mut object: Value,
        source: Source,
        options: &Options,
    ) -> Result<Written, Failure> {
        if source == Source::Body && !meta::resource_version(&object).is_empty() {
            return Err(Failure::new(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let now = self.clock.now();
        let warnings = decode(kind, &mut object, source, options)?;
        meta::begin(kind, namespace, hint, &mut object, now)?;
        // Defaults may depend on the name, which may have been generated just now.
        kind.strategy.default(&mut object);
        let name = meta::name(&object).to_owned();
        self.admit_create(kind, namespace, &mut object)?;
        if kind.custom && kind.subresources.status {
            crate::registry::strategy::remove(&mut object, "status");
        }
        kind.strategy.prepare_create(&mut object);
        let mut errors = validity::validate(kind, &object);
        errors.extend(check(kind, &object, None)?);
        errors.extend(kind.strategy.validate(&object));
        if !errors.is_empty() {
            return Err(Failure::invalid(kind, &name, &errors));
        }
        if kind.is(crd::GROUP, "CustomResourceDefinition") {
            crd::establish(&mut object, &self.registry, now);
        }
        if source == Source::Body {
            let manager = options.manager(kind, Operation::Update, None, self);
            apply::record_update(
                None,
                &mut object,
                &manager,
                &kind.schema.tree,
                kind.reset(None),
            );
        }
        let key = key(kind, namespace, &name);
        if options.dry_run {
            if self
                .storage
                .get(&self.name, &kind.stored_as, &key)
                .is_some()
            {
                return Err(Failure::already_exists(kind, &name));
            }
            return Ok(Written {
                object: Body::Value(object),
                created: true,
                warnings,
            });
        }
        let write = self.put(kind, &key, Expect::Absent, object);
        match self.commit(vec![write]).await? {
            None => Err(Failure::already_exists(kind, &name)),
            Some(stored) => Ok(Written {
                object: Body::of(kind, one(stored)?),
                created: true,
                warnings,
            }),
        }
    }
}

/// The only result of a commit of one write.
pub(super) fn one<T>(of: Vec<T>) -> Result<T, Failure> {
    of.into_iter()
        .next()
        .ok_or_else(|| Failure::internal("the storage answered a write with nothing"))
}

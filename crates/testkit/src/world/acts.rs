//! What tests do to a world, and short ways to look at it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use kube::core::{DynamicObject, NamespaceResourceScope};
use kube::{Api, Resource, ResourceExt};
use muster_api::Machine;
use muster_api::reference::Conditioned as _;
use muster_informers::Key;
use muster_provider_sim::console;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::World;

/// How long a test waits for what takes a few passes.
pub const SOON: Duration = Duration::from_secs(60);
/// How long a test waits for what takes a drain, a boot and more.
pub const LATER: Duration = Duration::from_secs(30 * 60);

impl World {
    /// The objects of a kind in the namespace of the quickstart.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Changes an object by a merge patch.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn patch<K>(&self, name: &str, patch: Value) -> anyhow::Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let params = PatchParams::default();
        let patched = self
            .api::<K>()
            .patch(name, &params, &Patch::Merge(patch))
            .await?;
        Ok(patched)
    }

    /// Sets an annotation, or takes it away.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn annotate<K>(
        &self,
        name: &str,
        key: &str,
        value: Option<&str>,
    ) -> anyhow::Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        self.patch::<K>(name, patch).await.map(drop)
    }

    /// Asks for the deletion of an object.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn delete<K>(&self, name: &str) -> anyhow::Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        self.api::<K>()
            .delete(name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    /// Asks for the deletion of an object, and says what is to become of its dependents.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn delete_with<K>(&self, name: &str, how: PropagationPolicy) -> anyhow::Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let params = DeleteParams {
            propagation_policy: Some(how),
            ..DeleteParams::default()
        };
        self.api::<K>().delete(name, &params).await?;
        Ok(())
    }

    /// A Machine, as the caches have it.
    pub fn machine(&self, name: &str) -> Option<Arc<Machine>> {
        self.caches.machines.get(&Key::new("default", name))
    }

    /// The first Machine of a pool, by name.
    ///
    /// # Panics
    /// When the pool has none.
    pub fn first(&self, pool: &str) -> Arc<Machine> {
        let machines = self.machines(pool);
        let first = machines.iter().min_by_key(|machine| machine.name_any());
        Arc::clone(first.expect("the pool has machines"))
    }

    /// Names of the Machines of a pool, sorted.
    pub fn names(&self, pool: &str) -> Vec<String> {
        let mut names: Vec<String> = self.machines(pool).iter().map(|m| m.name_any()).collect();
        names.sort();
        names
    }

    /// Waits until a Machine is gone.
    ///
    /// # Errors
    /// When it stays.
    pub async fn gone(&self, machine: &str) -> anyhow::Result<()> {
        self.until(&format!("the end of {machine}"), LATER, || async {
            self.machine(machine).is_none()
        })
        .await
    }

    /// Waits until a condition of a Machine says something.
    ///
    /// # Errors
    /// When it does not.
    pub async fn says(&self, machine: &str, type_: &str, part: &str) -> anyhow::Result<()> {
        self.until(&format!("{machine} {type_}: {part}"), SOON, || async {
            self.machine_says(machine, type_).contains(part)
        })
        .await
    }

    /// Waits until a condition of a pool says something.
    ///
    /// # Errors
    /// When it does not.
    pub async fn pool_tells(&self, pool: &str, type_: &str, part: &str) -> anyhow::Result<()> {
        self.until(&format!("pool {pool} {type_}: {part}"), SOON, || async {
            self.pool_says(pool, type_).contains(part)
        })
        .await
    }

    /// Waits until a Machine's deletion is at a step, by its reason.
    ///
    /// # Errors
    /// When it does not come to it.
    pub async fn deletion_at(&self, machine: &str, reason: &str) -> anyhow::Result<()> {
        self.until(&format!("{machine} at {reason}"), LATER, || async {
            self.machine(machine).is_some_and(|m| {
                m.condition_of("Deleting")
                    .is_some_and(|c| c.reason == reason)
            })
        })
        .await
    }

    /// IDs of the cloud's instances that are not on their way out, sorted.
    ///
    /// # Errors
    /// When the cloud cannot be asked.
    pub async fn live_instances(&self) -> anyhow::Result<Vec<String>> {
        let all = self.instances().await?;
        let live = all.iter().filter(|instance| !instance.is_terminating());
        let mut ids: Vec<String> = live.map(|instance| instance.name_any()).collect();
        ids.sort();
        Ok(ids)
    }

    /// Ends an instance in the cloud's console.
    ///
    /// # Errors
    /// When there is none of that ID.
    pub async fn terminate(&self, instance: &str) -> anyhow::Result<()> {
        console::terminate(&self.cloud()?, instance, self.clock.now()).await?;
        Ok(())
    }
}

/// The ID of a Machine's instance: the last part of its provider ID.
///
/// # Panics
/// When it has no provider ID.
pub fn instance_of(machine: &Machine) -> String {
    let id = machine.spec.provider_id.as_deref();
    let id = id.and_then(|id| id.rsplit('/').next());
    id.expect("the Machine has a provider ID").to_owned()
}

/// The status of an object's condition.
pub fn condition_status(object: &DynamicObject, type_: &str) -> Option<String> {
    let list = object.data["status"]["conditions"].as_array()?;
    let found = list.iter().find(|condition| condition["type"] == type_)?;
    found["status"].as_str().map(str::to_owned)
}

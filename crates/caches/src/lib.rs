//! Watch caches of the management kinds, with the indexes that reconcilers look things up by.
//!
//! One set serves every reconciler of a process. Decides nothing and writes nothing.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use muster_api::provider_id::identity;
use muster_api::reference::ContractReference;
use muster_api::{
    Cluster, Machine, MachineDrainRule, MachineHealthCheck, MachinePool, MachinePoolPolicy, names,
    owners,
};
use muster_informers::{Index, Informer, Key, SyncError};

/// The caches; cheap to clone.
#[derive(Clone, Debug)]
pub struct Management {
    /// Clusters.
    pub clusters: Informer<Cluster>,
    /// MachinePools.
    pub pools: Informer<MachinePool>,
    /// MachinePools by [`in_namespace`] of their Cluster's name.
    pub pools_by_cluster: Index,
    /// MachinePools by [`in_namespace`] of the label of what is theirs; see [`Management::pool_labelled`].
    pools_by_label: Index,
    /// MachinePools by [`reference()`] of their InfraMachinePool or bootstrap object.
    pub pools_by_reference: Index,
    /// MachinePools by [`in_namespace`] of their bootstrap data Secret.
    pub pools_by_secret: Index,
    /// Machines.
    pub machines: Informer<Machine>,
    /// Machines by [`in_namespace`] of their pool's label; see [`Management::machines_of`].
    machines_by_pool: Index,
    /// Machines by [`in_namespace`] of their Cluster's name.
    pub machines_by_cluster: Index,
    /// Machines by [`reference()`] of their InfraMachine.
    pub machines_by_reference: Index,
    /// Machines by [`in_cluster`] of their provider ID's [`identity`].
    pub machines_by_provider_id: Index,
    /// Machines by [`in_cluster`] of their Node's name.
    pub machines_by_node: Index,
    /// MachinePoolPolicies.
    pub policies: Informer<MachinePoolPolicy>,
    /// MachinePoolPolicies by [`in_namespace`] of their pool's name.
    pub policies_by_pool: Index,
    /// MachineHealthChecks.
    pub health_checks: Informer<MachineHealthCheck>,
    /// MachineHealthChecks by [`in_namespace`] of their Cluster's name.
    pub health_checks_by_cluster: Index,
    /// MachineDrainRules.
    pub drain_rules: Informer<MachineDrainRule>,
    /// MachineDrainRules by namespace.
    pub drain_rules_by_namespace: Index,
    /// Secrets of clusters: kubeconfigs and bootstrap data.
    pub secrets: Informer<Secret>,
}

/// Index value of something within a namespace.
pub fn in_namespace(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Index value of something within a workload cluster.
pub fn in_cluster(namespace: &str, cluster: &str, name: &str) -> String {
    format!("{namespace}/{cluster}/{name}")
}

/// Index value of a referenced object.
pub fn reference(namespace: &str, reference: &ContractReference) -> String {
    format!(
        "{namespace}/{}/{}/{}",
        reference.api_group, reference.kind, reference.name
    )
}

/// The label of the pool that a Machine belongs to.
fn label_of_pool(machine: &Machine) -> Option<String> {
    let pool = owners::pool_of(machine)?;
    Some(names::pool_label(&pool).into_owned())
}

/// Whose will it is that an object is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Its own annotation.
    Own,
    /// Its Cluster's `spec.paused`.
    Cluster,
}

impl Pause {
    /// In a sentence. Source: Cluster API.
    pub fn told(self, kind: &str) -> String {
        match self {
            Self::Own => format!("{kind} has the {} annotation", names::PAUSED),
            Self::Cluster => "Cluster spec.paused is set to true".to_owned(),
        }
    }
}

impl Management {
    /// Starts the caches over everything that `client` reaches, or one namespace.
    pub fn start(client: &Client, namespace: Option<&str>) -> Self {
        let mut pools = Informer::builder(api::<MachinePool>(client, namespace));
        let pools_by_cluster =
            pools.index(|pool| vec![in_namespace(&space(pool), &pool.spec.cluster_name)]);
        let pools_by_label = pools.index(|pool| {
            vec![in_namespace(
                &space(pool),
                &names::pool_label(&pool.name_any()),
            )]
        });
        let pools_by_reference = pools.index(|pool| {
            let spec = &pool.spec.template.spec;
            std::iter::once(&spec.infrastructure_ref)
                .chain(&spec.bootstrap.config_ref)
                .map(|found| reference(&space(pool), found))
                .collect()
        });
        let pools_by_secret = pools.index(|pool| {
            let name = pool.spec.template.spec.bootstrap.data_secret_name.iter();
            name.map(|name| in_namespace(&space(pool), name)).collect()
        });
        let mut machines = Informer::builder(api::<Machine>(client, namespace));
        let machines_by_pool = machines.index(|m| {
            label_of_pool(m)
                .map(|label| in_namespace(&space(m), &label))
                .into_iter()
                .collect()
        });
        let machines_by_cluster =
            machines.index(|m| vec![in_namespace(&space(m), &m.spec.cluster_name)]);
        let machines_by_reference =
            machines.index(|m| vec![reference(&space(m), &m.spec.infrastructure_ref)]);
        let machines_by_provider_id = machines.index(|m| {
            let id = m.spec.provider_id.iter();
            id.map(|id| in_cluster(&space(m), &m.spec.cluster_name, &identity(id)))
                .collect()
        });
        let machines_by_node = machines.index(|m| {
            let node = m.node_name().into_iter();
            node.map(|node| in_cluster(&space(m), &m.spec.cluster_name, node))
                .collect()
        });
        let mut policies = Informer::builder(api::<MachinePoolPolicy>(client, namespace));
        let policies_by_pool = policies
            .index(|policy| vec![in_namespace(&space(policy), &policy.spec.machine_pool_name)]);
        let mut drain_rules = Informer::builder(api::<MachineDrainRule>(client, namespace));
        let drain_rules_by_namespace = drain_rules.index(|rule| vec![space(rule)]);
        let mut health_checks = Informer::builder(api::<MachineHealthCheck>(client, namespace));
        let health_checks_by_cluster = health_checks
            .index(|check| vec![in_namespace(&space(check), &check.spec.cluster_name)]);
        let of_clusters =
            watcher::Config::default().fields(&format!("type={}", names::SECRET_TYPE));
        let secrets = Informer::builder(api::<Secret>(client, namespace)).config(of_clusters);
        Self {
            clusters: Informer::builder(api::<Cluster>(client, namespace)).start(),
            pools: pools.start(),
            pools_by_cluster,
            pools_by_label,
            pools_by_reference,
            pools_by_secret,
            machines: machines.start(),
            machines_by_pool,
            machines_by_cluster,
            machines_by_reference,
            machines_by_provider_id,
            machines_by_node,
            policies: policies.start(),
            policies_by_pool,
            health_checks: health_checks.start(),
            health_checks_by_cluster,
            drain_rules: drain_rules.start(),
            drain_rules_by_namespace,
            secrets: secrets.start(),
        }
    }

    /// Waits until every cache is complete.
    ///
    /// # Errors
    /// When a watch ended before.
    pub async fn synced(&self) -> Result<(), SyncError> {
        self.clusters.synced().await?;
        self.pools.synced().await?;
        self.machines.synced().await?;
        self.policies.synced().await?;
        self.health_checks.synced().await?;
        self.drain_rules.synced().await?;
        self.secrets.synced().await
    }

    /// The policy of a pool: where several name it, the oldest is the one that counts.
    pub fn policy(&self, namespace: &str, pool: &str) -> Option<Arc<MachinePoolPolicy>> {
        let all = self
            .policies
            .by(self.policies_by_pool, &in_namespace(namespace, pool));
        all.into_iter().min_by_key(|policy| seniority(policy))
    }

    /// The Machines of a pool, by its name.
    pub fn machines_of(&self, namespace: &str, pool: &str) -> Vec<Arc<Machine>> {
        let value = in_namespace(namespace, &names::pool_label(pool));
        self.machines.by(self.machines_by_pool, &value)
    }

    /// How many Machines a pool has, by its name.
    pub fn count_machines_of(&self, namespace: &str, pool: &str) -> usize {
        let value = in_namespace(namespace, &names::pool_label(pool));
        self.machines.count(self.machines_by_pool, &value)
    }

    /// The pool whose label this is; names that are too long for a label are hashed in it.
    pub fn pool_labelled(&self, namespace: &str, label: &str) -> Option<Arc<MachinePool>> {
        let value = in_namespace(namespace, label);
        let found = self.pools.by(self.pools_by_label, &value);
        found.into_iter().next()
    }

    /// The pool that a Machine belongs to: by its controlling owner, else by its label.
    pub fn pool_of(&self, machine: &Machine) -> Option<Arc<MachinePool>> {
        self.pool_labelled(&space(machine), &label_of_pool(machine)?)
    }

    /// The key of the pool that a Machine belongs to, also where that is gone already.
    pub fn pool_key_of(&self, machine: &Machine) -> Option<Key> {
        let owner = owners::controller(machine).filter(|owner| owner.kind == "MachinePool");
        let name = owner.map(|owner| owner.name.clone());
        let name = name.or_else(|| self.pool_of(machine).map(|pool| pool.name_any()))?;
        Some(Key::new(space(machine), name))
    }

    /// Why an object of a cluster is to be left alone, if it is.
    pub fn pause_of(&self, object: &impl Resource, cluster: &str) -> Option<Pause> {
        if names::PAUSED.is_on(object) {
            return Some(Pause::Own);
        }
        let namespace = object.meta().namespace.clone().unwrap_or_default();
        let cluster = self.clusters.get(&Key::new(namespace, cluster))?;
        (cluster.spec.paused == Some(true)).then_some(Pause::Cluster)
    }
}

/// The order in which policies of one pool count: by age, then by name.
pub fn seniority(policy: &MachinePoolPolicy) -> (Option<jiff::Timestamp>, String) {
    let created = policy.metadata.creation_timestamp.as_ref();
    (created.map(|time| time.0), policy.name_any())
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn space(object: &impl Resource) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}

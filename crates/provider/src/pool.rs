//! The reconciler of InfraMachinePools, generic over the cloud.
//!
//! A pass observes the group, the InfraMachines and the Machines of one pool, and then does whatever is missing, in an
//! order in which a crash after any step leaves nothing that the next pass does not finish. Passes on one pool never
//! overlap, which is what makes the count of a termination (keep or lower the size) safe.

mod infra_machine;
mod infra_pool;
mod leaving;
mod marks;
mod size;
mod surge;

use std::sync::Arc;
use std::time::Duration;

use kube::api::ApiResource;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use muster_api::conditions;
use muster_api::names::SizeOwner;
use muster_api::reference::ContractReference;
use muster_api::{Cluster, MachinePool};
use muster_caches::{Management, in_namespace, pool_of, reference};
use muster_clock::Clock;
use muster_informers::{Index, Informer, Key, Options, Queue, Requeue};
use muster_observe::Clusters;
use muster_observe::rollout::too_new;
use tokio_util::sync::CancellationToken;

use crate::events::Events;
use crate::scale_group::{GroupSpec, ProviderError, ScaleGroup};
use crate::sizes::Sizes;

/// How often a group is looked at when the cloud tells no news.
const POLL: Duration = Duration::from_secs(60);
/// How many InfraMachines are made or written at once.
const PARALLEL: usize = 16;

/// Finalizer of InfraMachinePools.
pub const POOL_FINALIZER: &str = "infrastructure.muster.dev/machinepool";
/// Finalizer of InfraMachines.
pub const MACHINE_FINALIZER: &str = "infrastructure.muster.dev/machine";

/// The kinds that a provider serves.
#[derive(Clone, Debug)]
pub struct Kinds {
    /// The InfraMachinePool.
    pub pool: ApiResource,
    /// The InfraMachine.
    pub machine: ApiResource,
}

impl Kinds {
    /// Kinds of one API group and version.
    pub fn new(group: &str, version: &str, pool: &str, machine: &str) -> Self {
        let kind = |name: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, name));
        Self {
            pool: kind(pool),
            machine: kind(machine),
        }
    }
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The management API refused.
    #[error("{what}: {source}")]
    Api {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: kube::Error,
    },
    /// The cloud refused.
    #[error("{what}: {source}")]
    Cloud {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: ProviderError,
    },
}

pub(crate) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> PassError {
    let what = what.into();
    move |source| PassError::Api { what, source }
}

pub(crate) fn cloud(what: impl Into<String>) -> impl FnOnce(ProviderError) -> PassError {
    let what = what.into();
    move |source| PassError::Cloud { what, source }
}

/// Everything that passes share.
struct Context<S> {
    client: Client,
    caches: Management,
    kinds: Kinds,
    pools: Informer<DynamicObject>,
    machines: Informer<DynamicObject>,
    machines_by_pool: Index,
    cloud: Arc<S>,
    workloads: Clusters,
    events: Events,
    sizes: Sizes,
    patience: marks::Patience,
    clock: Clock,
}

/// Runs the reconciler until `stop`. Who goes first depends on what is on the Nodes of `workloads`.
pub async fn run<S: ScaleGroup>(
    client: Client,
    caches: Management,
    kinds: Kinds,
    cloud: Arc<S>,
    workloads: Clusters,
    clock: Clock,
    stop: CancellationToken,
) {
    let queue: Queue<Key> = Queue::default();
    let pools = Informer::builder(Api::all_with(client.clone(), &kinds.pool)).start();
    let mut builder = Informer::builder(Api::all_with(client.clone(), &kinds.machine));
    let machines_by_pool = builder
        .index(|machine: &DynamicObject| infra_machine::pool_of(machine).into_iter().collect());
    let machines = builder.start();
    let context = Arc::new(Context {
        events: Events::new(client.clone(), "muster-pool-provider"),
        sizes: Sizes::new(client.clone(), caches.clone()),
        patience: marks::Patience::default(),
        client,
        caches,
        kinds,
        pools,
        machines,
        machines_by_pool,
        cloud,
        workloads,
        clock,
    });
    let ready = async {
        context.caches.synced().await.is_ok()
            && context.pools.synced().await.is_ok()
            && context.machines.synced().await.is_ok()
    };
    tokio::select! {
        ready = ready => if !ready { return },
        () = stop.cancelled() => return,
    }
    let feeds = feed(&context, &queue);
    let options = Options {
        coalesce: Duration::from_millis(50),
        ..Options::new("pool-provider")
    };
    let passes = Arc::clone(&context);
    queue
        .run(options, stop, move |key| {
            let context = Arc::clone(&passes);
            async move { pass(&context, &key).await }
        })
        .await;
    for feed in feeds {
        feed.abort();
    }
}

/// Turns changes of everything that a pass looks at into keys.
fn feed<S: ScaleGroup>(
    context: &Arc<Context<S>>,
    queue: &Queue<Key>,
) -> Vec<tokio::task::JoinHandle<()>> {
    let kind = context.kinds.pool.kind.clone();
    let group = context.kinds.pool.group.clone();
    let of_pool = move |pool: &MachinePool| {
        let infra = &pool.spec.template.spec.infrastructure_ref;
        (infra.kind == kind && infra.api_group == group)
            .then(|| Key::new(pool.namespace().unwrap_or_default(), &infra.name))
    };
    let mut feeds = Vec::new();
    let (q, mut changes) = (queue.clone(), context.pools.subscribe());
    feeds.push(tokio::spawn(async move {
        while let Some(change) = changes.recv().await {
            change.either().for_each(|object| q.add(Key::of(&**object)));
        }
    }));
    let (q, mut changes) = (queue.clone(), context.machines.subscribe());
    feeds.push(tokio::spawn(async move {
        while let Some(change) = changes.recv().await {
            change
                .either()
                .filter_map(|m| infra_machine::pool_key(m))
                .for_each(|key| q.add(key));
        }
    }));
    let (q, mut changes, to_key) = (
        queue.clone(),
        context.caches.pools.subscribe(),
        of_pool.clone(),
    );
    feeds.push(tokio::spawn(async move {
        while let Some(change) = changes.recv().await {
            change
                .either()
                .filter_map(|pool| to_key(pool))
                .for_each(|key| q.add(key));
        }
    }));
    let (q, mut changes, to_key) = (
        queue.clone(),
        context.caches.machines.subscribe(),
        of_pool.clone(),
    );
    let caches = context.caches.clone();
    feeds.push(tokio::spawn(async move {
        while let Some(change) = changes.recv().await {
            for machine in change.either() {
                let pool = pool_of(machine).and_then(|name| {
                    caches
                        .pools
                        .get(&Key::new(machine.namespace().unwrap_or_default(), name))
                });
                if let Some(key) = pool.and_then(|pool| to_key(&pool)) {
                    q.add(key);
                }
            }
        }
    }));
    let (q, mut changes, to_key) = (
        queue.clone(),
        context.caches.clusters.subscribe(),
        of_pool.clone(),
    );
    let caches = context.caches.clone();
    feeds.push(tokio::spawn(async move {
        while let Some(change) = changes.recv().await {
            for cluster in change.either() {
                let value = in_namespace(
                    &cluster.namespace().unwrap_or_default(),
                    &cluster.name_any(),
                );
                let pools = caches.pools.by(caches.pools_by_cluster, &value);
                pools
                    .iter()
                    .filter_map(|pool| to_key(pool))
                    .for_each(|key| q.add(key));
            }
        }
    }));
    let (q, mut changes, to_key) = (queue.clone(), context.caches.secrets.subscribe(), of_pool);
    let caches = context.caches.clone();
    feeds.push(tokio::spawn(async move {
        while let Some(change) = changes.recv().await {
            for secret in change.either() {
                let value =
                    in_namespace(&secret.namespace().unwrap_or_default(), &secret.name_any());
                let pools = caches.pools.by(caches.pools_by_secret, &value);
                pools
                    .iter()
                    .filter_map(|pool| to_key(pool))
                    .for_each(|key| q.add(key));
            }
        }
    }));
    if let Some(mut news) = context.cloud.news() {
        let q = queue.clone();
        feeds.push(tokio::spawn(async move {
            while let Some(key) = news.recv().await {
                q.add(key);
            }
        }));
    }
    feeds
}

/// What a pass knows of its pool.
struct Seen {
    key: Key,
    object: Arc<DynamicObject>,
    pool: Arc<MachinePool>,
    cluster: Arc<Cluster>,
}

async fn pass<S: ScaleGroup>(context: &Context<S>, key: &Key) -> Result<Requeue, PassError> {
    let Some(object) = context.pools.get(key) else {
        return Ok(Requeue::Never);
    };
    let owner = find_owner(context, &object);
    let deleting = object.metadata.deletion_timestamp.is_some();
    if deleting {
        return leaving::pass(context, key, &object, owner.as_deref()).await;
    }
    let Some(pool) = owner else {
        // Whoever made it first makes the MachinePool next; there is nothing to do until then.
        return Ok(Requeue::Never);
    };
    let Some(cluster) = context
        .caches
        .clusters
        .get(&Key::new(&key.namespace, &pool.spec.cluster_name))
    else {
        return Ok(Requeue::Never);
    };
    if context.caches.is_paused(&*object, &pool.spec.cluster_name)
        || context.caches.is_paused(&*pool, &pool.spec.cluster_name)
    {
        return Ok(Requeue::Never);
    }
    if pool.is_deleting() || cluster.metadata.deletion_timestamp.is_some() {
        return leaving::empty(context, key, &object, &pool).await;
    }
    let seen = Seen {
        key: key.clone(),
        object,
        pool,
        cluster,
    };
    match work(context, &seen).await {
        Ok(next) => Ok(Requeue::After(next)),
        Err(Stop::Waits(said)) => {
            infra_pool::not_ready(context, &seen, &said).await?;
            Ok(Requeue::Never)
        }
        Err(Stop::Failed(error)) => {
            let said = infra_pool::Blocked {
                reason: conditions::types::Ready::CloudError,
                message: error.to_string(),
            };
            infra_pool::not_ready(context, &seen, &said).await?;
            Err(error)
        }
    }
}

/// Why the work of a pass ended before its end.
enum Stop {
    Waits(infra_pool::Blocked),
    Failed(PassError),
}

impl From<PassError> for Stop {
    fn from(error: PassError) -> Self {
        Self::Failed(error)
    }
}

/// Does what is missing; how soon to look again.
async fn work<S: ScaleGroup>(context: &Context<S>, seen: &Seen) -> Result<Duration, Stop> {
    infra_pool::ensure_finalizer(context, seen).await?;
    let zones = infra_pool::may_begin(context, seen).await?;
    let spec = GroupSpec {
        pool: seen.key.clone(),
        cluster: Key::of(&*seen.cluster),
        object: (*seen.object).clone(),
        version: seen.pool.spec.template.spec.version.clone(),
        bootstrap: seen.pool.bootstrap_reference(),
        zones,
    };
    let describe = || async {
        context
            .cloud
            .describe(&seen.key)
            .await
            .map_err(cloud("describing the scale group"))
    };
    let refused = too_new(&seen.pool, &seen.cluster);
    let group = match &refused {
        // A group goes on as it is: what is refused is only what its machines would be made from.
        Some(why) => describe()
            .await?
            .ok_or_else(|| infra_pool::blocked(conditions::types::Ready::KubeletTooNew, why))?,
        None => {
            context
                .cloud
                .ensure(&spec)
                .await
                .map_err(cloud("making the scale group"))?;
            describe().await?.unwrap_or_default()
        }
    };
    let individual = context.cloud.individual_deletion(&seen.object);
    let mut size = group.size;
    if individual {
        infra_machine::reconcile(context, seen, &group, &mut size).await?;
    }
    let next = size::reconcile(context, seen, &group, size, individual).await?;
    infra_pool::write_status(context, seen, &group, individual, refused).await?;
    Ok(next.unwrap_or(POLL))
}

/// The MachinePool that an InfraMachinePool belongs to: its controlling owner, else the one that refers to it.
fn find_owner<S>(context: &Context<S>, object: &DynamicObject) -> Option<Arc<MachinePool>> {
    let namespace = object.namespace().unwrap_or_default();
    let owner = object
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "MachinePool" && owner.controller == Some(true))?;
    context.caches.pools.get(&Key::new(namespace, &owner.name))
}

/// MachinePools that refer to this InfraMachinePool.
fn referring<S>(context: &Context<S>, key: &Key) -> Vec<Arc<MachinePool>> {
    let found = ContractReference {
        api_group: context.kinds.pool.group.clone(),
        kind: context.kinds.pool.kind.clone(),
        name: key.name.clone(),
    };
    context.caches.pools.by(
        context.caches.pools_by_reference,
        &reference(&key.namespace, &found),
    )
}

/// Whether something else owns the pool's size.
fn is_external(pool: &MachinePool) -> bool {
    SizeOwner::of(pool) == SizeOwner::Outside
}

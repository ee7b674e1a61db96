//! The reconciler of InfraMachinePools, generic over the cloud.
//!
//! A pass observes the group, the InfraMachines and the Machines of one pool, and then does whatever is missing, in an
//! order in which a crash after any step leaves nothing that the next pass does not finish. Passes on one pool never
//! overlap, which is what makes the count of a termination (keep or lower the size) safe.

mod ending;
mod feed;
mod infra_machine;
mod infra_pool;
mod leaving;
mod marks;
mod members;
mod pause;
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
use muster_api::{Cluster, MachinePool, owners};
use muster_caches::{Management, reference};
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
    machines_by_provider_id: Index,
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
    let machines_by_pool = builder.index(members::by_owner);
    let machines_by_provider_id = builder.index(members::by_provider_id);
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
        machines_by_provider_id,
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
    let feeds = feed::start(&context, &queue);
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
    if let Some(why) = pause::of_pool(context, &object, owner.as_deref()) {
        return pause::say_of_pool(context, &object, why).await;
    }
    let cluster = owner.as_ref().and_then(|pool| {
        let key = Key::new(&key.namespace, &pool.spec.cluster_name);
        context.caches.clusters.get(&key)
    });
    let cluster_stays = cluster
        .as_ref()
        .is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_none());
    let goes = |pool: &MachinePool| pool.is_deleting() || !cluster_stays;
    let deleting = object.metadata.deletion_timestamp.is_some();
    match &owner {
        // What a pool that lives still refers to is held for it, finalizer and all.
        Some(pool) if deleting && !goes(pool) && refers_to(context, pool, key) => {}
        _ if deleting => return leaving::pass(context, key, &object, owner.as_deref()).await,
        _ => {}
    }
    let (Some(pool), Some(cluster)) = (owner, cluster) else {
        // Whoever made it first makes the MachinePool next; there is nothing to do until then.
        return Ok(Requeue::Never);
    };
    if owners::is_orphaning(&*pool) || owners::is_orphaning(&*cluster) {
        // What stays, stays as it is.
        return Ok(Requeue::Never);
    }
    if goes(&pool) {
        return leaving::hold(context, key, &object).await;
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

/// Whether a MachinePool's infrastructure reference names this InfraMachinePool.
fn refers_to<S>(context: &Context<S>, pool: &MachinePool, key: &Key) -> bool {
    members::infra_key(&context.kinds, pool).as_ref() == Some(key)
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

/// The MachinePool that an InfraMachinePool belongs to: its controlling owner, if that is this very one.
fn find_owner<S>(context: &Context<S>, object: &DynamicObject) -> Option<Arc<MachinePool>> {
    let namespace = object.namespace().unwrap_or_default();
    let owner = owners::controller(object).filter(|owner| owner.kind == "MachinePool")?;
    let pool = context
        .caches
        .pools
        .get(&Key::new(namespace, &owner.name))?;
    owners::is_controlled_by(object, &*pool).then_some(pool)
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

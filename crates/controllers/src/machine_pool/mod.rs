//! MachinePools: a Machine for each InfraMachine, kept in step with the template; counters and conditions.

mod leave;
mod machines;
mod repair;
mod replace;
mod rollout;
mod status;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Resource, ResourceExt};
use muster_api::pool::MachinePoolInitialization;
use muster_api::reference::ContractReference;
use muster_api::{MachinePool, contract, names, owners};
use muster_caches::{Management, in_namespace};
use muster_informers::{Key, Options, Requeue};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::objects::{Found, owner_key};
use crate::ownership::own;
use crate::{Context, PassError, api};

fn key_of(_: &Management, object: &DynamicObject) -> Option<Key> {
    owner_key(object, "MachinePool")
}

/// The pool of an InfraMachine: its label says which, else its Machine.
fn key_of_machine(caches: &Management, object: &DynamicObject) -> Option<Key> {
    let namespace = object.namespace().unwrap_or_default();
    let labelled = names::POOL_NAME
        .text(object)
        .and_then(|label| caches.pool_labelled(&namespace, label));
    if let Some(pool) = labelled {
        return Some(Key::of(&*pool));
    }
    let owner = owners::controller(object)?;
    let machine = caches.machines.get(&Key::new(namespace, &owner.name))?;
    caches.pool_key_of(&machine)
}

pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    tokio::select! {
        synced = context.caches.synced() => if synced.is_err() { return },
        () = stop.cancelled() => return,
    }
    let feeder = Arc::clone(&context);
    let feed = tokio::spawn(async move {
        let mut pools = feeder.caches.pools.subscribe();
        let mut machines = feeder.caches.machines.subscribe();
        let mut clusters = feeder.caches.clusters.subscribe();
        let mut secrets = feeder.caches.secrets.subscribe();
        let mut policies = feeder.caches.policies.subscribe();
        let q = &feeder.pools;
        loop {
            tokio::select! {
                Some(change) = pools.recv() => change.either().for_each(|pool| q.add(Key::of(&**pool))),
                Some(change) = machines.recv() => for machine in change.either() {
                    if let Some(pool) = feeder.caches.pool_key_of(machine) {
                        q.add(pool);
                    }
                },
                Some(change) = clusters.recv() => for cluster in change.either() {
                    let value = in_namespace(&cluster.namespace().unwrap_or_default(), &cluster.name_any());
                    let pools = feeder.caches.pools.by(feeder.caches.pools_by_cluster, &value);
                    pools.iter().for_each(|pool| q.add(Key::of(&**pool)));
                },
                Some(change) = policies.recv() => for policy in change.either() {
                    q.add(Key::new(policy.namespace().unwrap_or_default(), &policy.spec.machine_pool_name));
                },
                Some(change) = secrets.recv() => for secret in change.either() {
                    let value = in_namespace(&secret.namespace().unwrap_or_default(), &secret.name_any());
                    let pools = feeder.caches.pools.by(feeder.caches.pools_by_secret, &value);
                    pools.iter().for_each(|pool| q.add(Key::of(&**pool)));
                },
                else => return,
            }
        }
    });
    let options = Options {
        // Counters of a pool follow its Machines in one write for a burst of changes.
        coalesce: Duration::from_millis(100),
        ..Options::new("machine-pool")
    };
    let queue = context.pools.clone();
    queue
        .run(options, stop, move |key| {
            let context = Arc::clone(&context);
            async move { pass(&context, &key).await }
        })
        .await;
    feed.abort();
}

/// What a pass found out, for the status.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) bootstrap: Option<Said>,
    pub(crate) infrastructure: Option<Said>,
    pub(crate) provisioned: bool,
    pub(crate) bootstrapped: bool,
    pub(crate) provider_ids: Option<Vec<String>>,
    pub(crate) replicas: Option<i32>,
    /// Whether the provider has single machines.
    pub(crate) has_machines: bool,
    /// Whether instances are up to date, as their provider says it, by the name of their InfraMachine.
    pub(crate) instances: HashMap<String, bool>,
    /// Machines that stand where the pool's are to be, and are somebody else's.
    pub(crate) refused: Vec<machines::Refused>,
}

use muster_api::conditions::{Reason as _, Said, Status, types};

async fn pass(context: &Context, key: &Key) -> Result<Requeue, PassError> {
    let Some(pool) = context.caches.pools.get(key) else {
        return Ok(Requeue::Never);
    };
    let pools: Api<MachinePool> = Api::namespaced(context.client.clone(), &key.namespace);
    let cluster = context
        .caches
        .clusters
        .get(&Key::new(&key.namespace, &pool.spec.cluster_name));
    if let Some(pause) = context.caches.pause_of(&*pool, &pool.spec.cluster_name) {
        return status::paused(context, &pools, &pool, pause).await;
    }
    if pool.is_deleting() {
        return leave::pass(context, &pools, &pool).await;
    }
    let Some(cluster) = cluster else {
        return status::waits(
            context,
            &pools,
            &pool,
            format!(
                "Cluster {}/{}, named by spec.clusterName, does not exist",
                key.namespace, pool.spec.cluster_name
            ),
        )
        .await;
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        return Ok(Requeue::Never);
    }
    let pool = begin(context, &pools, &pool, &cluster).await?;
    let mut seen = Seen::default();
    let mut failed = None;
    if let Err(error) = bootstrap(context, &pool, &mut seen).await {
        failed = Some(error);
    }
    match infrastructure(context, &pool, &mut seen).await {
        Ok(()) => {}
        Err(PassError::Blocked(why)) => {
            seen.infrastructure = Some(types::InfrastructureReady::NotReady.fails().because(why));
        }
        Err(error) => failed = Some(error),
    }
    let missing = seen
        .infrastructure
        .as_ref()
        .is_some_and(|said| said.reason == "ObjectDoesNotExist");
    let pool = if let Some(ids) = seen
        .provider_ids
        .as_ref()
        .filter(|ids| **ids != pool.spec.provider_id_list)
    {
        let patch = json!({"spec": {"providerIDList": ids}});
        let patched = pools
            .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(api("writing providerIDList"))?;
        context.caches.pools.absorb(patched.clone());
        Arc::new(patched)
    } else {
        pool
    };
    let step = match rollout::step(context, &pool, &cluster, &seen).await {
        Ok(step) => Some(step),
        Err(error) => {
            failed.get_or_insert(error);
            None
        }
    };
    status::write(
        context,
        &pools,
        &pool,
        &seen,
        step.as_ref(),
        failed.is_none(),
    )
    .await?;
    let again = step.and_then(|step| step.again);
    match (failed, again) {
        (Some(error), _) => Err(error),
        (None, _) if missing => Ok(Requeue::After(Duration::from_secs(2))),
        (None, Some(again)) => Ok(Requeue::After(again)),
        (None, None) => Ok(Requeue::Never),
    }
}

/// Finalizer, owner, label and the size where none is given, in one write.
async fn begin(
    context: &Context,
    pools: &Api<MachinePool>,
    pool: &Arc<MachinePool>,
    cluster: &muster_api::Cluster,
) -> Result<Arc<MachinePool>, PassError> {
    let finalized = pool.finalizers().iter().any(|f| f == names::POOL_FINALIZER);
    let owned = pool
        .owner_references()
        .iter()
        .any(|owner| owner.uid == cluster.uid().unwrap_or_default());
    let labelled = names::CLUSTER_NAME.text(&**pool) == Some(pool.spec.cluster_name.as_str());
    let sized = pool.spec.replicas.is_some();
    if finalized && owned && labelled && sized {
        return Ok(Arc::clone(pool));
    }
    let mut finalizers = pool.finalizers().to_vec();
    if !finalized {
        finalizers.push(names::POOL_FINALIZER.to_owned());
    }
    let mut owners = pool.owner_references().to_vec();
    if !owned {
        owners.extend(cluster.owner_ref(&()));
    }
    let mut patch = json!({"metadata": {
        "finalizers": finalizers,
        "ownerReferences": owners,
        "labels": {names::CLUSTER_NAME: pool.spec.cluster_name},
        "resourceVersion": pool.resource_version(),
    }});
    if !sized {
        // What it is by default now it stays, whatever comes and goes.
        patch["spec"] = json!({"replicas": pool.default_replicas()});
    }
    let patched = pools
        .patch(
            &pool.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .map_err(api("adding finalizer, owner, label and size"))?;
    context.caches.pools.absorb(patched.clone());
    Ok(Arc::new(patched))
}

async fn bootstrap(
    context: &Context,
    pool: &MachinePool,
    seen: &mut Seen,
) -> Result<(), PassError> {
    let spec = &pool.spec.template.spec.bootstrap;
    let namespace = pool.namespace().unwrap_or_default();
    let Some(reference) = &spec.config_ref else {
        let name = spec.data_secret_name.as_deref().unwrap_or_default();
        seen.bootstrapped = !name.is_empty();
        seen.bootstrap = Some(types::BootstrapConfigReady::DataSecretProvided.holds());
        return Ok(());
    };
    match context
        .objects
        .get(&namespace, reference, &context.pools, key_of)
        .await
    {
        Found::Unusable(why) => {
            seen.bootstrap = Some(
                types::BootstrapConfigReady::InvalidConditionReported
                    .fails()
                    .because(why),
            )
        }
        Found::Missing => {
            let why = format!(
                "{} {namespace}/{}, named by spec.template.spec.bootstrap.configRef, does not exist; create it or correct the reference",
                reference.kind, reference.name
            );
            seen.bootstrap = Some(
                types::BootstrapConfigReady::ObjectDoesNotExist
                    .fails()
                    .because(why),
            );
        }
        Found::Here(object) => {
            let owner = pool.controller_owner_ref(&()).unwrap_or_default();
            own(
                context,
                &namespace,
                reference,
                &object,
                owner,
                &pool.spec.cluster_name,
            )
            .await?;
            seen.bootstrapped = contract::has_data_secret(&object);
            if !seen.bootstrapped {
                let why = contract::ready_condition(&object)
                    .map(|(_, _, message)| message)
                    .unwrap_or_default();
                seen.bootstrap = Some(types::BootstrapConfigReady::NotReady.fails().because(why));
                return Ok(());
            }
            seen.bootstrap = Some(types::BootstrapConfigReady::Ready.holds());
            let name = contract::data_secret_name(&object);
            if name.is_some() && name != spec.data_secret_name {
                let pools: Api<MachinePool> = Api::namespaced(context.client.clone(), &namespace);
                let patch = json!({"spec": {"template": {"spec": {"bootstrap": {"dataSecretName": name}}}}});
                let patched = pools
                    .patch(
                        &pool.name_any(),
                        &PatchParams::default(),
                        &Patch::Merge(patch),
                    )
                    .await
                    .map_err(api("writing dataSecretName"))?;
                context.caches.pools.absorb(patched);
            }
        }
    }
    Ok(())
}

async fn infrastructure(
    context: &Context,
    pool: &Arc<MachinePool>,
    seen: &mut Seen,
) -> Result<(), PassError> {
    let reference = &pool.spec.template.spec.infrastructure_ref;
    let namespace = pool.namespace().unwrap_or_default();
    let object = match context
        .objects
        .get(&namespace, reference, &context.pools, key_of)
        .await
    {
        Found::Here(object) => object,
        Found::Unusable(why) => {
            seen.infrastructure = Some(
                types::InfrastructureReady::InternalError
                    .unknown()
                    .because(why),
            );
            return Ok(());
        }
        Found::Missing => {
            let why = format!(
                "{} {namespace}/{}, named by spec.template.spec.infrastructureRef, does not exist; create it or correct the reference",
                reference.kind, reference.name
            );
            seen.infrastructure = Some(
                types::InfrastructureReady::ObjectDoesNotExist
                    .fails()
                    .because(why),
            );
            return Ok(());
        }
    };
    let owner = pool.controller_owner_ref(&()).unwrap_or_default();
    own(
        context,
        &namespace,
        reference,
        &object,
        owner,
        &pool.spec.cluster_name,
    )
    .await?;
    seen.provisioned = contract::is_provisioned(&object);
    let ready = contract::ready_condition(&object);
    seen.infrastructure = Some(match (&ready, seen.provisioned) {
        (Some((status, reason, message)), _) if status != "True" => {
            let status = if status == "Unknown" {
                Status::Unknown
            } else {
                Status::False
            };
            Said::mirrored::<types::InfrastructureReady>(status, reason).because(message)
        }
        (_, true) => types::InfrastructureReady::Ready.holds(),
        (_, false) => types::InfrastructureReady::NotReady
            .fails()
            .because(format!(
                "{} {} is not provisioned yet",
                reference.kind, reference.name
            )),
    });
    // Machines that exist prove that the provider has them, also when its object cannot say so for a moment.
    let existing = context
        .caches
        .count_machines_of(&namespace, &pool.name_any());
    let kind = contract::infrastructure_machine_kind(&object);
    seen.has_machines = kind.is_some() || existing > 0;
    if let Some(kind) = kind {
        let machine = ContractReference {
            api_group: reference.api_group.clone(),
            kind,
            name: String::new(),
        };
        machines::reconcile(context, pool, &object, &machine, seen).await?;
    }
    if seen.provisioned {
        let ids = contract::provider_id_list(&object);
        seen.replicas = contract::replicas(&object);
        if !ids.is_empty() || seen.replicas == Some(0) {
            seen.provider_ids = Some(ids);
        }
    }
    Ok(())
}

/// Flags of the beginning, which never go back.
pub(crate) fn initialization(
    before: Option<MachinePoolInitialization>,
    seen: &Seen,
) -> Option<MachinePoolInitialization> {
    let mut done = before.unwrap_or_default();
    if seen.provisioned {
        done.infrastructure_provisioned = Some(true);
    }
    if seen.bootstrapped {
        done.bootstrap_data_secret_created = Some(true);
    }
    (done != MachinePoolInitialization::default()).then_some(done)
}

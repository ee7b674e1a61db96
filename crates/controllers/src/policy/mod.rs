//! MachinePoolPolicies: each is told whether it counts for its pool. What a policy says is read where it is needed.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::conditions::{self, Reason as _, Said, types};
use muster_api::{MachinePoolPolicy, names};
use muster_caches::{in_namespace, seniority};
use muster_informers::{Key, Options, Queue, Requeue};
use muster_plan::policy::{Standing, Verdict, verdict};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Context, PassError, api, difference};

pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    tokio::select! {
        synced = context.caches.synced() => if synced.is_err() { return },
        () = stop.cancelled() => return,
    }
    let queue: Queue<Key> = Queue::default();
    let (feeder, q) = (Arc::clone(&context), queue.clone());
    let feed = tokio::spawn(async move {
        let mut policies = feeder.caches.policies.subscribe();
        let mut pools = feeder.caches.pools.subscribe();
        let mut clusters = feeder.caches.clusters.subscribe();
        loop {
            tokio::select! {
                Some(change) = policies.recv() => for policy in change.either() {
                    q.add(Key::of(&**policy));
                    // Whoever stands behind it, or did, may stand first now.
                    let pool = &policy.spec.machine_pool_name;
                    of_pool(&feeder, &policy.namespace().unwrap_or_default(), pool).for_each(|key| q.add(key));
                },
                // Only that a pool comes or goes matters, not what happens in it.
                Some(change) = pools.recv() => if change.old.is_none() || change.new.is_none() {
                    for pool in change.either() {
                        of_pool(&feeder, &pool.namespace().unwrap_or_default(), &pool.name_any()).for_each(|key| q.add(key));
                    }
                },
                Some(change) = clusters.recv() => {
                    let paused = |cluster: &Arc<muster_api::Cluster>| cluster.spec.paused;
                    if change.old.as_ref().map(paused) != change.new.as_ref().map(paused) {
                        for cluster in change.either() {
                            let namespace = cluster.namespace().unwrap_or_default();
                            let value = in_namespace(&namespace, &cluster.name_any());
                            for pool in feeder.caches.pools.by(feeder.caches.pools_by_cluster, &value) {
                                of_pool(&feeder, &namespace, &pool.name_any()).for_each(|key| q.add(key));
                            }
                        }
                    }
                }
                else => return,
            }
        }
    });
    queue
        .run(Options::new("machine-pool-policy"), stop, move |key| {
            let context = Arc::clone(&context);
            async move { pass(&context, &key).await }
        })
        .await;
    feed.abort();
}

/// Keys of the policies that name a pool.
fn of_pool(context: &Context, namespace: &str, pool: &str) -> impl Iterator<Item = Key> {
    let value = in_namespace(namespace, pool);
    let all = context
        .caches
        .policies
        .by(context.caches.policies_by_pool, &value);
    all.into_iter().map(|policy| Key::of(&*policy))
}

fn standing(policy: &MachinePoolPolicy) -> Standing {
    let (created, name) = seniority(policy);
    Standing { created, name }
}

async fn pass(context: &Context, key: &Key) -> Result<Requeue, PassError> {
    let Some(policy) = context.caches.policies.get(key) else {
        return Ok(Requeue::Never);
    };
    if policy.metadata.deletion_timestamp.is_some() || names::PAUSED.is_on(&*policy) {
        return Ok(Requeue::Never);
    }
    let name = &policy.spec.machine_pool_name;
    let pool = context.caches.pools.get(&Key::new(&key.namespace, name));
    let pause = pool
        .as_ref()
        .and_then(|pool| context.caches.pause_of(&**pool, &pool.spec.cluster_name));
    if pause.is_some() {
        return Ok(Requeue::Never);
    }
    let all: Vec<Standing> = context
        .caches
        .policies
        .by(
            context.caches.policies_by_pool,
            &in_namespace(&key.namespace, name),
        )
        .iter()
        .map(|policy| standing(policy))
        .collect();
    let said = told(&verdict(&standing(&policy), &all, pool.is_some()), name);
    write(context, &policy, said).await?;
    Ok(Requeue::Never)
}

fn told(verdict: &Verdict, pool: &str) -> Said {
    match verdict {
        Verdict::Accepted => types::Accepted::Accepted.holds(),
        Verdict::Conflicting { first } => types::Accepted::Conflicting.fails().because(format!(
            "MachinePool {pool} has the older MachinePoolPolicy {first}, which counts; delete one of the two"
        )),
        Verdict::NoSuchPool => types::Accepted::NoSuchPool.fails().because(format!(
            "there is no MachinePool {pool} in this namespace, named by spec.machinePoolName; the policy counts once there is"
        )),
    }
}

async fn write(context: &Context, policy: &MachinePoolPolicy, said: Said) -> Result<(), PassError> {
    let mut status = policy.status.clone().unwrap_or_default();
    let generation = policy.metadata.generation;
    conditions::set(
        &mut status.conditions,
        said,
        generation,
        context.clock.now(),
    );
    status.observed_generation = generation;
    if policy.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let namespace = policy.namespace().unwrap_or_default();
    let policies: Api<MachinePoolPolicy> = Api::namespaced(context.client.clone(), &namespace);
    let patch = json!({
        "metadata": {"uid": policy.uid()},
        "status": difference(&policy.status, &status),
    });
    match policies
        .patch_status(
            &policy.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(written) => context.caches.policies.absorb(written),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(error) => return Err(api("writing the status")(error)),
    }
    Ok(())
}

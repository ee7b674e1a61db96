//! The end of a Cluster: pools, then the last Machines, then control plane and infrastructure.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use muster_api::cluster::{ClusterPhase, ClusterStatus};
use muster_api::conditions::{self, Reason as _, Said, types};
use muster_api::{Cluster, Machine, MachinePool, names, owners};
use muster_caches::{Pause, in_namespace};
use muster_informers::{Key, Requeue};
use serde_json::json;

use super::key_of;
use crate::ownership::remove;
use crate::{Context, PassError, api, difference};

/// A level check, for an event that never came.
const LEVEL: Duration = Duration::from_secs(30);

pub(super) async fn pass(
    context: &Context,
    clusters: &Api<Cluster>,
    cluster: &Cluster,
) -> Result<Requeue, PassError> {
    if owners::is_orphaning(cluster) {
        let message = "waiting for the garbage collector to take it from its pools, which stay";
        let said = types::Deleting::Deleting.holds().because(message);
        return deleting(context, clusters, cluster, said).await;
    }
    let namespace = cluster.namespace().unwrap_or_default();
    let value = in_namespace(&namespace, &cluster.name_any());
    let mut pools = context
        .caches
        .pools
        .by(context.caches.pools_by_cluster, &value);
    // Pools that were let go of stay.
    pools.retain(|pool| owners::is_owned_by(&**pool, cluster));
    let all: Api<MachinePool> = Api::namespaced(context.client.clone(), &namespace);
    for pool in pools.iter().filter(|pool| !pool.is_deleting()) {
        // Only as it was seen to be this Cluster's.
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: pool.uid(),
                resource_version: pool.resource_version(),
            }),
            ..DeleteParams::default()
        };
        match all.delete(&pool.name_any(), &params).await {
            Ok(either::Either::Left(object)) => context.caches.pools.absorb(object),
            Ok(either::Either::Right(_)) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => {
                return Err(api(format!("deleting MachinePool {}", pool.name_any()))(
                    error,
                ));
            }
        }
    }
    let mut machines = context
        .caches
        .machines
        .by(context.caches.machines_by_cluster, &value);
    machines.retain(|machine| goes_with(context, machine, cluster));
    for machine in &machines {
        context.machines.add(Key::of(&**machine));
    }
    if !pools.is_empty() || !machines.is_empty() {
        let message = format!(
            "waiting for {} MachinePool(s) and {} Machine(s) to be deleted",
            pools.len(),
            machines.len()
        );
        let said = types::Deleting::WaitingForWorkersDeletion
            .holds()
            .because(message);
        return deleting(context, clusters, cluster, said).await;
    }
    for (reference, reason) in [
        (
            &cluster.spec.control_plane_ref,
            types::Deleting::WaitingForControlPlaneDeletion,
        ),
        (
            &cluster.spec.infrastructure_ref,
            types::Deleting::WaitingForInfrastructureDeletion,
        ),
    ] {
        if let Some(reference) = reference
            && remove(context, cluster, reference, &context.clusters, key_of).await?
        {
            let message = format!(
                "waiting for {} {} to be deleted",
                reference.kind, reference.name
            );
            return deleting(context, clusters, cluster, reason.holds().because(message)).await;
        }
    }
    let finalizers: Vec<&String> = cluster
        .finalizers()
        .iter()
        .filter(|f| *f != names::CLUSTER_FINALIZER)
        .collect();
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": cluster.resource_version()}});
    match clusters
        .patch(
            &cluster.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(api("removing the finalizer")(error)),
    }
    context.workloads.forget(&Key::of(cluster));
    Ok(Requeue::Never)
}

/// Whether a Machine goes with its Cluster: unless its pool was let go of.
fn goes_with(context: &Context, machine: &Machine, cluster: &Cluster) -> bool {
    let pool = context.caches.pool_of(machine);
    pool.is_none_or(|pool| owners::is_owned_by(&*pool, cluster))
}

async fn deleting(
    context: &Context,
    clusters: &Api<Cluster>,
    cluster: &Cluster,
    said: Said,
) -> Result<Requeue, PassError> {
    let mut status = cluster.status.clone().unwrap_or_default();
    status.phase = Some(ClusterPhase::Deleting);
    let said = vec![said, types::Paused::NotPaused.fails()];
    put(context, clusters, cluster, status, said).await?;
    Ok(Requeue::After(LEVEL))
}

/// Tells that the Cluster is left alone.
pub(super) async fn paused(
    context: &Context,
    clusters: &Api<Cluster>,
    cluster: &Cluster,
    pause: Pause,
) -> Result<Requeue, PassError> {
    let status = cluster.status.clone().unwrap_or_default();
    let said = types::Paused::Paused.holds().because(pause.told("Cluster"));
    put(context, clusters, cluster, status, vec![said]).await?;
    Ok(Requeue::Never)
}

async fn put(
    context: &Context,
    clusters: &Api<Cluster>,
    cluster: &Cluster,
    mut status: ClusterStatus,
    said: Vec<Said>,
) -> Result<(), PassError> {
    for said in said {
        conditions::set(
            &mut status.conditions,
            said,
            cluster.metadata.generation,
            context.clock.now(),
        );
    }
    if cluster.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let patch = json!({"status": difference(&cluster.status, &status)});
    let written = clusters
        .patch_status(
            &cluster.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await;
    match written {
        Ok(patched) => context.caches.clusters.absorb(patched),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(api("writing the status")(error)),
    }
    Ok(())
}

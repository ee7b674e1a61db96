//! Clusters: infrastructure, endpoint, connection, counters; and the order in which a Cluster's parts go.

mod leave;
mod version;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Resource, ResourceExt};
use muster_api::cluster::{ClusterInitialization, ClusterPhase, ReplicaCounts};
use muster_api::conditions::{self, Reason as _, Said, Status, types};
use muster_api::{Cluster, MachinePool, contract, names};
use muster_caches::{Management, in_namespace};
use muster_informers::{Key, Options, Requeue};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::objects::{Found, owner_key};
use crate::ownership::own;
use crate::{Context, PassError, api, difference};

pub(crate) fn key_of(_: &Management, object: &DynamicObject) -> Option<Key> {
    owner_key(object, "Cluster")
}

pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    tokio::select! {
        synced = context.caches.synced() => if synced.is_err() { return },
        () = stop.cancelled() => return,
    }
    let feeder = Arc::clone(&context);
    let feed = tokio::spawn(async move {
        let mut clusters = feeder.caches.clusters.subscribe();
        let mut pools = feeder.caches.pools.subscribe();
        let mut machines = feeder.caches.machines.subscribe();
        let mut secrets = feeder.caches.secrets.subscribe();
        let q = &feeder.clusters;
        loop {
            tokio::select! {
                Some(change) = clusters.recv() => change.either().for_each(|c| q.add(Key::of(&**c))),
                Some(change) = pools.recv() => change.either()
                    .for_each(|p| q.add(Key::new(p.namespace().unwrap_or_default(), &p.spec.cluster_name))),
                // Machines matter to a Cluster that waits for the last of them to go.
                Some(change) = machines.recv() => if let (Some(old), None) = (&change.old, &change.new) {
                    q.add(Key::new(old.namespace().unwrap_or_default(), &old.spec.cluster_name));
                },
                Some(change) = secrets.recv() => for secret in change.either() {
                    if let Some(cluster) = names::CLUSTER_NAME.text(&**secret) {
                        q.add(Key::new(secret.namespace().unwrap_or_default(), cluster));
                    }
                },
                else => return,
            }
        }
    });
    let options = Options {
        coalesce: std::time::Duration::from_millis(50),
        ..Options::new("cluster")
    };
    let queue = context.clusters.clone();
    queue
        .run(options, stop, move |key| {
            let context = Arc::clone(&context);
            async move { pass(&context, &key).await }
        })
        .await;
    feed.abort();
}

async fn pass(context: &Context, key: &Key) -> Result<Requeue, PassError> {
    let Some(cluster) = context.caches.clusters.get(key) else {
        context.workloads.forget(key);
        return Ok(Requeue::Never);
    };
    let clusters: Api<Cluster> = Api::namespaced(context.client.clone(), &key.namespace);
    if let Some(pause) = context.caches.pause_of(&*cluster, &key.name) {
        return leave::paused(context, &clusters, &cluster, pause).await;
    }
    if cluster.metadata.deletion_timestamp.is_some() {
        return leave::pass(context, &clusters, &cluster).await;
    }
    let cluster = if cluster
        .finalizers()
        .iter()
        .any(|f| f == names::CLUSTER_FINALIZER)
    {
        cluster
    } else {
        let mut finalizers = cluster.finalizers().to_vec();
        finalizers.push(names::CLUSTER_FINALIZER.to_owned());
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": cluster.resource_version()}});
        let patched = clusters
            .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(api("adding the finalizer"))?;
        context.caches.clusters.absorb(patched.clone());
        Arc::new(patched)
    };
    let mut next = (*cluster).clone();
    let (infrastructure, requeue) = infrastructure(context, &mut next).await?;
    if next.spec != cluster.spec {
        let patch = json!({"spec": {"controlPlaneEndpoint": next.spec.control_plane_endpoint}});
        let patched = clusters
            .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map_err(api("writing the endpoint"))?;
        next.metadata = patched.metadata.clone();
        context.caches.clusters.absorb(patched);
    }
    let connection = match next
        .spec
        .control_plane_endpoint
        .as_ref()
        .is_some_and(|e| e.is_complete())
    {
        true => context.workloads.connect(key).await.map(|_| ()),
        false => Err("waiting for the control plane's endpoint".to_owned()),
    };
    let retry = connection.is_err();
    status(
        context,
        &clusters,
        &cluster,
        next,
        infrastructure,
        connection,
    )
    .await?;
    Ok(if retry {
        Requeue::After(std::time::Duration::from_secs(10))
    } else {
        requeue
    })
}

/// The InfraCluster: owned, labelled, read.
async fn infrastructure(
    context: &Context,
    cluster: &mut Cluster,
) -> Result<(Said, Requeue), PassError> {
    let unready =
        |reason: types::InfrastructureReady, message: String| reason.fails().because(message);
    let Some(reference) = cluster.spec.infrastructure_ref.clone() else {
        return Ok((
            unready(
                types::InfrastructureReady::NotReady,
                "spec.infrastructureRef is not set".to_owned(),
            ),
            Requeue::Never,
        ));
    };
    let namespace = cluster.namespace().unwrap_or_default();
    let object = match context
        .objects
        .get(&namespace, &reference, &context.clusters, key_of)
        .await
    {
        Found::Here(object) => object,
        Found::Missing => {
            let message = format!(
                "{} {namespace}/{}, named by spec.infrastructureRef, does not exist",
                reference.kind, reference.name
            );
            // Only what it owns tells the Cluster of changes; one that is made later is looked for.
            return Ok((
                unready(types::InfrastructureReady::ObjectDoesNotExist, message),
                Requeue::After(std::time::Duration::from_secs(2)),
            ));
        }
        Found::Unusable(why) => {
            return Ok((
                unready(types::InfrastructureReady::InvalidConditionReported, why),
                Requeue::After(std::time::Duration::from_secs(10)),
            ));
        }
    };
    own(
        context,
        &namespace,
        &reference,
        &object,
        owner(cluster),
        &cluster.name_any(),
    )
    .await?;
    let status = cluster.status.get_or_insert_default();
    if contract::is_provisioned(&object) {
        let done = status.initialization.get_or_insert_default();
        done.infrastructure_provisioned = Some(true);
        status.failure_domains = contract::failure_domains(&object);
        if let Some(endpoint) = contract::control_plane_endpoint(&object) {
            cluster.spec.control_plane_endpoint = Some(endpoint);
        }
        version::note(context, cluster, &object).await;
        return Ok((types::InfrastructureReady::Ready.holds(), Requeue::Never));
    }
    let message = contract::ready_condition(&object)
        .map(|(_, _, message)| message)
        .unwrap_or_default();
    let message = if message.is_empty() {
        format!(
            "{} {} is not provisioned yet",
            reference.kind, reference.name
        )
    } else {
        message
    };
    Ok((
        unready(types::InfrastructureReady::NotReady, message),
        Requeue::Never,
    ))
}

fn owner(cluster: &Cluster) -> OwnerReference {
    OwnerReference {
        block_owner_deletion: Some(true),
        ..cluster.controller_owner_ref(&()).unwrap_or_default()
    }
}

async fn status(
    context: &Context,
    clusters: &Api<Cluster>,
    before: &Cluster,
    mut next: Cluster,
    infrastructure: Said,
    connection: Result<(), String>,
) -> Result<(), PassError> {
    let now = context.clock.now();
    let generation = next.metadata.generation;
    let namespace = next.namespace().unwrap_or_default();
    let value = in_namespace(&namespace, &next.name_any());
    let pools = context
        .caches
        .pools
        .by(context.caches.pools_by_cluster, &value);
    let provisioned = infrastructure.status == Status::True;
    let status = next.status.get_or_insert_default();
    let mut done = status.initialization.unwrap_or_default();
    if connection.is_ok() {
        done.control_plane_initialized = Some(true);
    }
    status.initialization = (done != ClusterInitialization::default()).then_some(done);
    status.workers = Some(workers(&pools));
    status.phase = Some(
        match (provisioned, next.spec.control_plane_endpoint.is_some()) {
            (true, true) => ClusterPhase::Provisioned,
            (false, _) if next.spec.infrastructure_ref.is_some() => ClusterPhase::Provisioning,
            (true, false) => ClusterPhase::Provisioning,
            (false, _) => ClusterPhase::Pending,
        },
    );
    status.observed_generation = generation;
    let control_plane = match (&connection, done.control_plane_initialized) {
        (_, Some(true)) => types::ControlPlaneInitialized::Initialized.holds(),
        (Err(why), _) => types::ControlPlaneInitialized::NotInitialized
            .fails()
            .because(why),
        (Ok(()), _) => types::ControlPlaneInitialized::NotInitialized.fails(),
    };
    let probe = match &connection {
        Ok(()) => types::RemoteConnectionProbe::ProbeSucceeded.holds(),
        Err(why) => types::RemoteConnectionProbe::ProbeFailed
            .fails()
            .because(why),
    };
    let good = provisioned && connection.is_ok();
    let available = if good {
        types::Available::Available.holds()
    } else {
        types::Available::NotAvailable.fails()
    }
    .because(
        [&infrastructure, &control_plane]
            .iter()
            .filter(|said| said.status != Status::True)
            .map(|said| {
                format!(
                    "* {}: {}",
                    said.type_,
                    if said.message.is_empty() {
                        &said.reason
                    } else {
                        &said.message
                    }
                )
            })
            .collect::<Vec<_>>()
            .join("\n"),
    );
    for said in [
        available,
        infrastructure,
        control_plane,
        probe,
        types::Deleting::NotDeleting.fails(),
        types::Paused::NotPaused.fails(),
    ] {
        conditions::set(&mut status.conditions, said, generation, now);
    }
    if before.status == next.status {
        return Ok(());
    }
    let patch = json!({"status": difference(&before.status, &next.status)});
    let patched = clusters
        .patch_status(
            &next.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .map_err(api("writing the status"))?;
    context.caches.clusters.absorb(patched);
    // What waited for the Cluster goes on.
    for pool in pools {
        context.pools.add(Key::of(&*pool));
    }
    Ok(())
}

fn workers(pools: &[Arc<MachinePool>]) -> ReplicaCounts {
    let sum = |of: fn(&MachinePool) -> Option<i32>| {
        Some(pools.iter().map(|pool| of(pool).unwrap_or(0)).sum())
    };
    ReplicaCounts {
        desired_replicas: sum(|pool| {
            Some(i32::try_from(pool.desired_replicas()).unwrap_or(i32::MAX))
        }),
        replicas: sum(|pool| pool.status.as_ref()?.replicas),
        ready_replicas: sum(|pool| pool.status.as_ref()?.ready_replicas),
        available_replicas: sum(|pool| pool.status.as_ref()?.available_replicas),
        up_to_date_replicas: sum(|pool| pool.status.as_ref()?.up_to_date_replicas),
        ..ReplicaCounts::default()
    }
}

//! SimClusters: each gets a workload cluster and the Secret with its kubeconfig.

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use muster_api::conditions::{self, Reason as _, Said};
use muster_api::sim::SimClusterStatus;
use muster_api::{Cluster, SimCluster, names};
use muster_apiserver::{Host, failure::Failure};
use muster_caches::{Management, in_namespace};
use muster_clock::Clock;
use muster_informers::{Informer, Key, Options, Queue, Requeue};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::workload::Agents;

const FINALIZER: &str = "infrastructure.muster.dev/cluster";

/// Where workload clusters are reached, and how.
pub trait KubeconfigSource: Send + Sync + 'static {
    /// Host and port of the API.
    fn endpoint(&self) -> (String, i32);

    /// A kubeconfig of the logical cluster `logical`, in which it is called `name`.
    fn kubeconfig(&self, logical: &str, name: &str) -> String;
}

/// Name of a Cluster's logical cluster. A namespace has no dots, so no two Clusters share one.
pub fn logical_name(cluster: &Key) -> String {
    format!("{}.{}", cluster.namespace, cluster.name)
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error("the management API refused: {0}")]
    Api(#[from] kube::Error),
    #[error("the workload cluster cannot be made: {0}")]
    Workload(String),
}

impl From<Failure> for PassError {
    fn from(failure: Failure) -> Self {
        Self::Workload(failure.to_string())
    }
}

struct Context {
    client: Client,
    caches: Management,
    host: Host,
    agents: Agents,
    kubeconfigs: Arc<dyn KubeconfigSource>,
    clusters: Informer<SimCluster>,
    clock: Clock,
}

/// Runs the reconciler of SimClusters until `stop`.
pub(crate) async fn run(
    client: Client,
    caches: Management,
    host: Host,
    agents: Agents,
    kubeconfigs: Arc<dyn KubeconfigSource>,
    clock: Clock,
    stop: CancellationToken,
) {
    let clusters = Informer::builder(Api::<SimCluster>::all(client.clone())).start();
    let context = Arc::new(Context {
        client,
        caches,
        host,
        agents,
        kubeconfigs,
        clusters,
        clock,
    });
    let ready =
        async { context.caches.synced().await.is_ok() && context.clusters.synced().await.is_ok() };
    tokio::select! {
        ready = ready => if !ready { return },
        () = stop.cancelled() => return,
    }
    let queue: Queue<Key> = Queue::default();
    let (feed, mut changes, mut owners, mut pools) = (
        queue.clone(),
        context.clusters.subscribe(),
        context.caches.clusters.subscribe(),
        context.caches.pools.subscribe(),
    );
    let lookup = Arc::clone(&context);
    let feeder = tokio::spawn(async move {
        loop {
            tokio::select! {
                Some(change) = changes.recv() => change.either().for_each(|cluster| feed.add(Key::of(&**cluster))),
                Some(change) = owners.recv() => change.either().filter_map(|c| infra_key(c)).for_each(|key| feed.add(key)),
                Some(change) = pools.recv(), if !pools.is_closed() => {
                    if change.new.is_none() {
                        for pool in change.either() {
                            let key = Key::new(pool.namespace().unwrap_or_default(), &pool.spec.cluster_name);
                            if let Some(key) = lookup.caches.clusters.get(&key).and_then(|c| infra_key(&c)) {
                                feed.add(key);
                            }
                        }
                    }
                }
                else => return,
            }
        }
    });
    queue
        .run(Options::new("sim-cluster"), stop, move |key| {
            let context = Arc::clone(&context);
            async move { pass(&context, &key).await }
        })
        .await;
    feeder.abort();
}

fn infra_key(cluster: &Cluster) -> Option<Key> {
    let infra = cluster.spec.infrastructure_ref.as_ref()?;
    (infra.kind == "SimCluster")
        .then(|| Key::new(cluster.namespace().unwrap_or_default(), &infra.name))
}

async fn pass(context: &Context, key: &Key) -> Result<Requeue, PassError> {
    let Some(object) = context.clusters.get(key) else {
        return Ok(Requeue::Never);
    };
    let api: Api<SimCluster> = Api::namespaced(context.client.clone(), &key.namespace);
    let owner = object
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "Cluster");
    let Some(owner) = owner else {
        if object.metadata.deletion_timestamp.is_some() {
            release(&api, &object).await?;
        }
        return Ok(Requeue::Never);
    };
    if let Some(pause) = context.caches.pause_of(&*object, &owner.name) {
        let said = conditions::types::Paused::Paused
            .holds()
            .because(pause.told("SimCluster"));
        let status = object.status.clone().unwrap_or_default();
        put(context, &api, &object, status, vec![said]).await?;
        return Ok(Requeue::Never);
    }
    let cluster_key = Key::new(&key.namespace, &owner.name);
    let logical = logical_name(&cluster_key);
    if object.metadata.deletion_timestamp.is_some() {
        let pools = context.caches.pools.count(
            context.caches.pools_by_cluster,
            &in_namespace(&key.namespace, &owner.name),
        );
        if pools > 0 {
            return Ok(Requeue::Never);
        }
        context.agents.stop(&logical);
        context.host.remove(&logical).await?;
        release(&api, &object).await?;
        return Ok(Requeue::Never);
    }
    if !object
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == FINALIZER)
    {
        let mut finalizers = object.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": object.resource_version()}});
        let patched = api
            .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        context.clusters.absorb(patched);
        return Ok(Requeue::After(std::time::Duration::ZERO));
    }
    context.host.cluster(&logical).await?;
    context.agents.ensure_cluster(&logical);
    write_kubeconfig(context, &cluster_key, owner, &logical).await?;
    let (host, port) = context.kubeconfigs.endpoint();
    let endpoint = muster_api::cluster::ApiEndpoint { host, port };
    if object.spec.control_plane_endpoint.as_ref() != Some(&endpoint) {
        let patch = json!({"spec": {"controlPlaneEndpoint": endpoint}});
        let patched = api
            .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        context.clusters.absorb(patched);
    }
    write_status(context, &api, &object).await?;
    Ok(Requeue::Never)
}

async fn write_status(
    context: &Context,
    api: &Api<SimCluster>,
    object: &SimCluster,
) -> Result<(), PassError> {
    let mut status = object.status.clone().unwrap_or_default();
    status.ready = true;
    status.initialization = Some(muster_api::sim::InfrastructureInitialization {
        provisioned: Some(true),
    });
    status.version = object.spec.kubernetes_version.clone();
    status.failure_domains = object
        .spec
        .failure_domains
        .iter()
        .map(|name| muster_api::cluster::FailureDomain {
            name: name.clone(),
            ..Default::default()
        })
        .collect();
    let said = vec![
        conditions::types::Ready::Ready.holds(),
        conditions::types::Paused::NotPaused.fails(),
    ];
    put(context, api, object, status, said).await
}

async fn put(
    context: &Context,
    api: &Api<SimCluster>,
    object: &SimCluster,
    mut status: SimClusterStatus,
    said: Vec<Said>,
) -> Result<(), PassError> {
    for said in said {
        conditions::set(
            &mut status.conditions,
            said,
            object.metadata.generation,
            context.clock.now(),
        );
    }
    if object.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let patch = json!({"status": status});
    let patched = api
        .patch_status(
            &object.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await?;
    context.clusters.absorb(patched);
    Ok(())
}

async fn release(api: &Api<SimCluster>, object: &SimCluster) -> Result<(), PassError> {
    let finalizers: Vec<&String> = object
        .finalizers()
        .iter()
        .filter(|f| *f != FINALIZER)
        .collect();
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": object.resource_version()}});
    match api
        .patch(
            &object.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn write_kubeconfig(
    context: &Context,
    cluster: &Key,
    owner: &OwnerReference,
    logical: &str,
) -> Result<(), PassError> {
    let name = names::kubeconfig_secret(&cluster.name);
    let text = context.kubeconfigs.kubeconfig(logical, &cluster.name);
    let wanted = ByteString(text.into_bytes());
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &cluster.namespace);
    let current = context
        .caches
        .secrets
        .get(&Key::new(&cluster.namespace, &name));
    let owned = OwnerReference {
        controller: Some(true),
        ..owner.clone()
    };
    let same = current.as_ref().is_some_and(|secret| {
        let owners = secret.owner_references();
        let ours = owners.iter().any(|found| found.uid == owned.uid);
        let same_data = secret
            .data
            .as_ref()
            .and_then(|data| data.get(names::SECRET_VALUE))
            == Some(&wanted);
        ours && same_data
    });
    if same {
        return Ok(());
    }
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": {names::CLUSTER_NAME: cluster.name},
            "ownerReferences": [owned],
        },
        "type": names::SECRET_TYPE,
        "data": {names::SECRET_VALUE: wanted},
    }))
    .expect("a Secret of this form deserializes");
    let written = match api.create(&PostParams::default(), &secret).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let patch = json!({
                "metadata": {"ownerReferences": [owned]},
                "data": {names::SECRET_VALUE: wanted},
            });
            api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await?
        }
        done => done?,
    };
    context.caches.secrets.absorb(written);
    Ok(())
}

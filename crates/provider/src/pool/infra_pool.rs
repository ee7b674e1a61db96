//! The InfraMachinePool object itself: its finalizer, what must be there before instances are launched, its status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use muster_api::conditions::types::Ready;
use muster_api::conditions::{self, Reason as _, Said};
use muster_informers::Key;
use serde_json::{Value, json};

use super::{Context, POOL_FINALIZER, PassError, Seen, Stop, api, referring};
use crate::scale_group::{Group, ScaleGroup};

/// What keeps a pool from going on, as its Ready condition says it.
pub(super) struct Blocked {
    pub(super) reason: Ready,
    pub(super) message: String,
}

pub(super) fn blocked(reason: Ready, message: impl Into<String>) -> Stop {
    let message = message.into();
    Stop::Waits(Blocked { reason, message })
}

pub(super) fn pools<S>(context: &Context<S>, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(context.client.clone(), namespace, &context.kinds.pool)
}

/// Whether the group was there at the end of an earlier pass.
pub(super) fn is_provisioned(object: &DynamicObject) -> bool {
    object.data["status"]["initialization"]["provisioned"] == true
}

pub(super) async fn ensure_finalizer<S>(
    context: &Context<S>,
    seen: &Seen,
) -> Result<(), PassError> {
    let has = seen.object.finalizers().iter().any(|f| f == POOL_FINALIZER);
    // None may be added to what is being deleted.
    if has || seen.object.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let mut finalizers = seen.object.finalizers().to_vec();
    finalizers.push(POOL_FINALIZER.to_owned());
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": seen.object.resource_version()}});
    let patched = pools(context, &seen.key.namespace)
        .patch(
            &seen.key.name,
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .map_err(api("adding the finalizer"))?;
    context.pools.absorb(patched);
    Ok(())
}

/// Checks that everything is there that instances need; returns the zones to launch in.
pub(super) async fn may_begin<S: ScaleGroup>(
    context: &Context<S>,
    seen: &Seen,
) -> Result<Vec<String>, Stop> {
    let Seen {
        key,
        object,
        pool,
        cluster,
    } = seen;
    let others: Vec<String> = referring(context, key)
        .iter()
        .filter(|other| other.metadata.uid != pool.metadata.uid)
        .map(|other| other.name_any())
        .collect();
    if !others.is_empty() {
        tracing::debug!(pool = %key, ?others, "further MachinePools refer to this scale group and are ignored");
    }
    if let Some(replicas) = pool.spec.replicas.filter(|replicas| *replicas < 0) {
        return Err(blocked(
            Ready::InvalidReplicas,
            format!(
                "spec.replicas of MachinePool {} is {replicas}; it must be 0 or more, and the pool keeps its size until it is corrected",
                pool.name_any()
            ),
        ));
    }
    let status = cluster.status.as_ref();
    let provisioned = status
        .and_then(|status| status.initialization.as_ref())
        .and_then(|done| done.infrastructure_provisioned)
        .unwrap_or(false);
    if !provisioned {
        return Err(blocked(
            Ready::WaitingForClusterInfrastructure,
            format!(
                "waiting for the infrastructure of Cluster {} to be provisioned",
                cluster.name_any()
            ),
        ));
    }
    if let Some(secret) = pool
        .spec
        .template
        .spec
        .bootstrap
        .data_secret_name
        .as_deref()
        .filter(|n| !n.is_empty())
    {
        let cached = context
            .caches
            .secrets
            .get(&Key::new(&key.namespace, secret))
            .is_some();
        if !cached && !exists(context, &key.namespace, secret).await? {
            return Err(blocked(
                Ready::BootstrapSecretMissing,
                format!(
                    "Secret {}/{secret}, named by spec.template.spec.bootstrap.dataSecretName of MachinePool {}, does not exist; create it with the bootstrap data under the key \"value\"",
                    key.namespace,
                    pool.name_any()
                ),
            ));
        }
    } else if !context.cloud.adopts(object) {
        return Err(blocked(
            Ready::WaitingForBootstrapData,
            format!(
                "waiting for bootstrap data of MachinePool {}",
                pool.name_any()
            ),
        ));
    }
    let known: Vec<String> = status
        .into_iter()
        .flat_map(|s| &s.failure_domains)
        .map(|d| d.name.clone())
        .collect();
    let own: Vec<String> = object.data["spec"]["zones"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|zone| zone.as_str().map(str::to_owned))
        .collect();
    let (zones, field) = if !own.is_empty() {
        (
            own,
            format!("spec.zones of {} {}", context.kinds.pool.kind, key.name),
        )
    } else if !pool.spec.failure_domains.is_empty() {
        let field = format!("spec.failureDomains of MachinePool {}", pool.name_any());
        (pool.spec.failure_domains.clone(), field)
    } else {
        (known.clone(), String::new())
    };
    if let Some(unknown) = zones
        .iter()
        .find(|zone| !known.is_empty() && !known.contains(zone))
    {
        return Err(blocked(
            Ready::UnknownZone,
            format!(
                "{field} names the zone {unknown:?}, which Cluster {} does not have; it has: {}",
                cluster.name_any(),
                known.join(", ")
            ),
        ));
    }
    Ok(zones)
}

async fn exists<S>(context: &Context<S>, namespace: &str, secret: &str) -> Result<bool, PassError> {
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(context.client.clone(), namespace);
    let found = secrets
        .get_metadata_opt(secret)
        .await
        .map_err(api("looking for the bootstrap Secret"))?;
    Ok(found.is_some())
}

fn condition_list(object: &DynamicObject) -> Vec<Condition> {
    serde_json::from_value(object.data["status"]["conditions"].clone()).unwrap_or_default()
}

/// Says why the pool does not go on; what it has reached stays reached.
pub(super) async fn not_ready<S>(
    context: &Context<S>,
    seen: &Seen,
    why: &Blocked,
) -> Result<(), PassError> {
    let said = why.reason.fails().because(&why.message);
    let object = context
        .pools
        .get(&seen.key)
        .unwrap_or_else(|| seen.object.clone());
    write(context, &object, json!({}), said).await
}

pub(super) async fn write_status<S: ScaleGroup>(
    context: &Context<S>,
    seen: &Seen,
    group: &Group,
    individual: bool,
    refused: Option<String>,
) -> Result<(), PassError> {
    let mut ids: Vec<&str> = group
        .instances
        .iter()
        .map(|i| i.provider_id.as_str())
        .collect();
    ids.sort_unstable();
    let Some(mut object) = context.pools.get(&seen.key) else {
        return Ok(());
    };
    let spec = json!({"providerIDList": ids});
    let listed = &object.data["spec"]["providerIDList"];
    if *listed != spec["providerIDList"] && !(ids.is_empty() && listed.is_null()) {
        let patched = pools(context, &seen.key.namespace)
            .patch(
                &seen.key.name,
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": spec})),
            )
            .await
            .map_err(api("writing providerIDList"))?;
        context.pools.absorb(patched.clone());
        object = std::sync::Arc::new(patched);
    }
    let live = group.instances.iter().filter(|i| i.is_live()).count();
    let mut status = json!({
        "ready": true,
        "initialization": {"provisioned": true},
        "replicas": live,
    });
    if individual {
        status["infrastructureMachineKind"] = context.cloud.machine_kind().into();
    }
    if let Some(shape) = context.cloud.node_shape(&object) {
        status["capacity"] = json!(shape.capacity);
        status["nodeInfo"] = json!({
            "architecture": shape.architecture,
            "operatingSystem": shape.operating_system,
        });
    }
    let said = match (refused, &group.trouble) {
        _ if object.metadata.deletion_timestamp.is_some() => {
            Ready::HeldByMachinePool.fails().because(held(seen))
        }
        (Some(why), _) => Ready::KubeletTooNew.fails().because(why),
        (None, None) => Ready::Ready.holds(),
        (None, Some(trouble)) => Ready::CloudTrouble.fails().because(trouble),
    };
    write(context, &object, status, said).await
}

/// Why an InfraMachinePool that is being deleted stays.
fn held(seen: &Seen) -> String {
    let pool = seen.pool.name_any();
    format!(
        "{} {} is being deleted, but MachinePool {pool} still refers to it, so it is held and its machines go on: delete MachinePool {pool}, or let its spec.template.spec.infrastructureRef name another",
        seen.object.types.as_ref().map_or("it", |types| &types.kind),
        seen.key
    )
}

/// Says something of an InfraMachinePool in a condition, and nothing else.
pub(super) async fn say<S>(
    context: &Context<S>,
    object: &DynamicObject,
    said: Said,
) -> Result<(), PassError> {
    write_conditions(context, object, json!({}), vec![said]).await
}

async fn write<S>(
    context: &Context<S>,
    object: &DynamicObject,
    status: Value,
    said: Said,
) -> Result<(), PassError> {
    let paused = conditions::types::Paused::NotPaused.fails();
    write_conditions(context, object, status, vec![said, paused]).await
}

async fn write_conditions<S>(
    context: &Context<S>,
    object: &DynamicObject,
    mut status: Value,
    all: Vec<Said>,
) -> Result<(), PassError> {
    let now = context.clock.now();
    let before = &object.data["status"];
    let mut list = condition_list(object);
    for said in all {
        conditions::set(&mut list, said, object.metadata.generation, now);
    }
    status["conditions"] = json!(list);
    let same = status
        .as_object()
        .into_iter()
        .flatten()
        .all(|(field, value)| before.get(field) == Some(value));
    if same {
        return Ok(());
    }
    let namespace = object.namespace().unwrap_or_default();
    let patched = pools(context, &namespace)
        .patch_status(
            &object.name_any(),
            &PatchParams::default(),
            &Patch::Merge(json!({"status": status})),
        )
        .await
        .map_err(api("writing the status"))?;
    context.pools.absorb(patched);
    Ok(())
}

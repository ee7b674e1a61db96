//! What is paused is left alone, and says so.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use muster_api::conditions::{self, Reason as _, types};
use muster_api::{MachinePool, names};
use muster_caches::Pause;
use muster_informers::Requeue;
use serde_json::json;

use super::ending::machines;
use super::{Context, PassError, api, infra_pool};

/// Why an InfraMachinePool is to be left alone: by its own will, its MachinePool's or its Cluster's.
pub(super) fn of_pool<S>(
    context: &Context<S>,
    object: &DynamicObject,
    owner: Option<&MachinePool>,
) -> Option<String> {
    let kind = &context.kinds.pool.kind;
    let cluster = match owner {
        Some(pool) => pool.spec.cluster_name.as_str(),
        None => names::CLUSTER_NAME.text(object).unwrap_or_default(),
    };
    if let Some(pause) = context.caches.pause_of(object, cluster) {
        return Some(pause.told(kind));
    }
    let pause = context.caches.pause_of(owner?, cluster)?;
    Some(pause.told("MachinePool"))
}

/// Says of an InfraMachinePool that it is left alone.
pub(super) async fn say_of_pool<S>(
    context: &Context<S>,
    object: &DynamicObject,
    why: String,
) -> Result<Requeue, PassError> {
    let said = types::Paused::Paused.holds().because(why);
    infra_pool::say(context, object, said).await?;
    Ok(Requeue::Never)
}

/// Whether an InfraMachine is to be left alone by its own will. What its pool wants was asked before.
pub(super) fn is_paused(machine: &DynamicObject) -> bool {
    names::PAUSED.is_on(machine)
}

/// Says of an InfraMachine that it is left alone.
pub(super) async fn say<S>(
    context: &Context<S>,
    machine: &Arc<DynamicObject>,
) -> Result<(), PassError> {
    let before = &machine.data["status"]["conditions"];
    let mut list: Vec<Condition> = serde_json::from_value(before.clone()).unwrap_or_default();
    let why = Pause::Own.told(&context.kinds.machine.kind);
    let said = types::Paused::Paused.holds().because(why);
    conditions::set(
        &mut list,
        said,
        machine.metadata.generation,
        context.clock.now(),
    );
    let patch = json!({"status": {"conditions": list}});
    if *before == patch["status"]["conditions"] {
        return Ok(());
    }
    let namespace = machine.namespace().unwrap_or_default();
    let name = machine.name_any();
    match machines(context, &namespace)
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(written) => context.machines.absorb(written),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(api(format!("writing the status of {name}"))(error)),
    }
    Ok(())
}

//! One InfraMachine per instance: made when the instance appears, kept in step, and the way by which exactly that
//! instance is terminated.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use muster_api::conditions::{self, Reason as _};
use muster_api::names::INFRA_MACHINE_FINALIZER;
use muster_api::{contract, names};
use serde_json::json;

use super::ending::{delete_machine, machine_of, machines, may_end, release, second, vanished};
use super::{Context, PARALLEL, PassError, Seen, api, cloud, members, pause};
use crate::scale_group::{Group, Instance, InstanceState, ScaleGroup, Size};

/// Brings InfraMachines and instances together; `size` follows the terminations that lower it.
pub(super) async fn reconcile<S: ScaleGroup>(
    context: &Context<S>,
    seen: &Seen,
    group: &Group,
    size: &mut u32,
) -> Result<(), PassError> {
    let existing = members::of_pool(context, &seen.key, Some(&seen.pool), group);
    let by_id: HashMap<String, Arc<DynamicObject>> = existing
        .iter()
        .filter_map(|machine| Some((contract::provider_id(machine)?, Arc::clone(machine))))
        .collect();
    let new = group.instances.iter().filter(|instance| {
        instance.state != InstanceState::Terminating && !by_id.contains_key(&instance.provider_id)
    });
    let made: Vec<BoxFuture<'_, Result<(), PassError>>> = new
        .map(|instance| create(context, seen, instance).boxed())
        .collect();
    together(made).await?;
    let instances: HashMap<&str, &Instance> = group
        .instances
        .iter()
        .map(|instance| (instance.provider_id.as_str(), instance))
        .collect();
    let (mut ends, mut updates) = (Vec::new(), Vec::new());
    for machine in &existing {
        if pause::is_paused(machine) {
            pause::say(context, machine).await?;
            continue;
        }
        let instance =
            contract::provider_id(machine).and_then(|id| instances.get(id.as_str()).copied());
        match (instance, machine.metadata.deletion_timestamp.is_some()) {
            (None, true) => release(context, machine).await?,
            (None, false) => vanished(context, machine).await?,
            (Some(instance), true) => {
                if may_end(context, machine) && instance.state != InstanceState::Terminating {
                    ends.push(instance);
                }
            }
            (Some(instance), false) => updates.push((machine, instance)),
        }
    }
    if !ends.is_empty() {
        // A termination cannot be taken back, nor what it does to the size: that is decided on what is written now.
        super::size::refresh(context, seen).await?;
    }
    let desired = super::size::desired(context, seen, group);
    for instance in ends {
        // What an instance that leaves does to the size, the cloud decided already.
        let change = if instance.is_live() && *size > desired {
            Size::Lower
        } else {
            Size::Keep
        };
        context
            .cloud
            .terminate(&seen.key, &instance.id, change)
            .await
            .map_err(cloud(format!("terminating instance {}", instance.id)))?;
        if change == Size::Lower {
            *size -= 1;
        }
        tracing::info!(pool = %seen.key, instance = instance.id, ?change, "instance terminated");
    }
    let kept: Vec<BoxFuture<'_, Result<(), PassError>>> = updates
        .into_iter()
        .map(|(machine, instance)| {
            async move {
                let machine = members::restore(context, seen, machine).await?;
                keep_up(context, &machine, instance).await
            }
            .boxed()
        })
        .collect();
    together(kept).await
}

/// Carries out writes side by side, so many at a time; the first failure is told once all are done.
async fn together(writes: Vec<BoxFuture<'_, Result<(), PassError>>>) -> Result<(), PassError> {
    let done: Vec<Result<(), PassError>> = futures::stream::iter(writes)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    done.into_iter().collect()
}

/// The InfraMachine's name: the pool's and the end of the instance's, the same whenever it is derived.
fn name_of(pool: &str, instance: &str) -> String {
    let tail: String = instance
        .chars()
        .rev()
        .take(10)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect();
    let head: String = pool.chars().take(253 - 1 - tail.len()).collect();
    format!("{head}-{tail}")
}

async fn create<S: ScaleGroup>(
    context: &Context<S>,
    seen: &Seen,
    instance: &Instance,
) -> Result<(), PassError> {
    let name = name_of(&seen.key.name, &instance.id);
    let kind = &context.kinds.machine;
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": seen.key.namespace,
            "labels": {
                names::CLUSTER_NAME: seen.pool.spec.cluster_name,
                names::POOL_NAME: names::pool_label(&seen.pool.name_any()),
            },
            "finalizers": [INFRA_MACHINE_FINALIZER],
            "ownerReferences": [members::owner(context, seen)],
        },
        "spec": {"providerID": instance.provider_id},
    }))
    .expect("an object of this form deserializes");
    let api_of = machines(context, &seen.key.namespace);
    let created = match api_of.create(&PostParams::default(), &object).await {
        Ok(created) => created,
        // Made before a crash or a dropped watch; the cache will show it.
        Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
        Err(error) => return Err(api(format!("creating {} {name}", kind.kind))(error)),
    };
    context.machines.absorb(created.clone());
    keep_up(context, &created, instance).await
}

/// Writes what the cloud says of the instance, when it differs from what is written.
async fn keep_up<S: ScaleGroup>(
    context: &Context<S>,
    machine: &DynamicObject,
    instance: &Instance,
) -> Result<(), PassError> {
    let before = &machine.data["status"];
    let mut list: Vec<Condition> =
        serde_json::from_value(before["conditions"].clone()).unwrap_or_default();
    let said = match instance.state {
        InstanceState::Terminating => conditions::types::Ready::InstanceTerminating
            .fails()
            .because(format!("the cloud is terminating instance {}", instance.id)),
        InstanceState::Leaving => conditions::types::Ready::InstanceTerminating
            .fails()
            .because(format!(
                "the cloud wants to terminate instance {} and waits until it is drained",
                instance.id
            )),
        InstanceState::Pending | InstanceState::Running => conditions::types::Ready::Ready.holds(),
    };
    for said in [said, conditions::types::Paused::NotPaused.fails()] {
        conditions::set(
            &mut list,
            said,
            machine.metadata.generation,
            context.clock.now(),
        );
    }
    let mut status = json!({
        "ready": true,
        "initialization": {"provisioned": true},
        "failureDomain": instance.zone,
        "instanceState": instance.state.as_str(),
        "upToDate": instance.up_to_date,
        "conditions": list,
    });
    for (field, value) in &instance.details {
        status[field] = value.clone();
    }
    if !instance.addresses.is_empty() {
        status["addresses"] = json!(instance.addresses);
    }
    if instance.interruptible {
        status["interruptible"] = true.into();
    }
    if let Some(notice) = instance.notice {
        status["terminationNotice"] = second(notice);
    }
    let same = status
        .as_object()
        .into_iter()
        .flatten()
        .all(|(field, value)| before.get(field) == Some(value));
    if !same {
        let namespace = machine.namespace().unwrap_or_default();
        let patch = json!({"status": status});
        let written = machines(context, &namespace)
            .patch_status(
                &machine.name_any(),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await;
        match written {
            Ok(written) => context.machines.absorb(written),
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(error) => {
                return Err(api(format!("writing the status of {}", machine.name_any()))(error));
            }
        }
    }
    let deadline = instance
        .notice
        .or((instance.state == InstanceState::Terminating).then(|| context.clock.now()));
    let goes = deadline.is_some() || instance.state == InstanceState::Leaving;
    if goes
        && let Some(owner) = machine_of(context, machine)
        && !owner.is_deleting()
    {
        let note = match deadline {
            Some(deadline) => format!(
                "the cloud takes instance {} back by {}; the Machine is drained until then",
                instance.id,
                second(deadline).as_str().unwrap_or_default()
            ),
            None => format!(
                "the cloud wants to terminate instance {} and waits until the Machine is drained",
                instance.id
            ),
        };
        delete_machine(context, &owner, deadline, "InstanceTerminationNotice", note).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_derived_from_identity_and_fit() {
        assert_eq!(
            name_of("workers", "i-0123456789abcdef0"),
            "workers-789abcdef0"
        );
        assert_eq!(name_of(&"p".repeat(253), "i-0123456789abcdef0").len(), 253);
    }
}

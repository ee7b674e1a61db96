//! A pool's Machines: one per InfraMachine, named as it, kept in step with the template in place.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Resource, ResourceExt};
use muster_api::machine::{Bootstrap, MachineDeletionSpec, MachineSpec};
use muster_api::reference::ContractReference;
use muster_api::{Machine, MachinePool, contract, names};
use muster_caches::in_namespace;
use muster_informers::Key;
use serde_json::{Value, json};

use super::{Seen, key_of_machine};
use crate::{Context, PassError, api, difference};

/// Whose fields a pool's Machines carry.
const MANAGER: &str = "muster-machinepool";
/// How many Machines are written at once.
const PARALLEL: usize = 16;

pub(super) async fn reconcile(
    context: &Context,
    pool: &Arc<MachinePool>,
    kind: &ContractReference,
    seen: &mut Seen,
) -> Result<(), PassError> {
    let namespace = pool.namespace().unwrap_or_default();
    let infra = context
        .objects
        .of_pool(
            &namespace,
            kind,
            &pool.name_any(),
            &context.pools,
            key_of_machine,
        )
        .await
        .map_err(PassError::Blocked)?;
    seen.instances = infra
        .iter()
        .filter_map(|object| Some((object.name_any(), contract::is_up_to_date(object)?)))
        .collect();
    let value = in_namespace(&namespace, &pool.name_any());
    let existing = context
        .caches
        .machines
        .by(context.caches.machines_by_pool, &value);
    let have: HashSet<String> = existing.iter().map(|machine| machine.name_any()).collect();
    let mut writes: Vec<BoxFuture<'_, Result<(), PassError>>> = Vec::new();
    for object in &infra {
        let leaving = object.metadata.deletion_timestamp.is_some();
        if have.contains(&object.name_any()) || leaving {
            continue;
        }
        writes.push(apply(context, pool, kind, object, None).boxed());
    }
    for machine in existing.iter().filter(|machine| machine.is_deleting()) {
        let wanted = deletion(pool);
        if machine.spec.deletion.as_ref() != Some(&wanted) {
            writes.push(limit(context, machine, wanted).boxed());
        }
    }
    for machine in existing.iter().filter(|machine| !machine.is_deleting()) {
        if !in_step(machine, pool) {
            let infra = infra
                .iter()
                .find(|object| object.name_any() == machine.name_any());
            if let Some(object) = infra {
                writes.push(apply(context, pool, kind, object, Some(machine)).boxed());
            }
        }
    }
    let done: Vec<Result<(), PassError>> = futures::stream::iter(writes)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    done.into_iter().collect()
}

/// Labels that a pool's Machines carry.
pub(super) fn labels(pool: &MachinePool) -> BTreeMap<String, String> {
    let template = pool.spec.template.metadata.clone().unwrap_or_default();
    let mut labels = template.labels;
    labels.insert(names::CLUSTER_NAME.into(), pool.spec.cluster_name.clone());
    labels.insert(
        names::POOL_NAME.into(),
        names::pool_label(&pool.name_any()).into_owned(),
    );
    labels
}

fn annotations(pool: &MachinePool) -> BTreeMap<String, String> {
    pool.spec
        .template
        .metadata
        .clone()
        .unwrap_or_default()
        .annotations
}

/// The spec that the template gives to a Machine, apart from what is the Machine's own.
fn spec(
    pool: &MachinePool,
    infrastructure: ContractReference,
    version: Option<String>,
) -> MachineSpec {
    let template = &pool.spec.template.spec;
    MachineSpec {
        cluster_name: pool.spec.cluster_name.clone(),
        // An empty name marks a Machine whose pool has the bootstrap data. Source: Cluster API.
        bootstrap: Bootstrap {
            config_ref: None,
            data_secret_name: Some(String::new()),
        },
        infrastructure_ref: infrastructure,
        version,
        provider_id: None,
        failure_domain: None,
        min_ready_seconds: template.min_ready_seconds,
        readiness_gates: template.readiness_gates.clone(),
        deletion: Some(deletion(pool)),
        taints: template.taints.clone(),
    }
}

/// The limits that the template gives to the steps of a deletion.
fn deletion(pool: &MachinePool) -> MachineDeletionSpec {
    let given = pool.spec.template.spec.deletion.clone().unwrap_or_default();
    MachineDeletionSpec {
        // Source: Cluster API, which writes its default at admission.
        node_deletion_timeout_seconds: given.node_deletion_timeout_seconds.or(Some(10)),
        ..given
    }
}

/// Gives changed limits to a Machine that is going; nothing else of it changes any more.
async fn limit(
    context: &Context,
    machine: &Machine,
    wanted: MachineDeletionSpec,
) -> Result<(), PassError> {
    let namespace = machine.namespace().unwrap_or_default();
    let machines: Api<Machine> = Api::namespaced(context.client.clone(), &namespace);
    let before = json!({"deletion": machine.spec.deletion});
    let patch = json!({
        "metadata": {"uid": machine.uid()},
        "spec": difference(&before, &json!({"deletion": wanted})),
    });
    match machines
        .patch(
            &machine.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(patched) => context.caches.machines.absorb(patched),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(error) => return Err(api("writing the limits of the deletion")(error)),
    }
    Ok(())
}

/// Whether a Machine is as the template says. What was removed from the template is recognised by the fields that this
/// manager owns, which the cache does not keep; the pool's last applied labels are compared instead.
fn in_step(machine: &Machine, pool: &MachinePool) -> bool {
    let wanted = spec(
        pool,
        machine.spec.infrastructure_ref.clone(),
        machine.spec.version.clone(),
    );
    let same = machine.spec.min_ready_seconds == wanted.min_ready_seconds
        && machine.spec.readiness_gates == wanted.readiness_gates
        && machine.spec.deletion == wanted.deletion
        && machine.spec.taints == wanted.taints;
    let has = |have: &BTreeMap<String, String>, want: &BTreeMap<String, String>| {
        want.iter().all(|(key, value)| have.get(key) == Some(value))
    };
    let applied = machine
        .annotations()
        .get(APPLIED)
        .map(String::as_str)
        .unwrap_or_default();
    same && has(machine.labels(), &labels(pool))
        && has(machine.annotations(), &annotations(pool))
        && applied == keys(pool)
}

/// Annotation on a Machine: which labels and annotations came from the pool's template, so that their removal is seen.
const APPLIED: &str = "muster.dev/from-template";

fn keys(pool: &MachinePool) -> String {
    let list: Vec<String> = labels(pool)
        .into_keys()
        .chain(annotations(pool).into_keys())
        .collect();
    list.join(",")
}

async fn apply(
    context: &Context,
    pool: &MachinePool,
    kind: &ContractReference,
    infra: &DynamicObject,
    existing: Option<&Machine>,
) -> Result<(), PassError> {
    let namespace = pool.namespace().unwrap_or_default();
    let name = infra.name_any();
    let reference = ContractReference {
        name: name.clone(),
        ..kind.clone()
    };
    let version = existing
        .and_then(|machine| machine.spec.version.clone())
        .or_else(|| pool.spec.template.spec.version.clone());
    let mut annotations = annotations(pool);
    annotations.insert(APPLIED.to_owned(), keys(pool));
    // What it was launched with stays with it.
    let bootstrapped = existing
        .and_then(|machine| names::BOOTSTRAPPED_WITH.text(machine).map(str::to_owned))
        .or_else(|| pool.bootstrap_reference());
    if let Some(bootstrapped) = bootstrapped {
        annotations.insert(names::BOOTSTRAPPED_WITH.into(), bootstrapped);
    }
    let mut body = json!({
        "apiVersion": Machine::api_version(&()),
        "kind": Machine::kind(&()),
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels(pool),
            "annotations": annotations,
            "ownerReferences": [pool.controller_owner_ref(&())],
            "finalizers": [names::MACHINE_FINALIZER],
        },
        "spec": MachineSpec {
            provider_id: muster_api::contract::provider_id(infra),
            ..spec(pool, reference, version)
        },
    });
    if let Some(existing) = existing {
        // Only onto this very Machine: a deletion meanwhile is not undone by making another.
        body["metadata"]["uid"] = json!(existing.uid());
    }
    let machines: Api<Machine> = Api::namespaced(context.client.clone(), &namespace);
    let params = PatchParams::apply(MANAGER).force();
    match machines
        .patch(&name, &params, &Patch::Apply(body as Value))
        .await
    {
        Ok(machine) => {
            context.machines.add(Key::of(&machine));
            context.caches.machines.absorb(machine);
            Ok(())
        }
        Err(kube::Error::Api(status))
            if existing.is_some() && (status.is_conflict() || status.is_not_found()) =>
        {
            Ok(())
        }
        Err(error) => Err(api(format!("applying Machine {name}"))(error)),
    }
}

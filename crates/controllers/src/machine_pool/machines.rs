//! A pool's Machines: one per InfraMachine, named as it, kept in step with the template in place.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::runtime::events::EventType;
use kube::{Api, Resource, ResourceExt};
use muster_api::machine::{Bootstrap, MachineDeletionSpec, MachineSpec};
use muster_api::reference::ContractReference;
use muster_api::{Machine, MachinePool, contract, names, owners};
use muster_caches::reference;
use muster_informers::Key;
use muster_provider::events::about;
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
    infra_pool: &DynamicObject,
    kind: &ContractReference,
    seen: &mut Seen,
) -> Result<(), PassError> {
    let namespace = pool.namespace().unwrap_or_default();
    let mut infra = context
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
    let mut existing = context.caches.machines_of(&namespace, &pool.name_any());
    existing.retain(|machine| owners::is_controlled_by(&**machine, &**pool));
    let ours: HashSet<String> = existing.iter().filter_map(|m| m.uid()).collect();
    infra.retain(|object| is_ours(object, infra_pool, &ours));
    let mut known: HashSet<String> = infra.iter().map(|object| object.name_any()).collect();
    // One that lost its label is found through its Machine.
    for machine in &existing {
        let reference = &machine.spec.infrastructure_ref;
        if !known.contains(&reference.name)
            && let Some(object) = context.objects.cached(&namespace, reference)
        {
            known.insert(reference.name.clone());
            infra.push(object);
        }
    }
    seen.instances = infra
        .iter()
        .filter_map(|object| Some((object.name_any(), contract::is_up_to_date(object)?)))
        .collect();
    limit_leaving(context, pool, &existing).await?;
    let mut writes: Vec<BoxFuture<'_, Result<Option<Refused>, PassError>>> = Vec::new();
    for object in &infra {
        let leaving = object.metadata.deletion_timestamp.is_some();
        match holder(context, pool, kind, object) {
            Holder::Nobody if leaving => {}
            Holder::Nobody => writes.push(apply(context, pool, kind, object, None).boxed()),
            Holder::Ours(machine) if machine.is_deleting() || in_step(&machine, pool) => {}
            Holder::Ours(machine) => writes.push(
                async move {
                    let done = apply(context, pool, kind, object, Some(&machine)).await?;
                    tell(context, pool, &machine).await;
                    Ok(done)
                }
                .boxed(),
            ),
            Holder::Other(machine) => seen.refused.push(Refused {
                machine: machine.name_any(),
                whose: whose(&machine),
            }),
        }
    }
    let done: Vec<Result<Option<Refused>, PassError>> = futures::stream::iter(writes)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    for refused in done {
        seen.refused.extend(refused?);
    }
    seen.refused.sort();
    Ok(())
}

/// A Machine that has the name of an InfraMachine of the pool, and is not the pool's to write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refused {
    pub(crate) machine: String,
    /// Whom it belongs to, in words.
    pub(crate) whose: String,
}

/// Whether an InfraMachine with the pool's label is the pool's: its owners say so, or say nothing else.
fn is_ours(object: &DynamicObject, infra_pool: &DynamicObject, ours: &HashSet<String>) -> bool {
    if owners::is_owned_by(object, infra_pool) {
        return true;
    }
    if let Some(owner) = owners::controller(object).filter(|owner| owner.kind == "Machine") {
        return ours.contains(&owner.uid);
    }
    let kind = infra_pool.types.as_ref().map(|types| types.kind.as_str());
    let mut owners = object.owner_references().iter();
    !owners.any(|owner| Some(owner.kind.as_str()) == kind || owner.controller == Some(true))
}

/// Who stands for an InfraMachine.
enum Holder {
    /// A Machine of the pool, or one without controller that becomes it.
    Ours(Arc<Machine>),
    /// No Machine yet.
    Nobody,
    /// A Machine that is not the pool's has the name.
    Other(Arc<Machine>),
}

fn holder(
    context: &Context,
    pool: &MachinePool,
    kind: &ContractReference,
    object: &DynamicObject,
) -> Holder {
    let namespace = object.namespace().unwrap_or_default();
    let named = ContractReference {
        name: object.name_any(),
        ..kind.clone()
    };
    let mut referring = context.caches.machines.by(
        context.caches.machines_by_reference,
        &reference(&namespace, &named),
    );
    referring.sort_by_key(|machine| machine.name_any());
    let of_pool = referring
        .iter()
        .find(|machine| owners::is_controlled_by(&***machine, pool));
    let free = referring.iter().find(|machine| {
        owners::controller(&***machine).is_none()
            && machine.spec.cluster_name == pool.spec.cluster_name
    });
    match (of_pool.or(free), referring.first()) {
        (Some(machine), _) => Holder::Ours(Arc::clone(machine)),
        (None, Some(machine)) => Holder::Other(Arc::clone(machine)),
        (None, None) => match context
            .caches
            .machines
            .get(&Key::new(namespace, object.name_any()))
        {
            Some(machine) => Holder::Other(machine),
            None => Holder::Nobody,
        },
    }
}

fn whose(machine: &Machine) -> String {
    match owners::controller(machine) {
        Some(owner) => format!("{} {}", owner.kind, owner.name),
        None => format!(
            "nobody, and to {} {}",
            machine.spec.infrastructure_ref.kind, machine.spec.infrastructure_ref.name
        ),
    }
}

/// Says of a Machine that its membership was put back, where somebody had taken it away.
async fn tell(context: &Context, pool: &MachinePool, machine: &Machine) {
    let label = names::pool_label(&pool.name_any()).into_owned();
    let labelled = names::POOL_NAME.text(machine) == Some(&*label)
        && names::CLUSTER_NAME.text(machine) == Some(pool.spec.cluster_name.as_str());
    let (reason, note) = if !owners::is_controlled_by(machine, pool) {
        let note = format!("belongs to MachinePool {} from now on", pool.name_any());
        ("Adopted", note)
    } else if !labelled {
        let note = format!(
            "labels {} and {} say again that this Machine is of MachinePool {}, which owns it",
            names::CLUSTER_NAME,
            names::POOL_NAME,
            pool.name_any()
        );
        ("LabelRestored", note)
    } else {
        return;
    };
    context
        .events
        .say(&about(machine), EventType::Normal, reason, "Restore", note)
        .await;
}

/// Gives the pool's limits to its Machines that are going: a drain that hangs may be given one, or a longer one.
pub(super) async fn limit_leaving(
    context: &Context,
    pool: &MachinePool,
    machines: &[Arc<Machine>],
) -> Result<(), PassError> {
    let wanted = deletion(pool);
    let writes = machines
        .iter()
        .filter(|machine| machine.is_deleting())
        .filter(|machine| machine.spec.deletion.as_ref() != Some(&wanted))
        .map(|machine| limit(context, machine, wanted.clone()).boxed());
    let done: Vec<Result<(), PassError>> = futures::stream::iter(writes.collect::<Vec<_>>())
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
    bootstrap: Bootstrap,
    infrastructure: ContractReference,
    version: Option<String>,
) -> MachineSpec {
    let template = &pool.spec.template.spec;
    MachineSpec {
        cluster_name: pool.spec.cluster_name.clone(),
        bootstrap,
        infrastructure_ref: infrastructure,
        version,
        provider_id: None,
        failure_domain: template.failure_domain.clone(),
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
        machine.spec.bootstrap.clone(),
        machine.spec.infrastructure_ref.clone(),
        machine.spec.version.clone(),
    );
    let same = machine.spec.min_ready_seconds == wanted.min_ready_seconds
        && machine.spec.readiness_gates == wanted.readiness_gates
        && machine.spec.deletion == wanted.deletion
        && machine.spec.failure_domain == wanted.failure_domain
        && machine.spec.taints == wanted.taints;
    let has = |have: &BTreeMap<String, String>, want: &BTreeMap<String, String>| {
        want.iter().all(|(key, value)| have.get(key) == Some(value))
    };
    let applied = machine
        .annotations()
        .get(APPLIED)
        .map(String::as_str)
        .unwrap_or_default();
    let finalizers = machine.finalizers();
    let held = finalizers.iter().any(|f| f == names::MACHINE_FINALIZER);
    same && held
        && owners::is_controlled_by(machine, pool)
        && has(machine.labels(), &labels(pool))
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
) -> Result<Option<Refused>, PassError> {
    let namespace = pool.namespace().unwrap_or_default();
    let name = existing.map_or_else(|| infra.name_any(), ResourceExt::name_any);
    let reference = ContractReference {
        name: infra.name_any(),
        ..kind.clone()
    };
    let version = existing
        .and_then(|machine| machine.spec.version.clone())
        .or_else(|| pool.spec.template.spec.version.clone());
    // What it was launched with stays with it, and is the pool's: a Machine of a pool refers to no bootstrap object. An empty
    // name says that the pool has the data in another way. Source: Cluster API, which never says more.
    let bootstrap = match existing {
        Some(machine) => machine.spec.bootstrap.clone(),
        None => Bootstrap {
            config_ref: None,
            data_secret_name: Some(
                pool.spec
                    .template
                    .spec
                    .bootstrap
                    .data_secret_name
                    .clone()
                    .unwrap_or_default(),
            ),
        },
    };
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
            ..spec(pool, bootstrap, reference, version)
        },
    });
    if let Some(existing) = existing {
        // Only onto this very Machine: a deletion meanwhile is not undone by making another.
        body["metadata"]["uid"] = json!(existing.uid());
    }
    let machines: Api<Machine> = Api::namespaced(context.client.clone(), &namespace);
    // A new one is not forced: what somebody else made of that name meanwhile is not taken over.
    let params = PatchParams::apply(MANAGER);
    let params = match existing {
        Some(_) => params.force(),
        None => params,
    };
    match machines
        .patch(&name, &params, &Patch::Apply(body as Value))
        .await
    {
        Ok(machine) => {
            context.machines.add(Key::of(&machine));
            context.caches.machines.absorb(machine);
            Ok(None)
        }
        Err(kube::Error::Api(status))
            if existing.is_some() && (status.is_conflict() || status.is_not_found()) =>
        {
            Ok(None)
        }
        Err(kube::Error::Api(status))
            if existing.is_none() && (status.is_conflict() || status.code == 422) =>
        {
            Ok(Some(Refused {
                machine: name,
                whose: format!("somebody else ({})", status.message),
            }))
        }
        Err(error) => Err(api(format!("applying Machine {name}"))(error)),
    }
}

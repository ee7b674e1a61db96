//! The ends of InfraMachines and instances, in the order that their Machines want: nothing ends before its Machine has
//! been drained, but for what the cloud has ended already.

use std::sync::Arc;

use either::Either;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use muster_api::conditions::{Reason as _, types};
use muster_api::names::{INFRA_MACHINE_FINALIZER, TERMINATION_DEADLINE};
use muster_api::reference::{Conditioned as _, ContractReference};
use muster_api::{Machine, contract, owners};
use muster_caches::reference;
use serde_json::{Value, json};

use super::{Context, PassError, api};
use crate::deletion::{self, by_uid};

pub(super) fn machines<S>(context: &Context<S>, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(context.client.clone(), namespace, &context.kinds.machine)
}

/// The Machine of an InfraMachine: the one that owns it, else a pool's that refers to it. Somebody else's that only refers
/// to it has no say in it.
pub(super) fn machine_of<S>(context: &Context<S>, machine: &DynamicObject) -> Option<Arc<Machine>> {
    let found = ContractReference {
        api_group: context.kinds.machine.group.clone(),
        kind: context.kinds.machine.kind.clone(),
        name: machine.name_any(),
    };
    let value = reference(&machine.namespace().unwrap_or_default(), &found);
    let referring = context
        .caches
        .machines
        .by(context.caches.machines_by_reference, &value);
    let owns = |found: &&Arc<Machine>| owners::is_owned_by(machine, &***found);
    let of_pool = |found: &&Arc<Machine>| {
        owners::controller(&***found).is_some_and(|owner| owner.kind == "MachinePool")
    };
    let found = referring.iter().find(owns);
    found.or_else(|| referring.iter().find(of_pool)).cloned()
}

/// Whether the instance of an InfraMachine that is being deleted may end: its Machine waits for it, or it has none. A
/// Machine that is not being deleted yet soon will be: it follows its InfraMachine.
pub(super) fn may_end<S>(context: &Context<S>, machine: &DynamicObject) -> bool {
    machine_of(context, machine).is_none_or(|owner| lets_go(&owner))
}

/// Whether a Machine that is being deleted has nothing left to do before its instance ends.
fn lets_go(machine: &Machine) -> bool {
    use types::Deleting;
    let past = [
        Deleting::WaitingForInfrastructureDeletion,
        Deleting::WaitingForBootstrapDeletion,
        Deleting::DeletingNode,
        Deleting::DeletionCompleted,
    ];
    let at = machine
        .condition_of(Deleting::TYPE)
        .filter(|_| machine.is_deleting());
    at.is_some_and(|at| past.iter().any(|reason| at.reason == reason.as_str()))
}

/// Deletes a Machine, so that it is drained, until a deadline if there is one, and says why.
pub(super) async fn delete_machine<S>(
    context: &Context<S>,
    machine: &Machine,
    deadline: Option<jiff::Timestamp>,
    reason: &str,
    note: String,
) -> Result<(), PassError> {
    let name = machine.name_any();
    if let Some(deadline) = deadline {
        let namespace = machine.namespace().unwrap_or_default();
        let all: Api<Machine> = Api::namespaced(context.client.clone(), &namespace);
        let patch = json!({"metadata": {"annotations": {TERMINATION_DEADLINE: second(deadline)}}});
        match all
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Ok(patched) => context.caches.machines.absorb(patched),
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(error) => return Err(api(format!("annotating Machine {name}"))(error)),
        }
    }
    let deleted = deletion::delete_machine(
        &context.client,
        &context.caches,
        &context.events,
        machine,
        reason,
        note,
    );
    deleted
        .await
        .map_err(api(format!("deleting Machine {name}")))
}

/// The instance is gone without our doing: nothing can be drained, so InfraMachine and Machine go at once.
pub(super) async fn vanished<S>(
    context: &Context<S>,
    machine: &DynamicObject,
) -> Result<(), PassError> {
    let id = contract::provider_id(machine).unwrap_or_default();
    delete(context, machine).await?;
    if let Some(owner) = machine_of(context, machine)
        && !owner.is_deleting()
    {
        let note = format!(
            "the instance {id} does not exist any more; it was terminated outside of this pool"
        );
        delete_machine(context, &owner, None, "InstanceGone", note).await?;
    }
    Ok(())
}

/// Deletes an InfraMachine, this very one.
pub(super) async fn delete<S>(
    context: &Context<S>,
    machine: &DynamicObject,
) -> Result<(), PassError> {
    let namespace = machine.namespace().unwrap_or_default();
    let name = machine.name_any();
    let params = by_uid(machine.uid());
    match machines(context, &namespace).delete(&name, &params).await {
        Ok(Either::Left(object)) => context.machines.absorb(object),
        Ok(Either::Right(_)) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(error) => return Err(api(format!("deleting {name}"))(error)),
    }
    Ok(())
}

/// The instance is gone: the InfraMachine may go.
pub(super) async fn release<S>(
    context: &Context<S>,
    machine: &DynamicObject,
) -> Result<(), PassError> {
    let finalizers: Vec<&String> = machine
        .finalizers()
        .iter()
        .filter(|f| *f != INFRA_MACHINE_FINALIZER)
        .collect();
    if finalizers.len() == machine.finalizers().len() {
        return Ok(());
    }
    let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": machine.resource_version()}});
    let namespace = machine.namespace().unwrap_or_default();
    let released = machines(context, &namespace)
        .patch(
            &machine.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await;
    match released {
        Ok(object) => {
            context.machines.absorb(object);
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(api(format!("releasing {}", machine.name_any()))(error)),
    }
}

/// A time as it is written: whole seconds.
pub(super) fn second(at: jiff::Timestamp) -> Value {
    jiff::Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
        .into()
}

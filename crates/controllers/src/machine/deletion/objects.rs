//! What goes with a Machine, deleted by uid: InfraMachine, bootstrap object, Node, and at last its finalizer.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use muster_api::reference::ContractReference;
use muster_api::{Machine, names};
use muster_informers::{Key, Requeue};
use muster_provider::deletion::by_uid;
use serde_json::json;

use super::super::{NodeSeen, Seen};
use crate::{Context, PassError, api};

/// Deletes a provider's object, unless it is going already.
pub(super) async fn delete(
    context: &Context,
    machine: &Machine,
    reference: &ContractReference,
    object: &DynamicObject,
) -> Result<(), PassError> {
    if object.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let Some(objects) = context
        .objects
        .api(&machine.namespace().unwrap_or_default(), reference)
    else {
        return Ok(());
    };
    match objects.delete(&reference.name, &by_uid(object.uid())).await {
        Ok(either::Either::Left(object)) => context.objects.absorb(reference, object),
        Ok(either::Either::Right(_)) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(error) => {
            return Err(api(format!(
                "deleting {} {}",
                reference.kind, reference.name
            ))(error));
        }
    }
    Ok(())
}

/// Deletes the Node object. What kept it from being deleted, if anything did; then the time of the first try is recorded,
/// for its limit is measured from there.
pub(super) async fn delete_node(
    context: &Context,
    machine: &Machine,
    seen: &Seen,
    now: Timestamp,
) -> Result<Option<String>, PassError> {
    let failed = match (&seen.node, &seen.workload) {
        (NodeSeen::Here(node), Some(workload)) => {
            let nodes: Api<Node> = Api::all(workload.client.clone());
            match nodes.delete(&node.name_any(), &by_uid(node.uid())).await {
                Ok(_) => None,
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                    None
                }
                Err(error) => Some(format!("deleting Node {}: {error}", node.name_any())),
            }
        }
        (NodeSeen::Several(nodes), _) => Some(format!(
            "the Nodes {} all claim the providerID of this Machine, so none of them is deleted",
            nodes.join(", ")
        )),
        _ => Some(format!(
            "the API of Cluster {} does not answer",
            machine.spec.cluster_name
        )),
    };
    if failed.is_some() && !names::NODE_DELETION_STARTED.is_on(machine) {
        let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let patch = json!({"metadata": {
            "uid": machine.uid(),
            "annotations": {names::NODE_DELETION_STARTED: second.to_string()},
        }});
        write(
            context,
            machine,
            patch,
            "recording the first try to delete the Node",
        )
        .await?;
    }
    Ok(failed)
}

/// Lets the Machine go.
pub(super) async fn release(context: &Context, machine: &Machine) -> Result<Requeue, PassError> {
    context.refusals.set(&Key::of(machine), Default::default());
    let finalizers: Vec<&String> = machine
        .finalizers()
        .iter()
        .filter(|f| *f != names::MACHINE_FINALIZER)
        .collect();
    let patch = json!({"metadata": {"finalizers": finalizers, "uid": machine.uid()}});
    write(context, machine, patch, "removing the finalizer").await?;
    Ok(Requeue::Never)
}

async fn write(
    context: &Context,
    machine: &Machine,
    patch: serde_json::Value,
    what: &str,
) -> Result<(), PassError> {
    let namespace = machine.namespace().unwrap_or_default();
    let machines: Api<Machine> = Api::namespaced(context.client.clone(), &namespace);
    match machines
        .patch(
            &machine.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(error) => Err(api(what)(error)),
    }
}

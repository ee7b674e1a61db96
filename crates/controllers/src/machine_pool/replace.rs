//! A Machine that Muster itself deletes to have another in its place, for a rollout or a repair.

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::policy::{MachinePoolPolicySpec, Replacement};
use muster_api::{Machine, names};
use serde_json::json;

use crate::ownership::delete_machine;
use crate::{Context, PassError, api};

/// Deletes a Machine, so that it is drained and replaced: what is said of deletions by hand is not meant, and the pool gets
/// no smaller.
pub(super) async fn replace(
    context: &Context,
    policy: Option<&MachinePoolPolicySpec>,
    machine: &Machine,
    reason: &str,
    note: String,
) -> Result<(), PassError> {
    let name = machine.name_any();
    let shrinks = policy
        .and_then(|policy| policy.machine_deletion)
        .is_some_and(|deletion| deletion.replacement == Replacement::Shrink);
    if shrinks || names::REPLACEMENT.is_on(machine) {
        let namespace = machine.namespace().unwrap_or_default();
        let machines: Api<Machine> = Api::namespaced(context.client.clone(), &namespace);
        let patch = json!({"metadata": {
            "uid": machine.uid(),
            "annotations": {names::REPLACEMENT.key(): "Replace"},
        }});
        match machines
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Ok(patched) => context.caches.machines.absorb(patched),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
                return Ok(());
            }
            Err(error) => return Err(api(format!("annotating Machine {name}"))(error)),
        }
    }
    delete_machine(context, machine, reason, note).await
}

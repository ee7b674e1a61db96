//! A pool's Machine whose InfraMachine is being deleted or is gone does not stay: nothing would ever end it.

use kube::ResourceExt;
use muster_api::conditions::{Reason as _, types};
use muster_api::reference::Conditioned as _;
use muster_api::{Machine, owners};
use muster_informers::Requeue;
use muster_plan::machine::{Existence, Loss, loss};

use super::{Infrastructure, Seen, deletion};
use crate::ownership::delete_machine;
use crate::{Context, PassError, api};

/// Deletes the Machine if its InfraMachine is; how soon to look again, where it may come back.
pub(super) async fn settle(
    context: &Context,
    machine: &Machine,
    seen: &Seen,
) -> Result<Option<Requeue>, PassError> {
    let of_pool = owners::controller(machine).is_some_and(|owner| owner.kind == "MachinePool");
    let infrastructure = match &seen.infrastructure {
        Infrastructure::Here(object) => deletion::existence(Some(&**object)),
        Infrastructure::Missing => Existence::Gone,
        Infrastructure::Unusable(_) => return Ok(None),
    };
    if !of_pool || infrastructure == Existence::Present {
        return Ok(None);
    }
    let missing = machine
        .condition_of(types::InfrastructureReady::TYPE)
        .filter(|said| said.status == "False" && said.reason.starts_with("Object"))
        .map(|said| said.last_transition_time.0);
    let reference = &machine.spec.infrastructure_ref;
    let (kind, name) = (&reference.kind, &reference.name);
    let (reason, note) = match loss(infrastructure, missing, context.clock.now()) {
        Loss::None => return Ok(None),
        Loss::Waits(left) => {
            let left = std::time::Duration::try_from(left).unwrap_or_default();
            return Ok(Some(Requeue::After(left)));
        }
        Loss::Follows => (
            "InfraMachineDeleted",
            format!(
                "{kind} {name} is being deleted, so this Machine is deleted and drained as far as its instance lives"
            ),
        ),
        Loss::Lost if is_there(context, machine).await? => return Ok(None),
        Loss::Lost => (
            "InfraMachineLost",
            format!(
                "{kind} {name} does not exist any more, so nothing stands for this Machine's instance and it is deleted"
            ),
        ),
    };
    delete_machine(context, machine, reason, note).await?;
    Ok(Some(Requeue::Never))
}

/// Whether the InfraMachine is there after all: what is decided on it cannot be taken back.
async fn is_there(context: &Context, machine: &Machine) -> Result<bool, PassError> {
    let reference = &machine.spec.infrastructure_ref;
    let namespace = machine.namespace().unwrap_or_default();
    let Some(objects) = context.objects.api(&namespace, reference) else {
        return Ok(true);
    };
    let found = objects
        .get_metadata_opt(&reference.name)
        .await
        .map_err(api(format!(
            "looking for {} {}",
            reference.kind, reference.name
        )))?;
    Ok(found.is_some())
}

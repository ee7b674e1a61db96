//! Whether a Machine that is being deleted is replaced, or its pool's size follows it: decided when the deletion starts,
//! before anything else of it happens, and never again.
//!
//! The start of a deletion is its `Deleting` condition, which the first pass writes after this. A crash in between lets the
//! next pass decide again, and `plan::size` sees to it that what is counted already is not counted twice.

use kube::runtime::events::EventType;
use muster_api::conditions::{Reason as _, types};
use muster_api::names::{REPLACEMENT, SizeOwner, TERMINATION_DEADLINE};
use muster_api::reference::Conditioned;
use muster_api::{Machine, policy};
use muster_informers::Key;
use muster_plan::size::{Outcome, Replacement};
use muster_provider::events::about;

use super::{Infrastructure, Seen};
use crate::{Context, PassError, api};

/// Lets the pool's size follow the deletion, if it is to.
pub(super) async fn settle(
    context: &Context,
    machine: &Machine,
    seen: &Seen,
) -> Result<(), PassError> {
    let pool = context.caches.pool_key_of(machine);
    let Some(pool) = pool.filter(|_| !has_begun(machine)) else {
        return Ok(());
    };
    let going = seen
        .cluster
        .as_ref()
        .is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some());
    if going {
        return Ok(());
    }
    let wish = wish(context, machine, &pool, seen).await;
    let outcome = context
        .sizes
        .count(&pool, machine, wish)
        .await
        .map_err(api(format!("lowering the size of pool {pool}")))?;
    tell(context, machine, &pool, outcome).await;
    Ok(())
}

fn has_begun(machine: &Machine) -> bool {
    machine.is_true(types::Deleting::TYPE)
}

/// What is wished for: the Machine's annotation, else the policy's word, which is about deletions by hand.
async fn wish(context: &Context, machine: &Machine, pool: &Key, seen: &Seen) -> Replacement {
    let own = match REPLACEMENT.read(machine) {
        Ok(own) => own,
        Err(invalid) => {
            let note = format!("{invalid}; the pool's policy decides");
            say(
                context,
                machine,
                EventType::Warning,
                "InvalidReplacement",
                note,
            )
            .await;
            None
        }
    };
    let by_policy = || {
        let policy = context.caches.policy(&pool.namespace, &pool.name)?;
        let deletion = policy
            .spec
            .machine_deletion
            .filter(|_| is_by_hand(machine, seen))?;
        Some(deletion.replacement)
    };
    match own.or_else(by_policy).unwrap_or_default() {
        policy::Replacement::Replace => Replacement::Replace,
        policy::Replacement::Shrink => Replacement::Shrink,
    }
}

/// Whether somebody deletes the Machine, and not Muster: neither was its instance taken or announced to be, which the
/// cloud makes good by itself, nor is it being repaired.
fn is_by_hand(machine: &Machine, seen: &Seen) -> bool {
    let lives = matches!(&seen.infrastructure, Infrastructure::Here(object) if object.metadata.deletion_timestamp.is_none());
    let repaired = machine
        .condition_of(types::OwnerRemediated::TYPE)
        .is_some_and(|c| c.reason == types::OwnerRemediated::MachineDeleting.as_str());
    lives && !repaired && !TERMINATION_DEADLINE.is_on(machine)
}

async fn tell(context: &Context, machine: &Machine, pool: &Key, outcome: Outcome) {
    let name = &pool.name;
    match outcome {
        Outcome::Replaced | Outcome::Counted => {}
        Outcome::Lowered { from, to, below } => {
            let note = format!(
                "the size of pool {name} goes from {from} to {to} with this Machine, which is not replaced"
            );
            say(context, machine, EventType::Normal, "SizeLowered", note).await;
            if let Some(minimum) = below {
                let note = format!(
                    "the size of pool {name} is now {to}, below the autoscaler's minimum of {minimum}; the autoscaler may raise it again"
                );
                say(
                    context,
                    machine,
                    EventType::Warning,
                    "SizeBelowMinimum",
                    note,
                )
                .await;
            }
        }
        Outcome::Outside => {
            let owner = context
                .caches
                .pools
                .get(pool)
                .and_then(|pool| SizeOwner::name(&pool).map(str::to_owned))
                .unwrap_or_default();
            let note = format!(
                "the size of pool {name} belongs to {owner:?} (annotation cluster.x-k8s.io/replicas-managed-by), so it is not lowered and this Machine is replaced"
            );
            say(context, machine, EventType::Warning, "SizeNotLowered", note).await;
        }
        Outcome::Empty => {
            let note = format!("the size of pool {name} is 0 and cannot be lowered");
            say(context, machine, EventType::Warning, "SizeNotLowered", note).await;
        }
    }
}

async fn say(
    context: &Context,
    machine: &Machine,
    type_: EventType,
    reason: &'static str,
    note: String,
) {
    tracing::info!(machine = %Key::of(machine), reason, %note, "size of the pool");
    context
        .events
        .say(&about(machine), type_, reason, "Delete", note)
        .await;
}

//! The deletion of a Machine that Muster decided on: told, and only of the very object that it was decided for.

use either::Either;
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::events::EventType;
use kube::{Api, Client, ResourceExt};
use muster_api::Machine;
use muster_caches::Management;
use muster_informers::Key;

use crate::events::{Events, about};

/// Options of a deletion of this very object: one that has its name by now is left alone.
pub fn by_uid(uid: Option<String>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

/// Deletes a Machine, so that it is drained, and says why. One that is gone already needs nothing.
///
/// # Errors
/// When the API refuses, or does not answer.
pub async fn delete_machine(
    client: &Client,
    caches: &Management,
    events: &Events,
    machine: &Machine,
    reason: &str,
    note: String,
) -> Result<(), kube::Error> {
    tracing::info!(machine = %Key::of(machine), reason, %note, "Machine deleted");
    events
        .say(&about(machine), EventType::Normal, reason, "Delete", note)
        .await;
    let namespace = machine.namespace().unwrap_or_default();
    let machines: Api<Machine> = Api::namespaced(client.clone(), &namespace);
    match machines
        .delete(&machine.name_any(), &by_uid(machine.uid()))
        .await
    {
        Ok(Either::Left(object)) => caches.machines.absorb(object),
        Ok(Either::Right(_)) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

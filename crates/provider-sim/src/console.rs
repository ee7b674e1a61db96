//! The cloud's console: what a cloud, or somebody at its console, does behind our back.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::cloud::types::{CloudGroup, CloudInstance, Termination};

/// Why the console could not do something.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// There is no such instance or group.
    #[error("the simulated cloud has no {what} {name:?}; `muster sim list` shows what it has")]
    NotFound {
        /// Instance or group.
        what: &'static str,
        /// The name asked for.
        name: String,
    },
    /// The zone is not one of the group's.
    #[error("group {group} has no zone {zone:?}; it has: {known}")]
    NoZone {
        /// The group.
        group: String,
        /// The zone asked for.
        zone: String,
        /// Its zones.
        known: String,
    },
    /// The cloud's API refused.
    #[error("the simulated cloud cannot be asked: {0}")]
    Api(#[from] kube::Error),
}

/// All instances, by group and name.
///
/// # Errors
/// When the cloud's API cannot be reached.
pub async fn list(client: &Client) -> Result<Vec<CloudInstance>, ConsoleError> {
    let mut all = Api::<CloudInstance>::all(client.clone())
        .list(&Default::default())
        .await?
        .items;
    all.sort_by_key(|instance| {
        (
            instance.group_key(),
            instance.spec.zone.clone(),
            instance.name_any(),
        )
    });
    Ok(all)
}

async fn find(client: &Client, id: &str) -> Result<CloudInstance, ConsoleError> {
    let found = list(client)
        .await?
        .into_iter()
        .find(|instance| instance.name_any() == id);
    found.ok_or_else(|| ConsoleError::NotFound {
        what: "instance",
        name: id.to_owned(),
    })
}

async fn patch(client: &Client, id: &str, patch: Value) -> Result<(), ConsoleError> {
    let instance = find(client, id).await?;
    let namespace = instance.namespace().unwrap_or_default();
    let api: Api<CloudInstance> = Api::namespaced(client.clone(), &namespace);
    api.patch(id, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// Terminates an instance; its group launches another.
///
/// # Errors
/// When there is none of that ID.
pub async fn terminate(client: &Client, id: &str, now: Timestamp) -> Result<(), ConsoleError> {
    let instance = find(client, id).await?;
    if instance.is_terminating() {
        // The first order stands, with what it does to the size.
        return Ok(());
    }
    let termination = Termination {
        at: Some(Time(now)),
        lowers_size: false,
    };
    // Only as it was seen: an order that came meanwhile is not overwritten.
    patch(
        client,
        id,
        json!({
            "metadata": {"resourceVersion": instance.resource_version()},
            "spec": {"termination": termination},
        }),
    )
    .await
}

/// Announces that an instance is taken back after a time.
///
/// # Errors
/// When there is none of that ID.
pub async fn interrupt(
    client: &Client,
    id: &str,
    after: SignedDuration,
    now: Timestamp,
) -> Result<(), ConsoleError> {
    let at = now.saturating_add(after).unwrap_or(Timestamp::MAX);
    patch(client, id, json!({"spec": {"interruption": Time(at)}})).await
}

/// Stops the kubelet of an instance.
///
/// # Errors
/// When there is none of that ID.
pub async fn fail_node(client: &Client, id: &str) -> Result<(), ConsoleError> {
    patch(client, id, json!({"spec": {"failed": true}})).await
}

/// Ends failures and hangs of an instance.
///
/// # Errors
/// When there is none of that ID.
pub async fn heal(client: &Client, id: &str) -> Result<(), ConsoleError> {
    patch(client, id, json!({"spec": {"failed": null, "hung": null}})).await
}

/// Lets what an instance is doing, booting or terminating, never end.
///
/// # Errors
/// When there is none of that ID.
pub async fn hang(client: &Client, id: &str) -> Result<(), ConsoleError> {
    patch(client, id, json!({"spec": {"hung": true}})).await
}

/// Sets how many instances of a group a zone has room for.
///
/// # Errors
/// When there is no such group or zone.
pub async fn capacity(
    client: &Client,
    namespace: &str,
    group: &str,
    zone: &str,
    available: u32,
) -> Result<(), ConsoleError> {
    let api: Api<CloudGroup> = Api::namespaced(client.clone(), namespace);
    let Some(found) = api.get_opt(group).await? else {
        return Err(ConsoleError::NotFound {
            what: "group",
            name: group.to_owned(),
        });
    };
    if !found.spec.zones.iter().any(|known| known == zone) {
        return Err(ConsoleError::NoZone {
            group: group.to_owned(),
            zone: zone.to_owned(),
            known: found.spec.zones.join(", "),
        });
    }
    let patch = json!({"spec": {"capacity": {zone: available}}});
    api.patch(group, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

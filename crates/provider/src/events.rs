//! Events that say why something was done.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};

/// Writes Events; cheap to clone.
#[derive(Clone)]
pub struct Events(Recorder);

impl Events {
    /// Events in the name of that controller.
    pub fn new(client: Client, controller: &str) -> Self {
        let reporter = Reporter {
            controller: controller.to_owned(),
            instance: None,
        };
        Self(Recorder::new(client, reporter))
    }

    /// Says of an object what was done and why. An Event that cannot be written stops nothing.
    pub async fn say(
        &self,
        object: &ObjectReference,
        type_: EventType,
        reason: &str,
        action: &str,
        note: String,
    ) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, object).await {
            tracing::debug!(%error, reason, "an Event could not be written");
        }
    }
}

/// What an Event is about.
pub fn about<K>(object: &K) -> ObjectReference
where
    K: Resource<DynamicType = ()>,
{
    object.object_ref(&())
}

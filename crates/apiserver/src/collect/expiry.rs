//! Events are kept for an hour after they were last written.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio_util::time::{DelayQueue, delay_queue};

use crate::storage::{ResourceName, Stored};

/// How long an event is kept, as a Kubernetes API server does unless told otherwise.
const KEPT: Duration = Duration::from_secs(3600);

/// The events that will expire.
#[derive(Default)]
pub(super) struct Expiry {
    due: DelayQueue<Arc<str>>,
    keys: HashMap<Arc<str>, delay_queue::Key>,
}

impl Expiry {
    /// Begins the time of an event anew. After a restart that is the restart, since nothing says when it was written.
    pub(super) fn put(&mut self, resource: &ResourceName, stored: &Stored) {
        if !expires(resource) {
            return;
        }
        if let Some(key) = self.keys.get(&*stored.uid) {
            self.due.reset(key, KEPT);
            return;
        }
        let uid: Arc<str> = (&*stored.uid).into();
        let key = self.due.insert(uid.clone(), KEPT);
        self.keys.insert(uid, key);
    }

    /// Forgets an event that is gone.
    pub(super) fn removed(&mut self, stored: &Stored) {
        if let Some(key) = self.keys.remove(&*stored.uid) {
            self.due.try_remove(&key);
        }
    }

    /// Whether nothing will expire.
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Waits for the next event whose time is over; answers with its uid.
    pub(super) async fn next(&mut self) -> Option<Arc<str>> {
        let uid = self.due.next().await?.into_inner();
        self.keys.remove(&uid);
        Some(uid)
    }
}

fn expires(resource: &ResourceName) -> bool {
    resource.group.is_empty() && &*resource.plural == "events"
}

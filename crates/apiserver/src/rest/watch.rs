//! Watch streams.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::negotiate::{self, Form};
use super::{Scope, read, respond, table};
use crate::failure::Failure;
use crate::registry::Kind;
use crate::storage::{Event, EventKind, Expired, Stored};
use crate::write;

/// How long a watch lasts when the client does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);
/// How often an idle watch tells how far it is, to clients that want to know; as in kube-apiserver.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

pub(super) fn watch(scope: &Scope, headers: &HeaderMap) -> Result<Response<Body>, Failure> {
    let form = negotiate::form(headers)?;
    let query = &scope.query;
    let matches = read::filter(scope)?;
    let cluster = Arc::clone(&scope.logical.cluster);
    let resource = scope.kind.stored_as.clone();
    let namespace = scope.target.namespace.clone();
    let stop = scope.logical.stop.clone();

    let initial = match (query.send_initial_events, query.resource_version.as_str()) {
        (Some(_), _) if query.resource_version_match != "NotOlderThan" => {
            return Err(Failure::bad_request(
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        (Some(initial), _) => initial,
        (None, "" | "0") => true,
        (None, _) => false,
    };
    let mut snapshot = Vec::new();
    let after = if initial || matches!(query.resource_version.as_str(), "" | "0") {
        let list = cluster
            .storage
            .list(&cluster.name, &resource, namespace.as_deref());
        if initial {
            snapshot = list.items;
        }
        list.revision
    } else {
        read::parse_version(&query.resource_version)?
    };
    let marks_start = query.send_initial_events == Some(true) && query.allow_bookmarks;
    let events = cluster.storage.watch(&cluster.name, &resource, after);

    let mut encoder = Encoder {
        kind: Arc::clone(&scope.kind),
        form,
        include: query.include_object.clone(),
        clock: cluster.clock.clone(),
        headed: true,
    };
    let bookmarks = query.allow_bookmarks;
    let end = Instant::now()
        + query
            .timeout_seconds
            .map_or(DEFAULT_TIMEOUT, Duration::from_secs);
    let in_scope = move |stored: &Stored| {
        namespace
            .as_deref()
            .is_none_or(|n| n == &*stored.key.namespace)
            && matches(stored)
    };
    let stream = async_stream::stream! {
        let mut first = BytesMut::new();
        for stored in snapshot.iter().filter(|stored| in_scope(stored)) {
            encoder.event("ADDED", stored, &mut first);
        }
        if marks_start {
            encoder.bookmark(after, true, &mut first);
        }
        drop(snapshot);
        if !first.is_empty() {
            yield Ok::<Bytes, std::convert::Infallible>(first.freeze());
        }
        let mut events = match events {
            Ok(events) => events,
            Err(expired) => {
                yield Ok(encoder.expired(expired));
                return;
            }
        };
        let mut told = after;
        loop {
            let batch = tokio::select! {
                batch = events.next() => batch,
                () = tokio::time::sleep(BOOKMARK_EVERY), if bookmarks => {
                    match events.ready() {
                        Ok(batch) if batch.events.is_empty() && batch.revision > told => {
                            told = batch.revision;
                            let mut text = BytesMut::new();
                            encoder.bookmark(told, false, &mut text);
                            yield Ok(text.freeze());
                            continue;
                        }
                        other => other,
                    }
                }
                () = tokio::time::sleep_until(end) => return,
                () = stop.cancelled() => return,
            };
            match batch {
                Ok(batch) => {
                    told = batch.revision;
                    let mut text = BytesMut::new();
                    for event in &batch.events {
                        if let Some((sort, stored)) = seen_through(event, &in_scope) {
                            encoder.event(sort, stored, &mut text);
                        }
                    }
                    if !text.is_empty() {
                        yield Ok(text.freeze());
                    }
                }
                Err(expired) => {
                    yield Ok(encoder.expired(expired));
                    return;
                }
            }
        }
    };
    let mut response = respond::bytes(200, Bytes::new());
    *response.body_mut() = Body::from_stream(stream);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// What an event is to somebody who sees only what matches: an object that begins to match is new, one that ceases to
/// is gone.
fn seen_through<'a>(
    event: &'a Event,
    matches: &impl Fn(&Stored) -> bool,
) -> Option<(&'static str, &'a Arc<Stored>)> {
    let now = event.kind != EventKind::Deleted && matches(&event.object);
    let before = event
        .previous
        .as_ref()
        .is_some_and(|previous| matches(previous));
    match (before, now) {
        (false, false) => None,
        (false, true) => Some(("ADDED", &event.object)),
        (true, true) => Some(("MODIFIED", &event.object)),
        (true, false) => Some(("DELETED", &event.object)),
    }
}

struct Encoder {
    kind: Arc<Kind>,
    form: Form,
    include: Option<String>,
    clock: muster_clock::Clock,
    headed: bool,
}

impl Encoder {
    fn event(&mut self, sort: &str, stored: &Arc<Stored>, into: &mut BytesMut) {
        let body = write::Body::of(&self.kind, Arc::clone(stored));
        match self.form {
            Form::Whole => frame(sort, &body.bytes(), into),
            Form::Metadata => frame(
                sort,
                read::metadata(&body.to_value()).to_string().as_bytes(),
                into,
            ),
            Form::Table => {
                let object = body.to_value();
                let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let objects = std::slice::from_ref(&object);
                let now = self.clock.now();
                let table = table::table(
                    &self.kind,
                    meta,
                    objects,
                    self.include.as_deref(),
                    now,
                    self.headed,
                );
                self.headed = false;
                frame(sort, table.to_string().as_bytes(), into);
            }
        }
    }

    fn bookmark(&self, revision: u64, initial: bool, into: &mut BytesMut) {
        let mut meta = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object: Value = match self.form {
            Form::Whole => {
                json!({"kind": &*self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": meta})
            }
            Form::Metadata => read::metadata(&json!({"metadata": meta})),
            Form::Table => table::table(&self.kind, meta, &[], None, self.clock.now(), false),
        };
        frame("BOOKMARK", object.to_string().as_bytes(), into);
    }

    fn expired(&self, expired: Expired) -> Bytes {
        let message = match expired.oldest {
            u64::MAX => "the logical cluster was removed".to_owned(),
            oldest => format!("too old resource version: {} ({oldest})", expired.asked),
        };
        let mut text = BytesMut::new();
        frame(
            "ERROR",
            Failure::gone(message).to_json().to_string().as_bytes(),
            &mut text,
        );
        text.freeze()
    }
}

fn frame(sort: &str, object: &[u8], into: &mut BytesMut) {
    into.reserve(object.len() + sort.len() + 24);
    into.put_slice(b"{\"type\":\"");
    into.put_slice(sort.as_bytes());
    into.put_slice(b"\",\"object\":");
    into.put_slice(object);
    into.put_slice(b"}\n");
}

//! Get and list.

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut, BytesMut};
use http::{HeaderMap, Response};
use serde_json::{Map, Value, json};

use super::negotiate::{self, Form};
use super::{Scope, respond, table};
use crate::failure::Failure;
use crate::registry::convert;
use crate::storage::{ObjectKey, Stored};
use crate::write;

pub(super) fn get(scope: &Scope, headers: &HeaderMap) -> Result<Response<Body>, Failure> {
    let form = negotiate::form(headers)?;
    let (kind, target) = (&scope.kind, &scope.target);
    let cluster = &scope.logical.cluster;
    let name = target.name.as_deref().unwrap_or_default();
    let namespace = target.namespace.as_deref().unwrap_or_default();
    match target.subresource.as_deref() {
        None => {}
        Some("status") if kind.subresources.status => {}
        Some("scale") => return Ok(respond::json(&cluster.scale(kind, namespace, name)?)),
        Some(_) => return Err(Failure::no_such_path()),
    }
    if kind.namespaced && target.namespace.is_none() {
        return Err(Failure::no_such_path());
    }
    let key = ObjectKey::new(namespace, name);
    let stored = cluster
        .storage
        .get(&cluster.name, &kind.stored_as, &key)
        .ok_or_else(|| Failure::not_found(kind, name))?;
    let body = write::Body::of(kind, stored);
    Ok(match form {
        Form::Whole => respond::bytes(200, body.bytes()),
        Form::Table | Form::Metadata => respond::json(&one(scope, form, &body.to_value())),
    })
}

/// One object as a table or as metadata.
pub(super) fn one(scope: &Scope, form: Form, object: &Value) -> Value {
    match form {
        Form::Whole => object.clone(),
        Form::Metadata => metadata(object),
        Form::Table => {
            let list = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            let include = scope.query.include_object.as_deref();
            let now = scope.logical.cluster.clock.now();
            table::table(
                &scope.kind,
                list,
                std::slice::from_ref(object),
                include,
                now,
                true,
            )
        }
    }
}

pub(super) fn metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// What the selectors and the name of a request select.
///
/// # Errors
/// When a field selector asks for a field that this kind cannot be selected by.
pub(super) fn filter(
    scope: &Scope,
) -> Result<impl Fn(&Stored) -> bool + Send + Sync + use<>, Failure> {
    let kind = &scope.kind;
    let fields = scope.query.field_selector.clone();
    for field in fields.fields() {
        let known = matches!(field, "metadata.name" | "metadata.namespace")
            || kind
                .selectable
                .iter()
                .any(|selectable| selectable.label == field);
        if !known {
            return Err(Failure::bad_request(format!(
                "field label not supported: {field}"
            )));
        }
    }
    let labels = scope.query.label_selector.clone();
    let name = scope.target.name.clone();
    Ok(move |stored: &Stored| {
        name.as_ref().is_none_or(|name| **name == *stored.key.name)
            && (labels.is_everything() || labels.matches(stored))
            && (fields.is_everything() || fields.matches(stored))
    })
}

pub(super) fn list(scope: &Scope, headers: &HeaderMap) -> Result<Response<Body>, Failure> {
    let form = negotiate::form(headers)?;
    let query = &scope.query;
    let matches = filter(scope)?;
    let cluster = &scope.logical.cluster;
    let resource = &scope.kind.stored_as;
    let snapshot = cluster
        .storage
        .list(&cluster.name, resource, scope.target.namespace.as_deref());
    let resumed = match query.continue_token.as_str() {
        "" => None,
        token => Some(Token::decode(token)?),
    };
    check_version(scope, snapshot.revision)?;
    let revision = resumed
        .as_ref()
        .map_or(snapshot.revision, |token| token.revision);
    let mut selected = snapshot
        .items
        .iter()
        .filter(|stored| {
            resumed
                .as_ref()
                .is_none_or(|token| stored.key > token.after)
        })
        .filter(|stored| matches(stored));
    let items: Vec<&std::sync::Arc<Stored>> = match query.limit {
        Some(limit) => selected.by_ref().take(limit).collect(),
        None => selected.by_ref().collect(),
    };
    let rest = selected.count();
    let mut meta = Map::new();
    meta.insert("resourceVersion".to_owned(), revision.to_string().into());
    if rest > 0
        && let Some(last) = items.last()
    {
        let token = Token {
            revision,
            after: last.key.clone(),
        };
        meta.insert("continue".to_owned(), token.encode().into());
        if query.label_selector.is_everything() && query.field_selector.is_everything() {
            meta.insert("remainingItemCount".to_owned(), rest.into());
        }
    }
    let meta = Value::Object(meta);
    if form == Form::Whole && !convert::needs_conversion(&scope.kind) {
        return Ok(respond::bytes(200, whole(scope, &meta, &items)));
    }
    let values: Vec<Value> = items
        .iter()
        .map(|stored| convert::from_storage(&scope.kind, stored.value()))
        .collect();
    Ok(respond::json(&of_values(scope, form, meta, &values)))
}

/// The list as bytes, without parsing the objects.
fn whole(scope: &Scope, meta: &Value, items: &[&std::sync::Arc<Stored>]) -> bytes::Bytes {
    let head = format!(
        "{{\"apiVersion\":{},\"items\":[",
        Value::from(scope.kind.api_version())
    );
    let tail = format!(
        "],\"kind\":{},\"metadata\":{meta}}}",
        Value::from(&*scope.kind.list_kind)
    );
    let size = items
        .iter()
        .map(|stored| stored.json.len() + 1)
        .sum::<usize>();
    let mut body = BytesMut::with_capacity(head.len() + size + tail.len());
    body.put_slice(head.as_bytes());
    for (index, stored) in items.iter().enumerate() {
        if index > 0 {
            body.put_u8(b',');
        }
        body.put_slice(&stored.json);
    }
    body.put_slice(tail.as_bytes());
    body.freeze()
}

pub(super) fn list_of_values(
    scope: &Scope,
    form: Form,
    revision: u64,
    values: &[Value],
) -> Response<Body> {
    let meta = json!({"resourceVersion": revision.to_string()});
    respond::json(&of_values(scope, form, meta, values))
}

fn of_values(scope: &Scope, form: Form, meta: Value, values: &[Value]) -> Value {
    match form {
        Form::Whole => json!({
            "kind": &*scope.kind.list_kind,
            "apiVersion": scope.kind.api_version(),
            "metadata": meta,
            "items": values,
        }),
        Form::Metadata => json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta,
            "items": values.iter().map(metadata).collect::<Vec<_>>(),
        }),
        Form::Table => {
            let include = scope.query.include_object.as_deref();
            let now = scope.logical.cluster.clock.now();
            table::table(&scope.kind, meta, values, include, now, true)
        }
    }
}

/// Refuses revisions that cannot be served: those of the future, and exact ones of the past.
fn check_version(scope: &Scope, current: u64) -> Result<(), Failure> {
    let query = &scope.query;
    let asked = match query.resource_version.as_str() {
        "" | "0" => return Ok(()),
        text => parse_version(text)?,
    };
    if asked > current {
        return Err(Failure::timeout("Too large resource version", 1));
    }
    if query.resource_version_match == "Exact" && asked != current {
        return Err(Failure::gone(format!(
            "The provided resource version {asked} is not kept; list without it"
        )));
    }
    Ok(())
}

pub(super) fn parse_version(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| {
        Failure::bad_request(format!(
            "invalid resource version {text:?}: it must be a number"
        ))
    })
}

/// Where a list goes on.
struct Token {
    revision: u64,
    after: ObjectKey,
}

impl Token {
    fn encode(&self) -> String {
        let text = json!([self.revision, &*self.after.namespace, &*self.after.name]).to_string();
        URL_SAFE_NO_PAD.encode(text)
    }

    fn decode(token: &str) -> Result<Self, Failure> {
        let parsed: Option<(u64, String, String)> = URL_SAFE_NO_PAD
            .decode(token)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let (revision, namespace, name) = parsed.ok_or_else(|| {
            Failure::bad_request("continue key is not valid: it was not made by this server")
        })?;
        Ok(Self {
            revision,
            after: ObjectKey::new(&namespace, &name),
        })
    }
}

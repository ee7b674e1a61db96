//! The HTTP surface: what a request asks for, whether it may, and what is answered.
//!
//! One entry, [`handle`], serves every path; the kinds and their paths come from the registry alone.

pub mod access;
mod body;
mod discovery;
mod mutate;
mod negotiate;
mod openapi;
mod path;
mod query;
mod read;
mod respond;
mod table;
mod watch;

use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request, Response};

use crate::failure::Failure;
use crate::host::{Host, Logical};
use crate::registry::Kind;
use crate::storage::ClusterName;
use access::Identity;
use path::{Place, Target};
use query::Query;

/// The cluster that an in-process client is bound to; overrides the path.
#[derive(Clone)]
pub(crate) struct Bound(pub(crate) ClusterName);

/// What is being asked, as far as all handlers need it.
struct Scope {
    logical: Arc<Logical>,
    kind: Arc<Kind>,
    target: Target,
    query: Query,
    identity: Identity,
    user_agent: String,
}

/// Serves one request; never fails, errors are answers.
pub(crate) async fn handle(host: &Host, request: Request<Body>) -> Response<Body> {
    match route(host, request).await {
        Ok(response) => response,
        Err(failure) => respond::failure(&failure),
    }
}

async fn route(host: &Host, request: Request<Body>) -> Result<Response<Body>, Failure> {
    let path = request.uri().path().to_owned();
    if let Some(answer) = open_to_all(host, request.method(), &path) {
        return Ok(answer);
    }
    let identity = request
        .extensions()
        .get::<Identity>()
        .cloned()
        .ok_or_else(Failure::unauthorized)?;
    let (cluster, path) = match request.extensions().get::<Bound>() {
        Some(bound) => (bound.0.clone(), path.as_str()),
        None => path::split_cluster(&path),
    };
    let logical = host.logical(&cluster).ok_or_else(Failure::no_such_path)?;
    if let Some(answer) = open_to_all(host, request.method(), path) {
        return Ok(answer);
    }
    match path::parse(path) {
        Place::Resource(target) => resource(logical, identity, target, request).await,
        Place::Other if request.method() == Method::GET || request.method() == Method::HEAD => {
            discovery::serve(&logical.cluster.registry, path, request.headers())
                .or_else(|| openapi::serve(&logical.cluster.registry, path, request.headers()))
                .ok_or_else(Failure::no_such_path)
        }
        Place::Other => Err(Failure::no_such_path()),
    }
}

/// Version and health, which need no credentials.
fn open_to_all(host: &Host, method: &Method, path: &str) -> Option<Response<Body>> {
    if method != Method::GET && method != Method::HEAD {
        return None;
    }
    match path {
        "/version" | "/version/" => Some(respond::json(&discovery::version())),
        "/livez" | "/healthz" => Some(respond::text("ok")),
        "/readyz" if host.is_closing() => Some(respond::text_with_code(503, "shutting down")),
        "/readyz" => Some(respond::text("ok")),
        _ => None,
    }
}

async fn resource(
    logical: Arc<Logical>,
    identity: Identity,
    target: Target,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let registry = &logical.cluster.registry;
    let kind = registry
        .resolve(&target.group, &target.version, &target.plural)
        .filter(|kind| kind.served)
        .filter(|kind| kind.namespaced || target.namespace.is_none())
        .ok_or_else(Failure::no_such_path)?;
    let query = Query::parse(request.uri().query().unwrap_or_default())?;
    let verb = verb(request.method(), &target, &query)?;
    access::check(&identity, verb, &kind, &target)?;
    let resource = match &target.subresource {
        Some(sub) => format!("{}/{sub}", kind.group_resource()),
        None => kind.group_resource(),
    };
    logical.counts.add(verb, &resource);
    let user_agent = request
        .headers()
        .get(http::header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("muster")
        .to_owned();
    let scope = Scope {
        logical,
        kind,
        target,
        query,
        identity,
        user_agent,
    };
    match verb {
        "get" => read::get(&scope, request.headers()),
        "list" => read::list(&scope, request.headers()),
        "watch" => watch::watch(&scope, request.headers()),
        _ => mutate::mutate(&scope, verb, request).await,
    }
}

fn verb(method: &Method, target: &Target, query: &Query) -> Result<&'static str, Failure> {
    let one = target.name.is_some();
    Ok(match (method.as_str(), one) {
        ("GET" | "HEAD", _) if query.watch => "watch",
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) => "list",
        ("POST", _) if !one || target.subresource.is_some() => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) if target.subresource.is_none() => "delete",
        ("DELETE", false) => "deletecollection",
        _ => return Err(Failure::method_not_allowed_here()),
    })
}

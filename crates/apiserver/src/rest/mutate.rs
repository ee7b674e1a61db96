//! Writes: from a request to a call of the write path, and its answer.

use axum::body::Body;
use http::{Request, Response};
use serde_json::{Value, json};

use super::negotiate::{self, Form};
use super::{Scope, body, read, respond};
use crate::failure::Failure;
use crate::write::{Options, PatchKind, Written, parse_delete_options};

pub(super) async fn mutate(
    scope: &Scope,
    verb: &str,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let form = negotiate::form(request.headers())?;
    let (parts, content) = request.into_parts();
    let content = body::read(content).await?;
    let cluster = &scope.logical.cluster;
    let (kind, target) = (&*scope.kind, &scope.target);
    let namespace = target.namespace.as_deref().unwrap_or_default();
    if kind.namespaced && target.namespace.is_none() && verb != "deletecollection" {
        return Err(Failure::method_not_allowed_here());
    }
    let name = target.name.as_deref().unwrap_or_default();
    let sub = target.subresource.as_deref();
    let mut options = options(scope);
    match verb {
        "create" => {
            let (object, duplicates) = body::object(&parts.headers, &content)?;
            options.duplicates = duplicates;
            if let Some(sub) = sub {
                let answer = cluster
                    .sub_create(kind, namespace, name, sub, object, &options)
                    .await?;
                return Ok(respond::bytes(201, answer.to_string().into()));
            }
            let written = cluster
                .create(kind, namespace, None, object, &options)
                .await?;
            answer(scope, form, 201, &written)
        }
        "update" => {
            let (object, duplicates) = body::object(&parts.headers, &content)?;
            options.duplicates = duplicates;
            let written = cluster
                .update(kind, namespace, name, sub, object, &options)
                .await?;
            answer(
                scope,
                form,
                if written.created { 201 } else { 200 },
                &written,
            )
        }
        "patch" => {
            let (patch, object, duplicates) = patch(body::media(&parts.headers), &content)?;
            options.duplicates = duplicates;
            let written = cluster
                .patch(kind, namespace, name, sub, patch, object, &options)
                .await?;
            answer(
                scope,
                form,
                if written.created { 201 } else { 200 },
                &written,
            )
        }
        "delete" | "deletecollection" => delete(scope, verb, form, &parts.headers, &content).await,
        _ => Err(Failure::method_not_allowed_here()),
    }
}

fn options(scope: &Scope) -> Options {
    let query = &scope.query;
    let agent = scope
        .user_agent
        .split(['/', ' '])
        .next()
        .unwrap_or("unknown");
    Options {
        dry_run: query.dry_run,
        field_manager: query.field_manager.clone(),
        user_agent_manager: agent.to_owned(),
        validation: query.field_validation,
        user: scope.identity.user.clone(),
        force: query.force,
        duplicates: Vec::new(),
    }
}

fn patch(media: &str, content: &[u8]) -> Result<(PatchKind, Value, Vec<String>), Failure> {
    let kind = match media {
        "application/json-patch+json" => PatchKind::Json,
        "application/merge-patch+json" => PatchKind::Merge,
        "application/strategic-merge-patch+json" => PatchKind::Strategic,
        "application/apply-patch+yaml" => PatchKind::Apply,
        _ => {
            return Err(Failure::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ]));
        }
    };
    let (value, duplicates) = match kind {
        PatchKind::Apply => (body::yaml(content)?, Vec::new()),
        PatchKind::Json | PatchKind::Merge | PatchKind::Strategic => body::json(content)?,
    };
    Ok((kind, value, duplicates))
}

async fn delete(
    scope: &Scope,
    verb: &str,
    form: Form,
    headers: &http::HeaderMap,
    content: &[u8],
) -> Result<Response<Body>, Failure> {
    let mut asked = match content {
        [] => json!({}),
        content => body::object(headers, content)?.0,
    };
    if let Some(policy) = &scope.query.propagation_policy
        && asked.get("propagationPolicy").is_none()
    {
        asked["propagationPolicy"] = policy.as_str().into();
    }
    if let Some(seconds) = scope.query.grace_period_seconds
        && asked.get("gracePeriodSeconds").is_none()
    {
        asked["gracePeriodSeconds"] = seconds.into();
    }
    let mut options = parse_delete_options(&asked)?;
    options.dry_run |= scope.query.dry_run;
    let cluster = &scope.logical.cluster;
    let (kind, target) = (&*scope.kind, &scope.target);
    if verb == "delete" {
        let namespace = target.namespace.as_deref().unwrap_or_default();
        let name = target.name.as_deref().unwrap_or_default();
        let deleted = cluster.delete(kind, namespace, name, &options).await?;
        return Ok(respond::bytes(200, deleted.response.bytes()));
    }
    let matches = read::filter(scope)?;
    let gone = cluster
        .delete_collection(kind, target.namespace.as_deref(), matches, &options)
        .await?;
    let items: Vec<Value> = gone.iter().map(crate::write::Body::to_value).collect();
    let revision = cluster.storage.revision();
    Ok(read::list_of_values(scope, form, revision, &items))
}

fn answer(
    scope: &Scope,
    form: Form,
    code: u16,
    written: &Written,
) -> Result<Response<Body>, Failure> {
    let scale = scope.target.subresource.as_deref() == Some("scale");
    let body = match form {
        Form::Whole => written.object.bytes(),
        _ if scale => written.object.bytes(),
        Form::Table | Form::Metadata => read::one(scope, form, &written.object.to_value())
            .to_string()
            .into(),
    };
    let mut response = respond::bytes(code, body);
    respond::warn(&mut response, &written.warnings);
    Ok(response)
}

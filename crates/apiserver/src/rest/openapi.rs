//! OpenAPI v3 documents, one per group and version; what `kubectl explain` and field validation read.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::respond;
use crate::registry::schemas::DEFINITIONS;
use crate::registry::{Kind, Registry};

/// Where documents keep their schemas.
const COMPONENTS: &str = "#/components/schemas/";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

pub(super) fn serve(
    registry: &Registry,
    path: &str,
    headers: &HeaderMap,
) -> Option<Response<Body>> {
    let rest = path.trim_end_matches('/').strip_prefix("/openapi/v3")?;
    let tag = format!("\"{}-{}\"", env!("CARGO_PKG_VERSION"), registry.version());
    if headers
        .get(IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        == Some(tag.as_str())
    {
        let mut response = respond::text("");
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Some(response);
    }
    let mut documents: BTreeMap<String, Vec<Arc<Kind>>> = BTreeMap::new();
    for kind in registry.snapshot().iter() {
        documents
            .entry(base(kind))
            .or_default()
            .push(Arc::clone(kind));
    }
    let answer = if rest.is_empty() {
        let hash = registry.version();
        let paths: Map<String, Value> = documents
            .keys()
            .map(|base| {
                let url = format!("/openapi/v3/{base}?hash={hash}");
                (base.clone(), json!({"serverRelativeURL": url}))
            })
            .collect();
        json!({"paths": paths})
    } else {
        document(documents.get(rest.trim_start_matches('/'))?)
    };
    let mut response = respond::json(&answer);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Some(response)
}

/// The path below which a kind's group and version are served.
fn base(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("api/{}", kind.version)
    } else {
        format!("apis/{}/{}", kind.group, kind.version)
    }
}

fn document(kinds: &[Arc<Kind>]) -> Value {
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for kind in kinds {
        let name = add_schema(kind, &mut schemas);
        add_paths(kind, &name, &mut paths);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": concat!("muster-", env!("CARGO_PKG_VERSION"))},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// Adds a kind's schema with all it refers to; returns its name.
fn add_schema(kind: &Kind, schemas: &mut Map<String, Value>) -> String {
    let mut schema = (*kind.schema.openapi).clone();
    if let Some(definitions) = schema.get_mut("$defs").map(Value::take) {
        for (name, mut definition) in definitions.as_object().cloned().unwrap_or_default() {
            clean(&mut definition);
            schemas.insert(name, definition);
        }
    }
    let reversed: Vec<&str> = kind
        .group
        .split('.')
        .rev()
        .filter(|part| !part.is_empty())
        .collect();
    let name = match schema["title"].as_str() {
        Some(title) => title.to_owned(),
        None => format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind),
    };
    clean(&mut schema);
    if kind.custom {
        let text = |what: &str| json!({"type": "string", "description": what});
        let meta = json!({"description": "Standard object's metadata.", "allOf": [{"$ref": format!("{COMPONENTS}{OBJECT_META}")}]});
        if !schema["properties"].is_object() {
            schema["properties"] = json!({});
        }
        schema["properties"]["apiVersion"] =
            text("The group and version that this object is written in.");
        schema["properties"]["kind"] = text("The kind of this object.");
        schema["properties"]["metadata"] = meta;
        schemas.entry(OBJECT_META).or_insert_with(|| {
            let mut definitions = crate::registry::schemas::builtin("", "v1", "Namespace").openapi
                ["$defs"][OBJECT_META]
                .clone();
            clean(&mut definitions);
            definitions
        });
        for (name, definition) in
            crate::registry::schemas::builtin("", "v1", "ConfigMap").openapi["$defs"]
                .as_object()
                .into_iter()
                .flatten()
        {
            schemas.entry(name).or_insert_with(|| {
                let mut definition = definition.clone();
                clean(&mut definition);
                definition
            });
        }
    }
    schema["x-kubernetes-group-version-kind"] = json!([gvk(kind)]);
    schemas.insert(name.clone(), schema);
    name
}

/// Points references to the components and drops what OpenAPI 3.0 does not know. A reference with a description beside
/// it becomes an `allOf`, since 3.0 ignores what stands beside a reference.
fn clean(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            for key in ["$schema", "$defs", "title"] {
                if !map.get(key).is_some_and(Value::is_object) || key == "$defs" {
                    map.remove(key);
                }
            }
            let target = map
                .get("$ref")
                .and_then(Value::as_str)
                .map(|r| r.replace(DEFINITIONS, COMPONENTS));
            if let Some(target) = target {
                map.remove("$ref");
                if map.is_empty() {
                    map.insert("$ref".to_owned(), target.into());
                } else {
                    map.insert("allOf".to_owned(), json!([{"$ref": target}]));
                }
            }
            for (key, below) in map.iter_mut() {
                // Examples, defaults and enums are data, not schemas.
                if !matches!(key.as_str(), "default" | "enum" | "example") {
                    clean(below);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(clean),
        _ => {}
    }
}

fn gvk(kind: &Kind) -> Value {
    json!({"group": &*kind.group, "version": &*kind.version, "kind": &*kind.kind})
}

fn add_paths(kind: &Kind, schema: &str, paths: &mut Map<String, Value>) {
    let base = base(kind);
    let collection = if kind.namespaced {
        paths.insert(
            format!("/{base}/{}", kind.plural),
            json!({"get": operation(kind, schema, "list", &[])}),
        );
        format!("/{base}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        format!("/{base}/{}", kind.plural)
    };
    paths.insert(
        collection.clone(),
        json!({
            "get": operation(kind, schema, "list", &[]),
            "post": operation(kind, schema, "post", &["dryRun", "fieldManager", "fieldValidation"]),
            "delete": operation(kind, schema, "deletecollection", &["dryRun"]),
        }),
    );
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({
            "get": operation(kind, schema, "get", &[]),
            "put": operation(kind, schema, "put", &["dryRun", "fieldManager", "fieldValidation"]),
            "patch": operation(kind, schema, "patch", &["dryRun", "fieldManager", "fieldValidation", "force"]),
            "delete": operation(kind, schema, "delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
        }),
    );
}

fn operation(kind: &Kind, schema: &str, action: &str, parameters: &[&str]) -> Value {
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    json!({
        "operationId": format!("{action}{}{}", kind.version, kind.kind),
        "parameters": parameters,
        "responses": {"200": {"description": "OK",
            "content": {"application/json": {"schema": {"$ref": format!("{COMPONENTS}{schema}")}}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(kind),
    })
}

//! Discovery: which groups, versions and kinds are served; the old form and the aggregated one.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use serde_json::{Value, json};

use super::{negotiate, respond};
use crate::registry::{Kind, Registry, crd};

const AGGREGATED: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
);

pub(super) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "gitVersion": concat!("v1.36.0+muster-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

type Versions = BTreeMap<Arc<str>, Vec<Arc<Kind>>>;

/// Kinds by group and version; the core group is the empty one.
fn groups(registry: &Registry) -> BTreeMap<Arc<str>, Versions> {
    let mut groups: BTreeMap<Arc<str>, Versions> = BTreeMap::new();
    for kind in registry.snapshot().iter() {
        groups
            .entry(kind.group.clone())
            .or_default()
            .entry(kind.version.clone())
            .or_default()
            .push(Arc::clone(kind));
    }
    groups
}

/// Versions, the preferred one first.
fn ranked(versions: &Versions) -> Vec<(&Arc<str>, &Vec<Arc<Kind>>)> {
    let mut list: Vec<_> = versions.iter().collect();
    list.sort_by_key(|(version, _)| std::cmp::Reverse(crd::priority(version)));
    list
}

pub(super) fn serve(
    registry: &Registry,
    path: &str,
    headers: &HeaderMap,
) -> Option<Response<Body>> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let groups = groups(registry);
    let aggregated = negotiate::accepted(headers)
        .iter()
        .take_while(|range| range.param("as").is_some())
        .any(|range| {
            range.param("g") == Some("apidiscovery.k8s.io") && range.param("v") == Some("v2")
        });
    let answer = match parts.as_slice() {
        ["api"] if aggregated => {
            return Some(in_one(groups.iter().filter(|(group, _)| group.is_empty())));
        }
        ["apis"] if aggregated => {
            return Some(in_one(groups.iter().filter(|(group, _)| !group.is_empty())));
        }
        ["api"] => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        ["apis"] => {
            let list: Vec<Value> = groups
                .iter()
                .filter(|(group, _)| !group.is_empty())
                .map(|(group, versions)| group_value(group, versions))
                .collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list})
        }
        ["apis", group] => {
            let mut value = group_value(group, groups.get(*group)?);
            value["kind"] = "APIGroup".into();
            value["apiVersion"] = "v1".into();
            value
        }
        ["api", version] => resources("", version, groups.get("")?.get(*version)?),
        ["apis", group, version] => resources(group, version, groups.get(*group)?.get(*version)?),
        [""] => {
            let mut paths: Vec<String> = vec!["/api".into(), "/api/v1".into(), "/apis".into()];
            for (group, versions) in groups.iter().filter(|(group, _)| !group.is_empty()) {
                paths.push(format!("/apis/{group}"));
                paths.extend(
                    versions
                        .keys()
                        .map(|version| format!("/apis/{group}/{version}")),
                );
            }
            paths.extend(
                ["/healthz", "/livez", "/openapi/v3", "/readyz", "/version"].map(String::from),
            );
            json!({"paths": paths})
        }
        _ => return None,
    };
    Some(respond::json(&answer))
}

fn group_value(group: &str, versions: &Versions) -> Value {
    let list: Vec<Value> = ranked(versions)
        .into_iter()
        .map(|(version, _)| json!({"groupVersion": format!("{group}/{version}"), "version": &**version}))
        .collect();
    json!({"name": group, "versions": list, "preferredVersion": list.first()})
}

fn resources(group: &str, version: &str, kinds: &[Arc<Kind>]) -> Value {
    let mut list = Vec::new();
    for kind in kinds {
        list.push(json!({
            "name": &*kind.plural,
            "singularName": &*kind.singular,
            "namespaced": kind.namespaced,
            "kind": &*kind.kind,
            "verbs": kind.verbs,
            "shortNames": kind.short_names.iter().map(|n| &**n).collect::<Vec<_>>(),
            "categories": kind.categories.iter().map(|n| &**n).collect::<Vec<_>>(),
        }));
        for sub in subresources(kind) {
            list.push(json!({
                "name": format!("{}/{}", kind.plural, sub.name),
                "singularName": "",
                "namespaced": kind.namespaced,
                "group": sub.group,
                "version": sub.version,
                "kind": sub.kind,
                "verbs": sub.verbs,
            }));
        }
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list})
}

struct Subresource {
    name: &'static str,
    group: String,
    version: String,
    kind: String,
    verbs: &'static [&'static str],
}

fn subresources(kind: &Kind) -> Vec<Subresource> {
    let own = |name, verbs| Subresource {
        name,
        group: kind.group.to_string(),
        version: kind.version.to_string(),
        kind: kind.kind.to_string(),
        verbs,
    };
    let other = |name, group: &str, version: &str, of: &str, verbs| Subresource {
        name,
        group: group.to_owned(),
        version: version.to_owned(),
        kind: of.to_owned(),
        verbs,
    };
    let mut list = Vec::new();
    for name in kind.subresources.others {
        list.push(match *name {
            "eviction" => other(name, "policy", "v1", "Eviction", &["create"]),
            "binding" => other(name, "", "v1", "Binding", &["create"]),
            _ => own(name, &["update"]),
        });
    }
    if kind.subresources.scale.is_some() {
        list.push(other(
            "scale",
            "autoscaling",
            "v1",
            "Scale",
            &["get", "patch", "update"],
        ));
    }
    if kind.subresources.status {
        list.push(own("status", &["get", "patch", "update"]));
    }
    list
}

/// All groups in one document, as newer clients ask for it.
fn in_one<'a>(groups: impl Iterator<Item = (&'a Arc<str>, &'a Versions)>) -> Response<Body> {
    let items: Vec<Value> = groups
        .map(|(group, versions)| {
            let versions: Vec<Value> = ranked(versions)
                .into_iter()
                .map(|(version, kinds)| {
                    let resources: Vec<Value> =
                        kinds.iter().map(|kind| aggregated_resource(kind)).collect();
                    json!({"version": &**version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            json!({"metadata": {"name": &**group}, "versions": versions})
        })
        .collect();
    let mut response = respond::json(&json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }));
    response.headers_mut().insert(CONTENT_TYPE, AGGREGATED);
    response
}

fn aggregated_resource(kind: &Kind) -> Value {
    let subresources: Vec<Value> = subresources(kind)
        .into_iter()
        .map(|sub| {
            json!({
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": sub.verbs,
            })
        })
        .collect();
    json!({
        "resource": &*kind.plural,
        "responseKind": {"group": &*kind.group, "version": &*kind.version, "kind": &*kind.kind},
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &*kind.singular,
        "verbs": kind.verbs,
        "shortNames": kind.short_names.iter().map(|n| &**n).collect::<Vec<_>>(),
        "categories": kind.categories.iter().map(|n| &**n).collect::<Vec<_>>(),
        "subresources": subresources,
    })
}

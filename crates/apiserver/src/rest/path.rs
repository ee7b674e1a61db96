//! What a path names: a cluster, a kind, a namespace, an object, a subresource.

use std::borrow::Cow;

use crate::storage::ClusterName;

/// What a path below a cluster stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Objects of a kind.
    Resource(Target),
    /// Something else: discovery, OpenAPI, or nothing.
    Other,
}

/// Objects of a kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    /// Absent: all namespaces, or a cluster-scoped kind.
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

/// Splits `/clusters/NAME` off; without it the management cluster is meant.
pub(super) fn split_cluster(path: &str) -> (ClusterName, &str) {
    let named = path
        .strip_prefix("/clusters/")
        .map(|rest| match rest.find('/') {
            Some(at) => (&rest[..at], &rest[at..]),
            None => (rest, "/"),
        });
    match named {
        Some((name, rest)) => (ClusterName::new(&decoded(name)), rest),
        None => (ClusterName::management(), path),
    }
}

pub(super) fn parse(path: &str) -> Place {
    let parts: Vec<Cow<'_, str>> = path.trim_matches('/').split('/').map(decoded).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Place::Other,
    };
    let target = |namespace: Option<&str>, rest: &[&str]| -> Option<Target> {
        let text = |part: &&str| (*part).to_owned();
        let (plural, after) = rest.split_first()?;
        Some(Target {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: text(plural),
            namespace: namespace.map(str::to_owned),
            name: after.first().map(text),
            subresource: after.get(1).map(text),
        })
        .filter(|_| after.len() <= 2 && rest.iter().all(|part| !part.is_empty()))
    };
    let found = match rest {
        // A namespace itself, or its subresources.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] if group.is_empty() => {
            target(None, rest)
        }
        ["namespaces", namespace, below @ ..] if !below.is_empty() => {
            target(Some(namespace), below)
        }
        _ => target(None, rest),
    };
    found.map_or(Place::Other, Place::Resource)
}

/// A path segment without percent escapes; malformed ones stay as they are.
fn decoded(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return segment.into();
    }
    let bytes = segment.as_bytes();
    let (mut text, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escape = (bytes[at] == b'%')
            .then(|| segment.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escape {
            Some(byte) => {
                text.push(byte);
                at += 3;
            }
            None => {
                text.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: &str) -> String {
        match parse(path) {
            Place::Other => "other".to_owned(),
            Place::Resource(t) => {
                let or = |x: Option<String>| x.unwrap_or_else(|| "-".to_owned());
                format!(
                    "{}|{}|{}|{}|{}|{}",
                    t.group,
                    t.version,
                    t.plural,
                    or(t.namespace),
                    or(t.name),
                    or(t.subresource)
                )
            }
        }
    }

    #[test]
    fn paths_name_what_they_name() {
        for (path, expected) in [
            ("/api/v1/pods", "|v1|pods|-|-|-"),
            ("/api/v1/namespaces", "|v1|namespaces|-|-|-"),
            ("/api/v1/namespaces/a", "|v1|namespaces|-|a|-"),
            (
                "/api/v1/namespaces/a/finalize",
                "|v1|namespaces|-|a|finalize",
            ),
            ("/api/v1/namespaces/a/pods", "|v1|pods|a|-|-"),
            (
                "/api/v1/namespaces/a/pods/b/eviction",
                "|v1|pods|a|b|eviction",
            ),
            (
                "/apis/apps/v1/namespaces/a/deployments/b",
                "apps|v1|deployments|a|b|-",
            ),
            (
                "/apis/g/v1/namespaces/a/namespaces",
                "g|v1|namespaces|a|-|-",
            ),
            ("/api/v1/namespaces/a/pods/b%2Fc", "|v1|pods|a|b/c|-"),
            ("/api/v1", "other"),
            ("/apis/apps/v1", "other"),
            ("/apis/apps", "other"),
            ("/", "other"),
            ("/api/v1/namespaces/a/pods/b/c/d", "other"),
        ] {
            assert_eq!(told(path), expected, "{path}");
        }
    }

    #[test]
    fn the_cluster_comes_first() {
        assert_eq!(
            split_cluster("/clusters/a.b/api"),
            (ClusterName::new("a.b"), "/api")
        );
        assert_eq!(split_cluster("/clusters/a"), (ClusterName::new("a"), "/"));
        assert_eq!(
            split_cluster("/api/v1"),
            (ClusterName::management(), "/api/v1")
        );
    }
}

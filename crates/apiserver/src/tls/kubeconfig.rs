//! Kubeconfigs for users of the server.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::Authority;
use crate::rest::access::Role;

/// One context of a kubeconfig.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// Name of the context, its cluster and its user.
    pub name: &'a str,
    /// URL of the server, with the path of the cluster.
    pub server: &'a str,
    /// Whose credentials.
    pub role: Role,
}

/// A kubeconfig with these contexts, the first of them current. It carries credentials: write it with mode 0600.
pub fn kubeconfig(authority: &Authority, contexts: &[Context<'_>]) -> String {
    let ca = STANDARD.encode(authority.certificate());
    let of = |make: &dyn Fn(&Context<'_>) -> serde_json::Value| -> Vec<serde_json::Value> {
        contexts.iter().map(make).collect()
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": contexts.first().map(|context| context.name),
        "clusters": of(&|c| json!({"name": c.name, "cluster": {"server": c.server, "certificate-authority-data": ca}})),
        "users": of(&|c| json!({"name": c.name, "user": {"token": authority.token(c.role)}})),
        "contexts": of(&|c| json!({"name": c.name, "context": {"cluster": c.name, "user": c.name, "namespace": "default"}})),
    });
    // Every JSON document is a YAML document; kubeconfigs of this form are read by all clients.
    format!("{config:#}\n")
}

//! Who asks, and what they may.

use super::path::Target;
use crate::failure::Failure;
use crate::registry::Kind;

/// What a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Admin,
    /// Read everything but Secrets.
    Viewer,
}

/// An authenticated user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name, as messages and managed fields show it.
    pub user: String,
    /// What it may do.
    pub role: Role,
}

impl Identity {
    /// A user who may do everything.
    pub fn admin(user: &str) -> Self {
        Self {
            user: user.to_owned(),
            role: Role::Admin,
        }
    }
}

/// Refuses what the user may not do, in the words of Kubernetes.
pub(super) fn check(
    identity: &Identity,
    verb: &str,
    kind: &Kind,
    target: &Target,
) -> Result<(), Failure> {
    let reads = matches!(verb, "get" | "list" | "watch");
    let secret = kind.is("", "Secret");
    match identity.role {
        Role::Admin => Ok(()),
        Role::Viewer if reads && !secret => Ok(()),
        Role::Viewer => {
            let resource = match &target.subresource {
                Some(sub) => format!("{}/{sub}", kind.plural),
                None => kind.plural.to_string(),
            };
            let place = match &target.namespace {
                Some(namespace) => format!("in the namespace {namespace:?}"),
                None => "at the cluster scope".to_owned(),
            };
            let why = format!(
                "User {:?} cannot {verb} resource {resource:?} in API group {:?} {place}",
                identity.user, &*kind.group
            );
            Err(Failure::forbidden(
                kind,
                target.name.as_deref().unwrap_or_default(),
                &why,
            ))
        }
    }
}

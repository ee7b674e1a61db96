//! API errors: what a request that could not be served is answered with.
//!
//! A [`Failure`] is a `v1.Status` with its HTTP code; reasons, messages and details are worded as a Kubernetes API
//! server words them, because clients read them: `kubectl` prints the message, `kube` and client-go look at the reason
//! and at the causes.

use std::fmt;

use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails, StatusSummary, reason};
use serde_json::{Value, json};

use crate::machinery::FieldError;
use crate::registry::Kind;

/// An API error: becomes a `v1.Status` body with its HTTP code.
#[derive(Clone, PartialEq)]
pub struct Failure(Box<Status>);

/// One cause in the details of a [`Failure`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Machine-readable, for example `DisruptionBudget`.
    pub reason: String,
    /// For people.
    pub message: String,
    /// The field it is about; empty when it is about none.
    pub field: String,
}

impl Failure {
    /// A failure of the given code, reason and message, without details.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self(Box::new(Status {
            status: Some(StatusSummary::Failure),
            code,
            message: message.into(),
            metadata: None,
            reason: reason.to_owned(),
            details: None,
        }))
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details_mut();
        group.clone_into(&mut details.group);
        kind.clone_into(&mut details.kind);
        name.clone_into(&mut details.name);
        self
    }

    fn details_mut(&mut self) -> &mut StatusDetails {
        self.0.details.get_or_insert_with(|| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        })
    }

    /// Adds a cause to the details.
    pub fn because(mut self, cause: Cause) -> Self {
        self.details_mut().causes.push(StatusCause {
            reason: cause.reason,
            message: cause.message,
            field: cause.field,
        });
        self
    }

    /// Tells clients to wait this many seconds before they try again.
    pub fn after_seconds(mut self, seconds: u32) -> Self {
        self.details_mut().retry_after_seconds = seconds;
        self
    }

    /// 404: no object of that kind and name.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::resource_not_found(&kind.group, &kind.plural, name)
    }

    /// 404: no object of that name in a resource that is named by group and plural.
    pub fn resource_not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", qualified(plural, group));
        Self::new(404, reason::NOT_FOUND, message).about(group, plural, name)
    }

    /// 404: the path leads nowhere.
    pub fn no_such_path() -> Self {
        let mut failure = Self::new(
            404,
            reason::NOT_FOUND,
            "the server could not find the requested resource",
        );
        failure.details_mut();
        failure
    }

    /// 409: there is one already.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!(
            "{} \"{name}\" already exists",
            qualified(&kind.plural, &kind.group)
        );
        Self::new(409, reason::ALREADY_EXISTS, message).about(&kind.group, &kind.plural, name)
    }

    /// 409: the write was based on something that is no longer so.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        Self::conflict_on(&kind.group, &kind.plural, name, why)
    }

    /// 409 for an object that was changed since the caller read it.
    pub fn stale(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 about a resource named by group and plural.
    pub fn conflict_on(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            qualified(plural, group)
        );
        Self::new(409, reason::CONFLICT, message).about(group, plural, name)
    }

    /// 409: server-side apply would take fields that others manage; one `(cause message, field)` per conflict.
    pub fn apply_conflict(conflicts: &[crate::machinery::apply::Conflict]) -> Self {
        let mut managers: Vec<&str> = conflicts.iter().map(|c| c.manager.as_str()).collect();
        managers.sort_unstable();
        managers.dedup();
        let list = |of: &str| {
            conflicts
                .iter()
                .filter(|c| c.manager == of)
                .map(|c| format!("\n- {}", c.field))
                .collect::<String>()
        };
        let plural = if conflicts.len() == 1 { "" } else { "s" };
        let message = match (managers.as_slice(), conflicts) {
            ([manager], [only]) => {
                format!(
                    "Apply failed with 1 conflict: conflict with {manager}: {}",
                    only.field
                )
            }
            ([manager], _) => format!(
                "Apply failed with {} conflict{plural}: conflicts with {manager}:{}",
                conflicts.len(),
                list(manager)
            ),
            _ => {
                let parts: String = managers
                    .iter()
                    .map(|manager| format!("\nconflicts with {manager}:{}", list(manager)))
                    .collect();
                format!(
                    "Apply failed with {} conflict{plural}: {}",
                    conflicts.len(),
                    parts.trim_start()
                )
            }
        };
        let mut failure = Self::new(409, reason::CONFLICT, message);
        for conflict in conflicts {
            failure = failure.because(Cause {
                reason: "FieldManagerConflict".to_owned(),
                message: format!("conflict with {}", conflict.manager),
                field: conflict.field.clone(),
            });
        }
        failure
    }

    /// 422: the object is invalid in these fields.
    pub fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_kind(&kind.group, &kind.kind, name, errors)
    }

    /// 422 about a kind named by group and kind, for bodies that are not resources themselves (options, scales).
    pub fn invalid_kind(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let mut texts: Vec<String> = Vec::with_capacity(errors.len());
        for error in errors {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let joined = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} \"{name}\" is invalid: {joined}", qualified(kind, group));
        let mut failure = Self::new(422, reason::INVALID, message).about(group, kind, name);
        for error in errors {
            let text = error.to_string();
            let body = text
                .strip_prefix(&format!("{}: ", error.path))
                .unwrap_or(&text);
            failure = failure.because(Cause {
                reason: error.reason().to_owned(),
                message: body.to_owned(),
                field: error.path.clone(),
            });
        }
        failure
    }

    /// 400: the request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, reason::BAD_REQUEST, message)
    }

    /// 410: the asked-for revision is no longer kept.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(410, reason::EXPIRED, message)
    }

    /// 405: the resource does not support the verb.
    pub fn method_not_allowed(kind: &Kind, action: &str) -> Self {
        let message = format!(
            "{action} is not supported on resources of kind \"{}\"",
            qualified(&kind.plural, &kind.group)
        );
        Self::new(405, reason::METHOD_NOT_ALLOWED, message).about(&kind.group, &kind.plural, "")
    }

    /// 405 for a path that serves other methods.
    pub fn method_not_allowed_here() -> Self {
        let mut failure = Self::new(
            405,
            reason::METHOD_NOT_ALLOWED,
            "the server does not allow this method on the requested resource",
        );
        failure.details_mut();
        failure
    }

    /// 415: the body's media type is not among those accepted.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, reason::UNSUPPORTED_MEDIA_TYPE, message)
    }

    /// 415: this kind is not read in the media type that it was sent in.
    pub fn unsupported_body(error: &impl std::fmt::Display) -> Self {
        Self::new(415, reason::UNSUPPORTED_MEDIA_TYPE, error.to_string())
    }

    /// 406: none of the media types asked for can be served.
    pub fn not_acceptable(served: &[&str]) -> Self {
        let message = format!(
            "only the following media types are accepted: {}",
            served.join(", ")
        );
        Self::new(406, reason::NOT_ACCEPTABLE, message)
    }

    /// 413: the body is larger than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            reason::REQUEST_ENTITY_TOO_LARGE,
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 403 for one object: `why` completes "... is forbidden: ".
    pub fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        Self::resource_forbidden(&kind.group, &kind.plural, name, why)
    }

    /// 403 about a resource that is named by group and plural; an empty name means the whole resource.
    pub fn resource_forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let resource = qualified(plural, group);
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} \"{name}\" is forbidden: {why}")
        };
        Self::new(403, reason::FORBIDDEN, message).about(group, plural, name)
    }

    /// 403 for a path outside the resources.
    pub fn path_forbidden(user: &str, verb: &str, path: &str) -> Self {
        let mut failure = Self::new(
            403,
            reason::FORBIDDEN,
            format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\""),
        );
        failure.details_mut();
        failure
    }

    /// 401: who is asking is not known.
    pub fn unauthorized() -> Self {
        Self::new(401, reason::UNAUTHORIZED, "Unauthorized")
    }

    /// 429: not now. `retry_after` 0 leaves the time of the next try to the client.
    pub fn too_many_requests(message: impl Into<String>, cause: Cause, retry_after: u32) -> Self {
        Self::new(429, reason::TOO_MANY_REQUESTS, message)
            .after_seconds(retry_after)
            .because(cause)
    }

    /// 504: the server gave up for now.
    pub fn timeout(message: impl Into<String>, retry_after: u32) -> Self {
        let message = format!("Timeout: {}", message.into());
        Self::new(504, reason::TIMEOUT, message).after_seconds(retry_after)
    }

    /// 500: the server's own fault.
    pub fn internal(message: impl fmt::Display) -> Self {
        let text = message.to_string();
        Self::new(
            500,
            reason::INTERNAL_ERROR,
            format!("Internal error occurred: {text}"),
        )
        .because(Cause {
            message: text,
            ..Cause::default()
        })
    }

    /// The HTTP code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// The machine-readable reason.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The causes given in the details.
    pub fn causes(&self) -> &[StatusCause] {
        self.0.details.as_ref().map_or(&[], |d| &d.causes)
    }

    /// What the `Retry-After` header says, if anything.
    pub fn retry_after(&self) -> Option<u32> {
        let seconds = self.0.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then_some(seconds)
    }

    /// Whether this says that the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.0.code == 404
    }

    /// Whether this says that something changed meanwhile.
    pub fn is_conflict(&self) -> bool {
        self.0.reason == reason::CONFLICT
    }

    /// The status as `kube` knows it.
    pub fn status(&self) -> &Status {
        &self.0
    }

    /// The response body.
    pub fn to_json(&self) -> Value {
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.0.message,
        });
        if !self.0.reason.is_empty() {
            body["reason"] = json!(self.0.reason);
        }
        if let Some(details) = &self.0.details {
            body["details"] = json!(details);
        }
        body["code"] = json!(self.0.code);
        body
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.0.code, self.0.reason, self.0.message)
    }
}

impl std::error::Error for Failure {}

/// `deployments.apps`, or `pods` in the core group.
fn qualified(resource: &str, group: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self(Box::new(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::registry::strategy::{invalid, required};

    #[test]
    fn a_failure_is_a_status() {
        let kind = Registry::new().by_kind("apps", "v1", "Deployment").unwrap();
        assert_eq!(
            Failure::not_found(&kind, "web").to_json(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
                "message": "deployments.apps \"web\" not found", "reason": "NotFound",
                "details": {"name": "web", "group": "apps", "kind": "deployments"},
            })
        );
    }

    #[test]
    fn invalid_fields_are_listed_and_are_causes() {
        let kind = Registry::new().by_kind("apps", "v1", "Deployment").unwrap();
        let errors = [
            invalid("spec.replicas", -1, "must be greater than or equal to 0"),
            required("spec.selector", ""),
        ];
        let failure = Failure::invalid(&kind, "web", &errors);
        assert_eq!(
            failure.message(),
            "Deployment.apps \"web\" is invalid: [spec.replicas: Invalid value: -1: must be greater than or equal to 0, spec.selector: Required value]"
        );
        assert_eq!(
            failure.to_json()["details"]["causes"],
            json!([
                {"reason": "FieldValueInvalid", "field": "spec.replicas",
                 "message": "Invalid value: -1: must be greater than or equal to 0"},
                {"reason": "FieldValueRequired", "field": "spec.selector", "message": "Required value"},
            ])
        );
    }

    #[test]
    fn apply_conflicts_are_grouped_by_manager() {
        let conflict = |manager: &str, field: &str| crate::machinery::apply::Conflict {
            manager: manager.to_owned(),
            field: field.to_owned(),
        };
        let several = [
            conflict("\"b\"", ".spec.x"),
            conflict("\"a\"", ".spec.y"),
            conflict("\"a\"", ".spec.z"),
        ];
        assert_eq!(
            Failure::apply_conflict(&several).message(),
            "Apply failed with 3 conflicts: conflicts with \"a\":\n- .spec.y\n- .spec.z\nconflicts with \"b\":\n- .spec.x"
        );
        assert_eq!(
            Failure::apply_conflict(&several[1..]).message(),
            "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.y\n- .spec.z"
        );
        assert_eq!(
            Failure::apply_conflict(&several[..1]).message(),
            "Apply failed with 1 conflict: conflict with \"b\": .spec.x"
        );
    }
}

//! Responses.

use axum::body::Body;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WARNING};
use http::{HeaderValue, Response, StatusCode};
use serde_json::Value;

use crate::failure::Failure;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Objects are never to be taken from a cache between client and server.
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");

pub(super) fn bytes(code: u16, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CACHE_CONTROL, NO_CACHE);
    response
}

pub(super) fn json(value: &Value) -> Response<Body> {
    bytes(200, value.to_string().into())
}

pub(super) fn text(text: &'static str) -> Response<Body> {
    text_with_code(200, text)
}

pub(super) fn text_with_code(code: u16, text: &'static str) -> Response<Body> {
    let mut response = bytes(code, Bytes::from_static(text.as_bytes()));
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

pub(super) fn failure(failure: &Failure) -> Response<Body> {
    let mut response = bytes(failure.code(), failure.to_json().to_string().into());
    if let Some(seconds) = failure.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// Adds `Warning` headers, as RFC 7234 writes them.
pub(super) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let escaped = warning
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace(['\n', '\r'], " ");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

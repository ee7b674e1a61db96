//! Request bodies: size, media type, parsing.

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use crate::failure::Failure;
use crate::machinery::protobuf::{self, Unreadable};
use crate::machinery::strict;

/// As kube-apiserver's limit.
const LIMIT: usize = 3 * 1024 * 1024;

/// Reads a whole body.
pub(super) async fn read(body: Body) -> Result<Bytes, Failure> {
    match Limited::new(body, LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::too_large(LIMIT)),
        Err(error) => Err(Failure::bad_request(format!(
            "reading the request body: {error}"
        ))),
    }
}

/// The media type without parameters; empty when there is none.
pub(super) fn media(headers: &HeaderMap) -> &str {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map_or("", str::trim)
}

/// Parses a body as its media type says; returns it with fields that were given twice.
pub(super) fn object(headers: &HeaderMap, bytes: &[u8]) -> Result<(Value, Vec<String>), Failure> {
    match media(headers) {
        "" | "application/json" | "*/*" => json(bytes),
        "application/yaml" | "text/yaml" => yaml(bytes).map(|value| (value, Vec::new())),
        "application/vnd.kubernetes.protobuf" => protobuf::decode(bytes)
            .map(|value| (value, Vec::new()))
            .map_err(|error| match error {
                Unreadable::UnknownKind { .. } => Failure::unsupported_body(&error),
                _ => Failure::bad_request(format!("the body is not valid protobuf: {error}")),
            }),
        _ => Err(Failure::unsupported_media_type(&[
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ])),
    }
}

pub(super) fn json(bytes: &[u8]) -> Result<(Value, Vec<String>), Failure> {
    strict::parse(bytes)
        .map_err(|error| Failure::bad_request(format!("the body is not valid JSON: {error}")))
}

pub(super) fn yaml(bytes: &[u8]) -> Result<Value, Failure> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Failure::bad_request(format!("the body is not valid UTF-8: {error}")))?;
    // What begins as JSON is read as JSON, which is YAML too and parses faster.
    if text.trim_start().starts_with(['{', '[']) {
        return json(bytes).map(|(value, _)| value);
    }
    serde_saphyr::from_str(text)
        .map_err(|error| Failure::bad_request(format!("the body is not valid YAML: {error}")))
}

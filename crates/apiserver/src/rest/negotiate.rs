//! In which form an answer is wanted.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::failure::Failure;

/// The form of an answer about objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The objects.
    Whole,
    /// Rows and columns.
    Table,
    /// Only their metadata.
    Metadata,
}

/// One acceptable media type.
pub(super) struct Accepted<'a> {
    pub(super) media: &'a str,
    params: Vec<(&'a str, &'a str)>,
}

impl Accepted<'_> {
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.params
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
    }
}

/// What the client accepts, in its order.
pub(super) fn accepted(headers: &HeaderMap) -> Vec<Accepted<'_>> {
    let mut list: Vec<Accepted<'_>> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().filter(|media| !media.is_empty())?;
            let params = parts.filter_map(|param| param.split_once('=')).collect();
            Some(Accepted { media, params })
        })
        .collect();
    if list.is_empty() {
        list.push(Accepted {
            media: "*/*",
            params: Vec::new(),
        });
    }
    list
}

/// The first form that the client accepts and that is served.
pub(super) fn form(headers: &HeaderMap) -> Result<Form, Failure> {
    for range in accepted(headers) {
        if !matches!(range.media, "application/json" | "application/*" | "*/*") {
            continue;
        }
        match (range.param("as"), range.param("v")) {
            (None, _) => return Ok(Form::Whole),
            (Some("Table"), Some("v1") | None) => return Ok(Form::Table),
            (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("v1") | None) => {
                return Ok(Form::Metadata);
            }
            _ => {}
        }
    }
    Err(Failure::not_acceptable(&["application/json"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_served_form_wins() {
        let check = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            form(&headers)
        };
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(check(kubectl), Ok(Form::Table));
        assert_eq!(
            check("application/vnd.kubernetes.protobuf, application/json"),
            Ok(Form::Whole)
        );
        assert_eq!(
            check("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Ok(Form::Metadata)
        );
        assert_eq!(
            check("application/vnd.kubernetes.protobuf")
                .unwrap_err()
                .code(),
            406
        );
        assert_eq!(form(&HeaderMap::new()), Ok(Form::Whole));
    }
}

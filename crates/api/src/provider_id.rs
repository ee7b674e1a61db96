//! Provider IDs: when two of them mean the same instance.
//!
//! Providers and kubelets do not always write an instance's ID in the same form: without its zone, with another number of
//! slashes, in another case. Each provider's rules say what may differ; where they do not, IDs are compared as they are.

/// What two provider IDs of one instance have in common, and of two instances do not.
///
/// - `aws`: the instance ID, which is unique in a region; the zone before it may be missing.
/// - `azure`: the whole path, in any case, for Azure's resource IDs are.
/// - others: everything; of slashes, one counts as much as several.
pub fn identity(id: &str) -> String {
    let Some((scheme, rest)) = id.split_once("://") else {
        return id.to_owned();
    };
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    match (scheme, parts.last()) {
        ("aws", Some(last)) => format!("aws://{last}"),
        ("azure", _) => format!("azure://{}", parts.join("/").to_lowercase()),
        _ => format!("{scheme}://{}", parts.join("/")),
    }
}

/// Whether two provider IDs mean the same instance.
pub fn same(a: &str, b: &str) -> bool {
    a == b || identity(a) == identity(b)
}

/// The last part of an ID in lower case: what a person would call alike.
pub fn likeness(id: &str) -> String {
    id.trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_differ_only_in_form_are_one_instance() {
        for (a, b) in [
            ("aws:////i-1", "aws:///eu-west-1a/i-1"),
            (
                "azure:///subscriptions/S/resourceGroups/RG/providers/X/virtualMachines/0",
                "azure:////subscriptions/s/resourcegroups/rg/providers/x/virtualmachines/0",
            ),
            ("gce://project/zone/name", "gce:///project/zone/name"),
            ("sim:///a/i-1", "sim:///a/i-1"),
        ] {
            assert!(same(a, b), "{a} and {b}");
        }
        for (a, b) in [
            ("aws:///a/i-1", "aws:///a/i-2"),
            ("gce://project/zone/name", "gce://project/zone/NAME"),
            ("sim:///a/i-1", "sim:///b/i-1"),
            ("azure:///s/0", "aws:///s/0"),
            ("", "aws:///"),
        ] {
            assert!(!same(a, b), "{a} and {b}");
        }
    }
}

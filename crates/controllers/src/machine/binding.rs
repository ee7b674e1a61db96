//! Which Node is a Machine's: the one with its provider ID, and of several that claim it the one that the cloud knows.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use muster_api::reference::{AddressType, MachineAddress};

use super::NodeSeen;

/// What Nodes claim to be an instance, and which of them it is.
///
/// A Node says itself which instance it is, so a second claim proves nothing. The instance's names come from the cloud, and
/// a Node's name cannot be another's: a Node of such a name is the true one. Where none is, the one that is bound keeps the
/// binding; and where none is bound, it cannot be told. The names are those of the claims that were not followed.
pub(super) fn choose(
    claims: &[Arc<Node>],
    bound: Option<&str>,
    addresses: &[MachineAddress],
) -> (NodeSeen, Vec<String>) {
    let others = |node: &Arc<Node>| {
        let others = claims.iter().filter(|other| !Arc::ptr_eq(other, node));
        sorted(others.map(|node| node.name_any()).collect())
    };
    let named: Vec<&Arc<Node>> = claims
        .iter()
        .filter(|node| is_named(&node.name_any(), addresses))
        .collect();
    let bound = claims
        .iter()
        .find(|node| Some(node.name_any().as_str()) == bound);
    let chosen = match (claims, named.as_slice(), bound) {
        ([only], _, _) => Some(only),
        (_, [named], _) => Some(*named),
        (_, [], Some(bound)) => Some(bound),
        _ => None,
    };
    match (chosen, claims) {
        (Some(node), _) => (NodeSeen::Here(Arc::clone(node)), others(node)),
        (None, []) => (NodeSeen::Missing, Vec::new()),
        (None, several) => {
            let names = several.iter().map(|node| node.name_any()).collect();
            (NodeSeen::Several(sorted(names)), Vec::new())
        }
    }
}

/// Whether the cloud calls an instance so.
fn is_named(node: &str, addresses: &[MachineAddress]) -> bool {
    addresses.iter().any(|address| match address.type_ {
        AddressType::Hostname | AddressType::InternalDNS | AddressType::ExternalDNS => {
            address.address.eq_ignore_ascii_case(node)
        }
        AddressType::InternalIP | AddressType::ExternalIP => false,
    })
}

/// In words, that further Nodes claim an instance.
pub(super) fn told(rivals: &[String]) -> Option<String> {
    let (plural, verb) = match rivals {
        [] => return None,
        [_] => ("", "claims"),
        _ => ("s", "claim"),
    };
    Some(format!(
        "Node{plural} {} {verb} the providerID of this Machine too and {} left alone: find out who registered {}, and delete {}",
        rivals.join(", "),
        if plural.is_empty() { "is" } else { "are" },
        if plural.is_empty() { "it" } else { "them" },
        if plural.is_empty() { "it" } else { "them" },
    ))
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Arc<Node> {
        Arc::new(serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap())
    }

    fn hostname(name: &str) -> MachineAddress {
        MachineAddress {
            type_: AddressType::Hostname,
            address: name.to_owned(),
        }
    }

    #[test]
    fn of_several_claims_the_one_that_the_cloud_knows_counts_and_else_the_one_that_is_bound() {
        let claims = [node("rogue"), node("i-1")];
        let name = |seen: &NodeSeen| match seen {
            NodeSeen::Here(node) => node.name_any(),
            NodeSeen::Several(names) => names.join("+"),
            NodeSeen::Missing | NodeSeen::Unreachable => "none".to_owned(),
        };
        let (seen, rivals) = choose(&claims, Some("rogue"), &[hostname("I-1")]);
        assert_eq!(
            (name(&seen).as_str(), rivals),
            ("i-1", vec!["rogue".to_owned()])
        );
        let (seen, rivals) = choose(&claims, Some("rogue"), &[]);
        assert_eq!(
            (name(&seen).as_str(), rivals),
            ("rogue", vec!["i-1".to_owned()])
        );
        let (seen, _) = choose(&claims, None, &[]);
        assert_eq!(name(&seen), "i-1+rogue");
        let (seen, rivals) = choose(&claims[..1], None, &[hostname("i-1")]);
        assert_eq!((name(&seen).as_str(), rivals.len()), ("rogue", 0));
        assert_eq!(name(&choose(&[], None, &[]).0), "none");
    }
}

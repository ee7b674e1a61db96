//! The volumes that are attached to a Node, as `plan` wants to know them, and where volumes let Pods run.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod as CorePod};
use kube::ResourceExt;
use muster_plan::disruption::Bound;
use muster_plan::drain::{PodName, Skipped};
use muster_plan::volumes::{Attached, Claim, Claims, Detach, Volume, detach};

use crate::View;

/// How `status.volumesAttached` of a Node names a volume of a CSI driver. Source: Kubernetes.
pub fn csi(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// The name by which a Node says that a volume is attached, for volumes of CSI drivers.
pub fn handle_of(volume: &PersistentVolume) -> Option<String> {
    let source = volume.spec.as_ref()?.csi.as_ref()?;
    Some(csi(&source.driver, &source.volume_handle))
}

/// The claim that a volume is bound to.
pub fn claim_of(volume: &PersistentVolume) -> Option<Claim> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(Claim {
        namespace: claim.namespace.clone().unwrap_or_default(),
        name: claim.name.clone().unwrap_or_default(),
    })
}

/// The attached volumes of a Node: those that are waited for, and those that are not.
pub fn attached(view: &dyn View, node: &Node, skipped: &[(PodName, Skipped)]) -> Detach {
    let name = node.name_any();
    let attachments = view.attachments_on(&name);
    let by_attachment = attachments
        .iter()
        .filter(|attachment| {
            attachment
                .status
                .as_ref()
                .is_some_and(|status| status.attached)
        })
        .map(|attachment| {
            let name = attachment.spec.source.persistent_volume_name.clone();
            let volume = name.as_ref().and_then(|name| view.volume(name));
            describe(name.unwrap_or_else(|| attachment.name_any()), volume)
        });
    let by_node = node
        .status
        .iter()
        .flat_map(|status| status.volumes_attached.iter().flatten())
        .map(|volume| describe(volume.name.clone(), view.volume_by_handle(&volume.name)));
    let all: BTreeSet<Attached> = by_attachment.chain(by_node).collect();
    if all.is_empty() {
        return Detach::default();
    }
    detach(&all, &claims(view, &name, skipped))
}

fn describe(name: String, volume: Option<Arc<PersistentVolume>>) -> Attached {
    let Some(volume) = volume else {
        return Attached { name, volume: None };
    };
    let phase = volume
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    Attached {
        name: volume.name_any(),
        volume: Some(Volume {
            claim: claim_of(&volume),
            released: matches!(phase, Some("Released" | "Available")),
        }),
    }
}

fn claims(view: &dyn View, node: &str, skipped: &[(PodName, Skipped)]) -> Claims {
    let mut claims = Claims::default();
    for pod in view.pods_on(node) {
        let name = PodName {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
        };
        let is_skipped = skipped.iter().any(|(pod, _)| *pod == name);
        let side = if is_skipped {
            &mut claims.of_skipped
        } else {
            &mut claims.of_others
        };
        side.extend(claims_of(&pod));
    }
    claims
}

/// The claims that a Pod uses.
pub fn claims_of(pod: &CorePod) -> Vec<Claim> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| {
            let name = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(claim), _) => claim.claim_name.clone(),
                // A generic ephemeral volume's claim is named after Pod and volume. Source: Kubernetes.
                (None, Some(_)) => format!("{}-{}", pod.name_any(), volume.name),
                (None, None) => return None,
            };
            Some(Claim {
                namespace: pod.namespace().unwrap_or_default(),
                name,
            })
        })
        .collect()
}

/// Keys by which a volume says in which zone it is: the present one and the one before it. Source: Kubernetes.
const ZONE_KEYS: [&str; 2] = [
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
];
/// The key by which a volume says on which Node it is. Source: Kubernetes.
const NODE_KEY: &str = "kubernetes.io/hostname";

/// Where a volume lets Pods run: by its node affinity, whose terms all have to name a Node or a zone for that to count.
pub fn bound(volume: &PersistentVolume) -> Bound {
    let terms = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref())
        .map(|required| required.node_selector_terms.as_slice())
        .unwrap_or_default();
    let of_term = |keys: &mut dyn Iterator<Item = &str>| {
        keys.map(|key| {
            if key == NODE_KEY {
                Bound::Node
            } else if ZONE_KEYS.contains(&key) || key.ends_with("/zone") {
                // Drivers have zone keys of their own, such as topology.ebs.csi.aws.com/zone.
                Bound::Zone
            } else {
                Bound::Nowhere
            }
        })
        .max()
        .unwrap_or_default()
    };
    terms
        .iter()
        .map(|term| {
            let expressions = term.match_expressions.iter().flatten();
            of_term(&mut expressions.map(|expression| expression.key.as_str()))
        })
        .min()
        .unwrap_or_default()
}

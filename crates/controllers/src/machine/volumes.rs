//! The volumes that are attached to a Node, as `plan` wants to know them.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod as CorePod};
use kube::ResourceExt;
use muster_informers::Key;
use muster_plan::drain::{PodName, Skipped};
use muster_plan::volumes::{Attached, Claim, Claims, Detach, Volume, detach};

use crate::workload::Workload;

/// The attached volumes of a Node: those that are waited for, and those that are not.
pub(super) fn attached(workload: &Workload, node: &Node, skipped: &[(PodName, Skipped)]) -> Detach {
    let attachments = workload
        .attachments
        .by(workload.attachments_by_node, &node.name_any());
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
            let volume = name
                .as_ref()
                .and_then(|name| workload.volumes.get(&Key::new("", name)));
            describe(name.unwrap_or_else(|| attachment.name_any()), volume)
        });
    let by_node = node
        .status
        .iter()
        .flat_map(|status| status.volumes_attached.iter().flatten())
        .map(|volume| {
            let found = workload
                .volumes
                .by(workload.volumes_by_handle, &volume.name);
            describe(volume.name.clone(), found.into_iter().next())
        });
    let all: BTreeSet<Attached> = by_attachment.chain(by_node).collect();
    if all.is_empty() {
        return Detach::default();
    }
    detach(&all, &claims(workload, &node.name_any(), skipped))
}

fn describe(name: String, volume: Option<Arc<PersistentVolume>>) -> Attached {
    let Some(volume) = volume else {
        return Attached { name, volume: None };
    };
    let claim = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref())
        .map(|claim| Claim {
            namespace: claim.namespace.clone().unwrap_or_default(),
            name: claim.name.clone().unwrap_or_default(),
        });
    let phase = volume
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    Attached {
        name: volume.name_any(),
        volume: Some(Volume {
            claim,
            released: matches!(phase, Some("Released" | "Available")),
        }),
    }
}

fn claims(workload: &Workload, node: &str, skipped: &[(PodName, Skipped)]) -> Claims {
    let mut claims = Claims::default();
    for pod in workload.pods.by(workload.pods_by_node, node) {
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
        side.extend(of_pod(&pod));
    }
    claims
}

fn of_pod(pod: &CorePod) -> Vec<Claim> {
    let namespace = pod.namespace().unwrap_or_default();
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
                namespace: namespace.clone(),
                name,
            })
        })
        .collect()
}

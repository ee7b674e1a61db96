//! The attach/detach controller: volumes follow the Pods that use their claims.
//!
//! A volume is attached to one Node at a time. It is detached once no Pod of its Node uses it, after the time that it asks
//! for, and from a Node that does not answer only when nobody can be expected to unmount it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster_api::sim::SimDuration;
use muster_informers::{Key, Requeue};
use muster_observe::volumes::{claims_of, handle_of};
use serde_json::json;

use super::{WorkError, Workload, hash, is_finished, moved_on};

/// From when nobody uses it until it is detached, unless the volume says otherwise.
const DETACH: Duration = Duration::from_millis(200);
/// After which time a volume is detached from a Node that does not answer. Source: Kubernetes.
const FORCED: Duration = Duration::from_secs(6 * 60);

/// Index value of a volume: the claim that it is bound to.
pub(super) fn claim_index(volume: &PersistentVolume) -> Vec<String> {
    let claim = muster_observe::volumes::claim_of(volume);
    let value = claim.map(|claim| format!("{}/{}", claim.namespace, claim.name));
    value.into_iter().collect()
}

/// Index value of an attachment: its volume's name.
pub(super) fn volume_index(attachment: &VolumeAttachment) -> Vec<String> {
    let volume = attachment.spec.source.persistent_volume_name.clone();
    volume.into_iter().collect()
}

/// The volumes that a Pod uses, as far as its claims are bound.
fn volumes_of(workload: &Workload, pod: &Pod) -> Vec<Arc<PersistentVolume>> {
    let claims = claims_of(pod);
    let values = claims
        .iter()
        .map(|claim| format!("{}/{}", claim.namespace, claim.name));
    values
        .flat_map(|value| workload.volumes.by(workload.volumes_by_claim, &value))
        .collect()
}

/// Whether all volumes of a Pod are attached to its Node, so that it can start.
pub(super) fn are_there(workload: &Workload, pod: &Pod, node: &str) -> bool {
    volumes_of(workload, pod).iter().all(|volume| {
        let found = workload
            .attachments
            .by(workload.attachments_by_volume, &volume.name_any());
        found
            .iter()
            .any(|a| a.spec.node_name == node && is_attached(a))
    })
}

fn is_attached(attachment: &VolumeAttachment) -> bool {
    let status = attachment.status.as_ref();
    status.is_some_and(|status| status.attached)
}

/// Brings the volumes of a Node to what its Pods use.
pub(super) async fn pass(workload: &Workload, name: &str) -> Result<Requeue, WorkError> {
    let node = workload.nodes.get(&Key::new("", name));
    let mut wanted: BTreeMap<String, Arc<PersistentVolume>> = BTreeMap::new();
    for pod in workload.pods.by(workload.pods_by_node, name) {
        if node.is_some() && !is_finished(&pod) {
            let volumes = volumes_of(workload, &pod);
            wanted.extend(volumes.into_iter().map(|v| (v.name_any(), v)));
        }
    }
    let mut soonest: Option<Duration> = None;
    let mut attached: BTreeSet<String> = BTreeSet::new();
    for attachment in workload.attachments.by(workload.attachments_by_node, name) {
        let Some(volume) = attachment.spec.source.persistent_volume_name.clone() else {
            continue;
        };
        let key = format!("detach/{}", attachment.name_any());
        if wanted.remove(&volume).is_some() {
            workload.is_over(&key);
            attached.insert(volume);
            continue;
        }
        let found = workload.volumes.get(&Key::new("", &volume));
        let delay = match &node {
            None => Some(Duration::ZERO),
            Some(_) => found.as_deref().map_or(Some(DETACH), detach_delay),
        };
        let delay = match (&node, delay) {
            (Some(_), Some(delay)) if !workload.is_alive(name) => Some(delay.max(FORCED)),
            (_, delay) => delay,
        };
        let left = delay.map(|delay| delay.saturating_sub(workload.since(&key)));
        match left {
            Some(Duration::ZERO) => {
                workload.is_over(&key);
                detach(workload, &attachment).await?;
            }
            left => {
                attached.insert(volume);
                soonest = soonest.into_iter().chain(left).min();
            }
        }
    }
    for (volume, found) in wanted {
        let elsewhere = workload
            .attachments
            .by(workload.attachments_by_volume, &volume);
        if elsewhere.is_empty() {
            attach(workload, name, &found).await?;
            attached.insert(volume);
        }
    }
    if let Some(node) = &node {
        report(workload, node, &attached).await?;
    }
    Ok(soonest.map_or(Requeue::Never, Requeue::After))
}

/// From when nobody uses it until it is detached; nothing, where it never is.
fn detach_delay(volume: &PersistentVolume) -> Option<Duration> {
    let text = |what: &str| volume.annotations().get(&format!("sim.muster.dev/{what}"));
    if text("never-detaches").is_some_and(|value| value == "true") {
        return None;
    }
    let asked = text("detach-delay").and_then(|text| text.parse::<SimDuration>().ok());
    Some(asked.map_or(DETACH, |asked| asked.0))
}

async fn attach(
    workload: &Workload,
    node: &str,
    volume: &PersistentVolume,
) -> Result<(), WorkError> {
    let driver = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    let driver = driver.map_or("sim.muster.dev", |csi| csi.driver.as_str());
    let name = format!("csi-{}", hash(&json!([driver, volume.name_any(), node])));
    let attachment: VolumeAttachment = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume.name_any()}},
    }))
    .expect("a VolumeAttachment of this form deserializes");
    let all: Api<VolumeAttachment> = Api::all(workload.client.clone());
    match all.create(&PostParams::default(), &attachment).await {
        Ok(_) => {}
        Err(error) if moved_on(&error) => {}
        Err(error) => return Err(error.into()),
    }
    let patch = Patch::Merge(json!({"status": {"attached": true}}));
    match all
        .patch_status(&name, &PatchParams::default(), &patch)
        .await
    {
        Ok(written) => workload.attachments.absorb(written),
        Err(error) if moved_on(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

async fn detach(workload: &Workload, attachment: &VolumeAttachment) -> Result<(), WorkError> {
    let all: Api<VolumeAttachment> = Api::all(workload.client.clone());
    match all
        .delete(&attachment.name_any(), &DeleteParams::default())
        .await
    {
        Ok(_) => Ok(()),
        Err(error) if moved_on(&error) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Says on the Node which volumes are attached to it.
async fn report(
    workload: &Workload,
    node: &Node,
    attached: &BTreeSet<String>,
) -> Result<(), WorkError> {
    let list: Vec<serde_json::Value> = attached
        .iter()
        .filter_map(|name| workload.volumes.get(&Key::new("", name)))
        .filter_map(|volume| handle_of(&volume))
        .map(|name| json!({"name": name, "devicePath": ""}))
        .collect();
    let status = node.status.as_ref();
    let before = status.and_then(|status| status.volumes_attached.as_ref());
    if json!(before.cloned().unwrap_or_default()) == json!(list) {
        return Ok(());
    }
    let nodes: Api<Node> = Api::all(workload.client.clone());
    let patch = Patch::Merge(json!({"status": {"volumesAttached": list}}));
    match nodes
        .patch_status(&node.name_any(), &PatchParams::default(), &patch)
        .await
    {
        Ok(written) => workload.nodes.absorb(written),
        Err(error) if moved_on(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

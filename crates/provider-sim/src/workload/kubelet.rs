//! What a kubelet does with one Pod: start it, stop it, let it complete; and what becomes of Pods whose Node is gone.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use muster_api::sim::SimDuration;
use muster_informers::{Key, Requeue};
use serde_json::{Value, json};

use super::{WorkError, Workload, is_finished, is_node_ready, is_ready, moved_on, node_of, phase};

/// From being bound until it is ready, unless the Pod says otherwise.
const START: Duration = Duration::from_millis(200);
/// From its deletion until it has stopped, unless the Pod says otherwise.
const STOP: Duration = Duration::from_millis(100);

/// After which time a write is tried again that was made onto an old state.
const AGAIN: Duration = Duration::from_millis(20);

fn asked(pod: &Pod, what: &str, default: Duration) -> Duration {
    let text = pod.annotations().get(&format!("sim.muster.dev/{what}"));
    text.and_then(|text| text.parse::<SimDuration>().ok())
        .map_or(default, |d| d.0)
}

fn wants(pod: &Pod, what: &str) -> bool {
    pod.annotations()
        .get(&format!("sim.muster.dev/{what}"))
        .is_some_and(|value| value == "true")
}

pub(super) async fn pass(workload: &Workload, key: &Key) -> Result<Requeue, WorkError> {
    let Some(pod) = workload.pods.get(key) else {
        return Ok(Requeue::Never);
    };
    let Some(node_name) = node_of(&pod) else {
        return Ok(Requeue::Never);
    };
    let Some(node) = workload.nodes.get(&Key::new("", node_name)) else {
        // Its Node is gone, and with it whoever could say that it has stopped.
        return remove(workload, &pod).await;
    };
    if !workload.is_alive(node_name) || !is_node_ready(&node) {
        return Ok(Requeue::Never);
    }
    let uid = pod.uid().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        if wants(&pod, "never-stops") {
            return Ok(Requeue::Never);
        }
        let grace = Duration::from_secs(
            u64::try_from(pod.metadata.deletion_grace_period_seconds.unwrap_or(30)).unwrap_or(0),
        );
        let delay = asked(&pod, "stop-delay", STOP).min(grace);
        let waited = workload.since(&format!("stop/{uid}"));
        if waited < delay {
            return Ok(Requeue::After(delay - waited));
        }
        workload.is_over(&format!("stop/{uid}"));
        return remove(workload, &pod).await;
    }
    if is_finished(&pod) {
        return Ok(Requeue::Never);
    }
    if phase(&pod) == "Running" {
        if let Some(after) = pod
            .annotations()
            .get("sim.muster.dev/completes-after")
            .and_then(|t| t.parse::<SimDuration>().ok())
        {
            let waited = workload.since(&format!("run/{uid}"));
            if waited < after.0 {
                return Ok(Requeue::After(after.0 - waited));
            }
            return write(workload, &pod, json!({"phase": "Succeeded", "conditions": conditions(&pod, false, workload.clock.now())})).await;
        }
        if !is_ready(&pod) && !wants(&pod, "never-ready") {
            return write(
                workload,
                &pod,
                json!({"conditions": conditions(&pod, true, workload.clock.now())}),
            )
            .await;
        }
        return Ok(Requeue::Never);
    }
    if !super::attach::are_there(workload, &pod, node_name) {
        // Attachments wake it.
        return Ok(Requeue::Never);
    }
    let delay = asked(&pod, "start-delay", START);
    let waited = workload.since(&format!("start/{uid}"));
    if waited < delay {
        return Ok(Requeue::After(delay - waited));
    }
    let now = workload.clock.now();
    let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let ready = !wants(&pod, "never-ready");
    let containers: Vec<Value> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| {
            json!({"name": container.name, "image": container.image, "imageID": container.image, "ready": ready,
                "restartCount": 0, "started": true, "state": {"running": {"startedAt": second}}})
        })
        .collect();
    let status = json!({
        "phase": "Running",
        "startTime": second,
        "podIP": address(&uid),
        "podIPs": [{"ip": address(&uid)}],
        "conditions": conditions(&pod, ready, now),
        "containerStatuses": containers,
    });
    write(workload, &pod, status).await
}

fn address(uid: &str) -> String {
    let hash = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let [_, b, c, d] = hash.to_be_bytes();
    format!("10.{b}.{c}.{d}")
}

/// The Pod's conditions with readiness as given; other conditions stay.
fn conditions(pod: &Pod, ready: bool, now: Timestamp) -> Vec<Value> {
    let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut list: Vec<Value> = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .map(|condition| json!(condition))
        .filter(|condition| {
            !["Ready", "ContainersReady", "Initialized"]
                .iter()
                .any(|t| condition["type"] == *t)
        })
        .collect();
    for (type_, holds) in [
        ("Initialized", true),
        ("ContainersReady", ready),
        ("Ready", ready),
    ] {
        list.push(json!({"type": type_, "status": if holds { "True" } else { "False" }, "lastTransitionTime": second}));
    }
    list
}

/// The Node does not answer any more: the Pod counts as not ready.
pub(super) async fn not_ready(workload: &Workload, pod: &Pod) -> Result<(), kube::Error> {
    if !is_ready(pod) {
        return Ok(());
    }
    let status = json!({"conditions": conditions(pod, false, workload.clock.now())});
    match write(workload, pod, status).await {
        Ok(_) => Ok(()),
        Err(WorkError(error)) => Err(error),
    }
}

async fn write(workload: &Workload, pod: &Pod, status: Value) -> Result<Requeue, WorkError> {
    let api: Api<Pod> = Api::namespaced(
        workload.client.clone(),
        &pod.namespace().unwrap_or_default(),
    );
    // Conditions are one list to a merge: only onto the state that was read, so that what others said of it stays.
    let patch = json!({
        "metadata": {"uid": pod.uid(), "resourceVersion": pod.resource_version()},
        "status": status,
    });
    match api
        .patch_status(
            &pod.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(written) => workload.pods.absorb(written),
        Err(error) if moved_on(&error) => return Ok(Requeue::After(AGAIN)),
        Err(error) => return Err(error.into()),
    }
    Ok(Requeue::Never)
}

async fn remove(workload: &Workload, pod: &Pod) -> Result<Requeue, WorkError> {
    let api: Api<Pod> = Api::namespaced(
        workload.client.clone(),
        &pod.namespace().unwrap_or_default(),
    );
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default().grace_period(0)
    };
    match api.delete(&pod.name_any(), &params).await {
        Ok(_) => {}
        Err(error) if moved_on(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Requeue::Never)
}

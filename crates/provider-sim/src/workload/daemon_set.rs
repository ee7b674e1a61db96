//! DaemonSets: one Pod on each Node that accepts it.

use std::collections::HashSet;
use std::sync::Arc;

use futures::FutureExt;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use muster_informers::{Key, Requeue};
use serde_json::{Value, json};

use super::{
    WorkError, Workload, delete, is_deleting, is_finished, is_ready, moved_on, node_of, scheduler,
    together,
};

/// What every daemon tolerates, so that it stays where nothing else does. Source: Kubernetes.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

fn template(set: &DaemonSet, node: &str) -> Value {
    let mut spec = json!(
        set.spec
            .as_ref()
            .and_then(|spec| spec.template.spec.as_ref())
    );
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    tolerations.extend(
        TOLERATED.map(|(key, effect)| json!({"key": key, "operator": "Exists", "effect": effect})),
    );
    spec["tolerations"] = tolerations.into();
    spec["nodeName"] = node.into();
    let metadata = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.metadata.clone())
        .unwrap_or_default();
    json!({
        "metadata": {
            "generateName": format!("{}-", set.name_any()),
            "labels": metadata.labels.unwrap_or_default(),
            "annotations": metadata.annotations.unwrap_or_default(),
            "ownerReferences": [set.controller_owner_ref(&())],
        },
        "spec": spec,
    })
}

pub(super) async fn pass(workload: &Workload, key: &Key) -> Result<Requeue, WorkError> {
    let Some(set) = workload.daemon_sets.get(key) else {
        return Ok(Requeue::Never);
    };
    if is_deleting(&*set) {
        return Ok(Requeue::Never);
    }
    let (ended, pods): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) = workload
        .pods
        .by(workload.pods_by_owner, &set.uid().unwrap_or_default())
        .into_iter()
        .filter(|pod| !is_deleting(&**pod))
        .partition(|pod| is_finished(pod));
    let taken: HashSet<&str> = pods
        .iter()
        .chain(&ended)
        .filter_map(|pod| node_of(pod))
        .collect();
    // Which Nodes accept it does not depend on the Node that a Pod names.
    let pattern: Pod =
        serde_json::from_value(template(&set, "")).expect("a Pod of this form deserializes");
    let mut wanted = 0;
    let mut made = Vec::new();
    for node in workload.nodes.walk_all() {
        if is_deleting(&*node) || !scheduler::may_run(&pattern, &node) {
            continue;
        }
        wanted += 1;
        let name = node.name_any();
        if !taken.contains(name.as_str()) {
            made.push(create(workload, &set, &pattern, name).boxed());
        }
    }
    together(made).await?;
    // A daemon that ended is replaced once it is gone.
    let gone = ended.iter().map(|pod| delete(workload, pod).boxed());
    together(gone.collect()).await?;
    write_status(workload, &set, &pods, wanted).await
}

async fn create(
    workload: &Workload,
    set: &DaemonSet,
    pattern: &Pod,
    node: String,
) -> Result<(), WorkError> {
    let mut pod = pattern.clone();
    if let Some(spec) = &mut pod.spec {
        spec.node_name = Some(node);
    }
    let api: Api<Pod> = Api::namespaced(
        workload.client.clone(),
        &set.namespace().unwrap_or_default(),
    );
    let created = api.create(&PostParams::default(), &pod).await?;
    workload.pods.absorb(created);
    Ok(())
}

async fn write_status(
    workload: &Workload,
    set: &DaemonSet,
    pods: &[Arc<Pod>],
    wanted: usize,
) -> Result<Requeue, WorkError> {
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let status = json!({
        "currentNumberScheduled": pods.len(),
        "desiredNumberScheduled": wanted,
        "numberMisscheduled": 0,
        "numberReady": ready,
        "numberAvailable": ready,
        "updatedNumberScheduled": pods.len(),
        "observedGeneration": set.metadata.generation,
    });
    let now = json!(set.status);
    let same = status
        .as_object()
        .into_iter()
        .flatten()
        .all(|(field, value)| now.get(field).unwrap_or(&json!(0)) == value);
    if same {
        return Ok(Requeue::Never);
    }
    let api: Api<DaemonSet> = Api::namespaced(
        workload.client.clone(),
        &set.namespace().unwrap_or_default(),
    );
    let patch = json!({"status": status});
    match api
        .patch_status(
            &set.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(written) => workload.daemon_sets.absorb(written),
        Err(error) if moved_on(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Requeue::Never)
}

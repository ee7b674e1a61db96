//! ReplicaSets: as many Pods as wanted.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use muster_informers::{Key, Requeue};
use serde_json::json;

use super::{
    WorkError, Workload, delete, is_deleting, is_finished, is_ready, moved_on, node_of, together,
};

pub(super) async fn pass(workload: &Workload, key: &Key) -> Result<Requeue, WorkError> {
    let Some(set) = workload.replica_sets.get(key) else {
        return Ok(Requeue::Never);
    };
    if is_deleting(&*set) {
        return Ok(Requeue::Never);
    }
    let uid = set.uid().unwrap_or_default();
    let pods: Vec<Arc<Pod>> = workload
        .pods
        .by(workload.pods_by_owner, &uid)
        .into_iter()
        .filter(|pod| !is_deleting(&**pod) && !is_finished(pod))
        .collect();
    let wanted = usize::try_from(super::wanted_of_set(&set)).unwrap_or(0);
    let made = (pods.len()..wanted).map(|_| create(workload, &set).boxed());
    together(made.collect()).await?;
    let mut surplus = pods.clone();
    // Those that do least go first: without a place, not ready, then the youngest.
    surplus.sort_by_key(|pod| {
        (
            node_of(pod).is_some(),
            is_ready(pod),
            std::cmp::Reverse(pod.creation_timestamp().map(|t| t.0)),
            pod.name_any(),
        )
    });
    surplus.truncate(pods.len().saturating_sub(wanted));
    let gone = surplus.iter().map(|pod| delete(workload, pod).boxed());
    together(gone.collect()).await?;
    write_status(workload, &set, &pods).await
}

async fn create(workload: &Workload, set: &ReplicaSet) -> Result<(), WorkError> {
    let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let metadata = template
        .and_then(|template| template.metadata.clone())
        .unwrap_or_default();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "generateName": format!("{}-", set.name_any()),
            "labels": metadata.labels.unwrap_or_default(),
            "annotations": metadata.annotations.unwrap_or_default(),
            "ownerReferences": [set.controller_owner_ref(&())],
        },
        "spec": template.and_then(|template| template.spec.as_ref()),
    }))
    .expect("a Pod of this form deserializes");
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
    set: &ReplicaSet,
    pods: &[Arc<Pod>],
) -> Result<Requeue, WorkError> {
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let wanted = BTreeMap::from([
        ("replicas", json!(pods.len())),
        ("fullyLabeledReplicas", json!(pods.len())),
        ("readyReplicas", json!(ready)),
        ("availableReplicas", json!(ready)),
        ("observedGeneration", json!(set.metadata.generation)),
    ]);
    let now = json!(set.status);
    if wanted.iter().all(|(field, value)| {
        now.get(*field) == Some(value) || *value == json!(0) && now.get(*field).is_none()
    }) {
        return Ok(Requeue::Never);
    }
    let api: Api<ReplicaSet> = Api::namespaced(
        workload.client.clone(),
        &set.namespace().unwrap_or_default(),
    );
    let patch = json!({"status": wanted});
    match api
        .patch_status(
            &set.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(written) => workload.replica_sets.absorb(written),
        Err(error) if moved_on(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Requeue::Never)
}

//! Deployments: one ReplicaSet per template, the newest raised while the others go down, as [`rollout`] says.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use muster_informers::{Key, Requeue};
use serde_json::json;

use super::rollout::{self, Limits, Size};
use super::{WorkError, Workload, is_deleting, moved_on, wanted_of_deployment, wanted_of_set};

const HASH: &str = "pod-template-hash";

/// The hash of a Deployment's template.
fn hash(deployment: &Deployment) -> String {
    super::hash(&json!(deployment.spec.as_ref().map(|spec| &spec.template)))
}

pub(super) async fn pass(workload: &Workload, key: &Key) -> Result<Requeue, WorkError> {
    let Some(deployment) = workload.deployments.get(key) else {
        return Ok(Requeue::Never);
    };
    if is_deleting(&*deployment) {
        return Ok(Requeue::Never);
    }
    let sets = workload.replica_sets.by(
        workload.replica_sets_by_owner,
        &deployment.uid().unwrap_or_default(),
    );
    let name = format!("{}-{}", deployment.name_any(), hash(&deployment));
    let api: Api<ReplicaSet> = Api::namespaced(workload.client.clone(), &key.namespace);
    let current = sets.iter().find(|set| set.name_any() == name);
    let mut old: Vec<&Arc<ReplicaSet>> = sets.iter().filter(|set| set.name_any() != name).collect();
    old.sort_by_key(|set| (set.creation_timestamp().map(|at| at.0), set.name_any()));
    let sizes: Vec<Size> = old.iter().map(|set| Size::of(set)).collect();
    let new = current.map_or_else(Size::default, |set| Size::of(set));
    let (raised, lowered) = rollout::step(Limits::of(&deployment), new, &sizes);
    match current {
        None => create(workload, &deployment, &name, raised).await?,
        Some(set) if wanted_of_set(set) != raised => scale(workload, &api, set, raised).await?,
        Some(_) => {}
    }
    for (set, wanted) in old.into_iter().zip(lowered) {
        if wanted_of_set(set) != wanted {
            scale(workload, &api, set, wanted).await?;
        }
    }
    write_status(workload, &deployment, &sets, &name).await
}

async fn create(
    workload: &Workload,
    deployment: &Deployment,
    name: &str,
    replicas: i32,
) -> Result<(), WorkError> {
    let mut template = json!(deployment.spec.as_ref().map(|spec| &spec.template));
    let mut selector = json!(deployment.spec.as_ref().map(|spec| &spec.selector));
    template["metadata"]["labels"][HASH] = hash(deployment).into();
    selector["matchLabels"][HASH] = hash(deployment).into();
    let set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": template["metadata"]["labels"],
            "ownerReferences": [deployment.controller_owner_ref(&())],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }))
    .expect("a ReplicaSet of this form deserializes");
    let api: Api<ReplicaSet> = Api::namespaced(
        workload.client.clone(),
        &deployment.namespace().unwrap_or_default(),
    );
    match api.create(&PostParams::default(), &set).await {
        Ok(created) => workload.replica_sets.absorb(created),
        Err(error) if moved_on(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

async fn scale(
    workload: &Workload,
    api: &Api<ReplicaSet>,
    set: &ReplicaSet,
    replicas: i32,
) -> Result<(), WorkError> {
    let patch = json!({"spec": {"replicas": replicas}});
    match api
        .patch(
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
    Ok(())
}

async fn write_status(
    workload: &Workload,
    deployment: &Deployment,
    sets: &[Arc<ReplicaSet>],
    current: &str,
) -> Result<Requeue, WorkError> {
    let sum = |of: fn(&ReplicaSet) -> i32| sets.iter().map(|set| of(set)).sum::<i32>();
    let replicas = sum(|set| set.status.as_ref().map_or(0, |s| s.replicas));
    let ready = sum(|set| {
        set.status
            .as_ref()
            .and_then(|s| s.ready_replicas)
            .unwrap_or(0)
    });
    let updated: i32 = sets
        .iter()
        .filter(|set| set.name_any() == current)
        .map(|set| set.status.as_ref().map_or(0, |s| s.replicas))
        .sum();
    let wanted = json!({
        "replicas": replicas,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "updatedReplicas": updated,
        "unavailableReplicas": (wanted_of_deployment(deployment) - ready).max(0),
        "conditions": conditions(deployment, ready, workload.clock.now()),
        "observedGeneration": deployment.metadata.generation,
    });
    let now = json!(deployment.status);
    let same = wanted
        .as_object()
        .into_iter()
        .flatten()
        .all(|(field, value)| now.get(field).unwrap_or(&json!(0)) == value);
    if same {
        return Ok(Requeue::Never);
    }
    let api: Api<Deployment> = Api::namespaced(
        workload.client.clone(),
        &deployment.namespace().unwrap_or_default(),
    );
    let patch = json!({"status": wanted});
    match api
        .patch_status(
            &deployment.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(written) => workload.deployments.absorb(written),
        Err(error) if moved_on(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Requeue::Never)
}

/// The conditions with Available as it is now; its times move only when its status does.
fn conditions(deployment: &Deployment, available: i32, now: Timestamp) -> Vec<DeploymentCondition> {
    let mut list = deployment
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let (status, reason) = if available >= Limits::of(deployment).least() {
        ("True", "MinimumReplicasAvailable")
    } else {
        ("False", "MinimumReplicasUnavailable")
    };
    if list
        .iter()
        .any(|c| c.type_ == "Available" && c.status == status)
    {
        return list;
    }
    list.retain(|condition| condition.type_ != "Available");
    let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    list.push(DeploymentCondition {
        type_: "Available".to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        last_transition_time: Some(Time(second)),
        last_update_time: Some(Time(second)),
        message: None,
    });
    list
}

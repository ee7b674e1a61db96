//! One eviction, and in words why it was refused.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod as CorePod;
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::PostParams;
use kube::core::{SelectorExt, Status};
use kube::{Api, ResourceExt};
use muster_informers::Key;
use muster_observe::drain::is_ready;
use muster_observe::load::{name_of, never, read, selector};
use muster_plan::drain::asking::{Grounds, Room};
use muster_plan::drain::{NoRoom, Pod, PodName, Refusal};

use crate::workload::Workload;

/// Asks for the eviction of a Pod; nothing when it goes, or is gone.
pub(super) async fn ask(workload: &Workload, pod: &Pod, unreachable: bool) -> Option<Refusal> {
    let api: Api<CorePod> = Api::namespaced(workload.client.clone(), &pod.name.namespace);
    let eviction = Eviction {
        metadata: ObjectMeta {
            name: Some(pod.name.name.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            // Nobody on the Node can use the time. Source: Cluster API.
            grace_period_seconds: unreachable.then_some(1),
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.clone()),
                resource_version: None,
            }),
            ..DeleteOptions::default()
        }),
    };
    // Not by `Api::evict`, which sends the options under a name that no server knows.
    let params = PostParams::default();
    let asked = api.create_subresource::<_, Status>("eviction", &pod.name.name, &params, &eviction);
    let error = match asked.await {
        Ok(_) => return None,
        Err(kube::Error::Api(status)) => status,
        Err(error) => return Some(Refusal::Failed(error.to_string())),
    };
    let causes = || error.details.iter().flat_map(|details| &details.causes);
    let terminating = causes().any(|cause| cause.reason == "NamespaceTerminating");
    match error.code {
        // Gone, or another Pod of that name.
        404 | 409 => None,
        429 => {
            let said: Vec<&str> = causes().map(|cause| cause.message.as_str()).collect();
            Some(Refusal::Budget(no_room(
                workload,
                &pod.name,
                said.join(" "),
            )))
        }
        403 if terminating => Some(Refusal::NamespaceTerminating),
        500 => match selecting(workload, &pod.name) {
            budgets if budgets.len() > 1 => Some(Refusal::SeveralBudgets(named(&budgets))),
            _ => Some(Refusal::Failed(error.message)),
        },
        _ => Some(Refusal::Failed(error.message)),
    }
}

/// The budgets that select a Pod.
fn selecting(workload: &Workload, pod: &PodName) -> Vec<Arc<PodDisruptionBudget>> {
    let Some(object) = workload.pods.get(&Key::new(&pod.namespace, &pod.name)) else {
        return Vec::new();
    };
    let mut budgets = workload
        .budgets
        .by(workload.budgets_by_namespace, &pod.namespace);
    budgets.retain(|budget| selects(budget, &object));
    budgets
}

fn selects(budget: &PodDisruptionBudget, pod: &CorePod) -> bool {
    selector(budget).is_some_and(|selector| selector.matches(pod.labels()))
}

fn named(budgets: &[Arc<PodDisruptionBudget>]) -> Vec<String> {
    let mut names: Vec<String> = budgets.iter().map(|budget| name_of(budget)).collect();
    names.sort();
    names
}

fn no_room(workload: &Workload, pod: &PodName, text: String) -> NoRoom {
    let budgets = selecting(workload, pod);
    NoRoom {
        text,
        never: budgets.iter().find_map(|budget| never(budget)),
        keeps_unready: keeps_unready(workload, pod, &budgets),
        budgets: named(&budgets),
        unready: unready(workload, &pod.namespace, &budgets),
    }
}

/// The policy of the budgets that keeps a Pod which is not ready, if one does.
fn keeps_unready(
    workload: &Workload,
    pod: &PodName,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Option<String> {
    let found = workload.pods.get(&Key::new(&pod.namespace, &pod.name))?;
    let policy = budgets
        .iter()
        .filter_map(|budget| budget.spec.as_ref())
        .map(|spec| spec.unhealthy_pod_eviction_policy.as_deref())
        // Kubernetes' default. Source: its documentation of budgets.
        .map(|policy| policy.unwrap_or("IfHealthyBudget"))
        .find(|policy| *policy != "AlwaysAllow")?;
    (!is_ready(&found)).then(|| policy.to_owned())
}

/// What the answer to the eviction of a Pod rests on now.
pub(super) fn grounds(workload: &Workload, pod: &PodName) -> Grounds {
    let found = workload.pods.get(&Key::new(&pod.namespace, &pod.name));
    let budgets = selecting(workload, pod);
    Grounds {
        ready: found.is_some_and(|found| is_ready(&found)),
        budgets: budgets
            .iter()
            .map(|budget| (name_of(budget), room(budget)))
            .collect(),
    }
}

fn room(budget: &PodDisruptionBudget) -> Room {
    let read = read(budget);
    Room {
        generation: budget.metadata.generation.unwrap_or_default(),
        open: read.allowed > 0,
        lets_unready_go: read.lets_unready_go,
    }
}

/// The Pods of budgets of a namespace that are not ready, each with what is wrong.
pub(crate) fn unready(
    workload: &Workload,
    namespace: &str,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Vec<String> {
    let pods = workload.pods.by(workload.pods_unready, namespace);
    let ours = pods
        .iter()
        .filter(|pod| budgets.iter().any(|budget| selects(budget, pod)));
    let mut unready: Vec<String> = ours
        .map(|pod| format!("{namespace}/{} ({})", pod.name_any(), trouble(pod)))
        .collect();
    unready.sort();
    unready
}

/// Whether Pods of the budgets that refuse this Pod wait for a Node: room elsewhere would end the refusal.
pub(super) fn waits_for_room(workload: &Workload, pod: &PodName) -> bool {
    let budgets = selecting(workload, pod);
    workload
        .pods
        .by(workload.pods_unready, &pod.namespace)
        .iter()
        .filter(|other| {
            other
                .spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.is_none())
        })
        .any(|other| budgets.iter().any(|budget| selects(budget, other)))
}

/// Why a Pod is not ready, in a word.
fn trouble(pod: &CorePod) -> String {
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    let status = pod.status.as_ref();
    let waiting = status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten())
        .find_map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.clone());
    let unscheduled = pod
        .spec
        .as_ref()
        .is_none_or(|spec| spec.node_name.is_none());
    match waiting {
        Some(reason) => reason,
        None if unscheduled => "no Node has room".to_owned(),
        None => status
            .and_then(|status| status.phase.clone())
            .unwrap_or_else(|| "not ready".to_owned()),
    }
}

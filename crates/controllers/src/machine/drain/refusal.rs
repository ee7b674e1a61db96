//! One eviction, and in words why it was refused.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod as CorePod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, EvictParams, Preconditions};
use kube::core::SelectorExt;
use kube::{Api, ResourceExt};
use muster_informers::Key;
use muster_observe::load::{name_of, never, selector};
use muster_plan::drain::{NoRoom, Pod, PodName, Refusal};

use crate::workload::Workload;

/// Asks for the eviction of a Pod; nothing when it goes, or is gone.
pub(super) async fn ask(workload: &Workload, pod: &Pod, unreachable: bool) -> Option<Refusal> {
    let api: Api<CorePod> = Api::namespaced(workload.client.clone(), &pod.name.namespace);
    let mut options = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(pod.uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    if unreachable {
        // Nobody on the Node can use the time. Source: Cluster API.
        options.grace_period_seconds = Some(1);
    }
    let params = EvictParams {
        delete_options: Some(options),
        ..EvictParams::default()
    };
    let error = match api.evict(&pod.name.name, &params).await {
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
        budgets: named(&budgets),
        unready: unready(workload, &pod.namespace, &budgets),
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

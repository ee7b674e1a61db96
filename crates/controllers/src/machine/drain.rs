//! The drain of a Node: what its Pods are, and evictions under their budgets.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as CorePod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{DeleteParams, EvictParams, Preconditions};
use kube::core::{Selector, SelectorExt};
use kube::{Api, ResourceExt};
use muster_api::drain_rule::DrainBehavior;
use muster_api::{Cluster, Machine, MachineDrainRule, names};
use muster_informers::Key;
use muster_plan::drain::{Owner, Pod, PodName, Refusal, Treatment};

use crate::workload::Workload;
use crate::{Context, PassError};

/// How many evictions are under way at once.
const PARALLEL: usize = 8;

/// The Pods of a Node as a drain sees them.
pub(super) fn pods(
    context: &Context,
    machine: &Machine,
    cluster: Option<&Cluster>,
    workload: &Workload,
    node: &str,
) -> Result<Vec<Pod>, PassError> {
    let namespace = machine.namespace().unwrap_or_default();
    let mut rules = context
        .caches
        .drain_rules
        .by(context.caches.drain_rules_by_namespace, &namespace);
    let mut ours = Vec::new();
    for rule in rules.drain(..) {
        // A rule that cannot be read stops the drain: it may be the one that protects a Pod.
        if for_machine(&rule, machine, cluster)? {
            ours.push(rule);
        }
    }
    let found = workload.pods.by(workload.pods_by_node, node);
    found
        .iter()
        .map(|pod| describe(pod, &ours, workload))
        .collect()
}

fn matches(
    selector: Option<&LabelSelector>,
    labels: &BTreeMap<String, String>,
    of: &str,
) -> Result<bool, PassError> {
    let Some(selector) = selector else {
        return Ok(true);
    };
    let selector = Selector::try_from(selector.clone()).map_err(|error| {
        PassError::Blocked(format!(
            "a selector of MachineDrainRule {of} cannot be used: {error}; correct it"
        ))
    })?;
    Ok(selector.matches(labels))
}

fn for_machine(
    rule: &MachineDrainRule,
    machine: &Machine,
    cluster: Option<&Cluster>,
) -> Result<bool, PassError> {
    if rule.spec.machines.is_empty() {
        return Ok(true);
    }
    let nothing = BTreeMap::new();
    let of_cluster = cluster.map_or(&nothing, |cluster| cluster.labels());
    for part in &rule.spec.machines {
        let name = rule.name_any();
        if matches(part.selector.as_ref(), machine.labels(), &name)?
            && matches(part.cluster_selector.as_ref(), of_cluster, &name)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn describe(
    pod: &Arc<CorePod>,
    rules: &[Arc<MachineDrainRule>],
    workload: &Workload,
) -> Result<Pod, PassError> {
    let namespace = pod.namespace().unwrap_or_default();
    let owner = pod
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true));
    let of_namespace = workload.namespaces.get(&Key::new("", &namespace));
    let nothing = BTreeMap::new();
    let namespace_labels = of_namespace
        .as_ref()
        .map_or(&nothing, |namespace| namespace.labels());
    let mut treatment = None;
    for rule in rules {
        let name = rule.name_any();
        let mut applies = rule.spec.pods.is_empty();
        for part in &rule.spec.pods {
            applies |= matches(part.selector.as_ref(), pod.labels(), &name)?
                && matches(part.namespace_selector.as_ref(), namespace_labels, &name)?;
        }
        if applies {
            treatment = Some(match rule.spec.drain.behavior {
                DrainBehavior::Drain => Treatment::Drain {
                    order: rule.spec.drain.order.unwrap_or(0),
                },
                DrainBehavior::Skip => Treatment::Skip,
                DrainBehavior::WaitCompleted => Treatment::WaitCompleted,
            });
            break;
        }
    }
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    Ok(Pod {
        name: PodName {
            namespace,
            name: pod.name_any(),
        },
        uid: pod.uid().unwrap_or_default(),
        deletion: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        owner: match owner {
            Some(owner) if owner.kind == "DaemonSet" => Owner::DaemonSet,
            _ => Owner::Other,
        },
        mirror: pod
            .annotations()
            .contains_key("kubernetes.io/config.mirror"),
        label: names::DRAIN.text(&**pod).map(str::to_owned),
        rule: treatment,
    })
}

/// Asks for the eviction of Pods; returns those that were refused, with the time since when.
pub(super) async fn evict(
    workload: &Workload,
    pods: &[Pod],
    unreachable: bool,
    before: &BTreeMap<PodName, (Refusal, Timestamp)>,
    now: Timestamp,
) -> BTreeMap<PodName, (Refusal, Timestamp)> {
    let asked = pods.iter().map(|pod| {
        ask(workload, pod, unreachable)
            .map(move |refusal| (pod, refusal))
            .boxed()
    });
    let answers: Vec<(&Pod, Option<Refusal>)> = futures::stream::iter(asked.collect::<Vec<_>>())
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    answers
        .into_iter()
        .filter_map(|(pod, refusal)| {
            let refusal = refusal?;
            let since = before.get(&pod.name).map_or(now, |(_, since)| *since);
            Some((pod.name.clone(), (refusal, since)))
        })
        .collect()
}

async fn ask(workload: &Workload, pod: &Pod, unreachable: bool) -> Option<Refusal> {
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
    let causes: Vec<&str> = error
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .map(|cause| cause.message.as_str())
        .collect();
    let terminating = error
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .any(|cause| cause.reason == "NamespaceTerminating");
    match error.code {
        // Gone, or another Pod of that name.
        404 | 409 => None,
        429 => Some(Refusal::Budget(causes.join(" "))),
        403 if terminating => Some(Refusal::NamespaceTerminating),
        500 => match selecting(workload, &pod.name) {
            Some(names) if names.len() > 1 => Some(Refusal::SeveralBudgets(names)),
            _ => Some(Refusal::Failed(error.message)),
        },
        _ => Some(Refusal::Failed(error.message)),
    }
}

/// The budgets that select a Pod.
fn selecting(workload: &Workload, pod: &PodName) -> Option<Vec<String>> {
    let object = workload.pods.get(&Key::new(&pod.namespace, &pod.name))?;
    let budgets = workload
        .budgets
        .by(workload.budgets_by_namespace, &pod.namespace);
    Some(
        budgets
            .iter()
            .filter(|budget| {
                let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
                selector.is_some_and(|selector| {
                    Selector::try_from(selector).is_ok_and(|s| s.matches(object.labels()))
                })
            })
            .map(|budget| format!("{}/{}", pod.namespace, budget.name_any()))
            .collect(),
    )
}

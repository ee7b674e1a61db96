//! The drain of a Node: what its Pods are, and evictions under their budgets.

pub(super) mod cordon;
mod refusal;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as CorePod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use muster_api::drain_rule::DrainBehavior;
use muster_api::{Cluster, Machine, MachineDrainRule, names};
use muster_informers::Key;
use muster_plan::drain::{Owner, Pod, PodName, Refusal, Treatment};

use super::refusals::OfPods;

use crate::Context;
use crate::workload::{Workload, is_finished};

/// How many evictions are under way at once.
const PARALLEL: usize = 8;

/// The Pods of a Node as a drain sees them.
pub(super) fn pods(
    context: &Context,
    machine: &Machine,
    cluster: Option<&Cluster>,
    workload: &Workload,
    node: &str,
) -> Result<Vec<Pod>, String> {
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
) -> Result<bool, String> {
    let Some(selector) = selector else {
        return Ok(true);
    };
    let selector = Selector::try_from(selector.clone()).map_err(|error| {
        format!("a selector of MachineDrainRule {of} cannot be used: {error}; correct it")
    })?;
    Ok(selector.matches(labels))
}

fn for_machine(
    rule: &MachineDrainRule,
    machine: &Machine,
    cluster: Option<&Cluster>,
) -> Result<bool, String> {
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
) -> Result<Pod, String> {
    let namespace = pod.namespace().unwrap_or_default();
    let owner = pod
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true));
    // A Pod whose DaemonSet is gone is nobody's any more, and is drained. Source: Cluster API.
    let set = owner
        .filter(|owner| owner.kind == "DaemonSet")
        .and_then(|owner| workload.daemon_sets.get(&Key::new(&namespace, &owner.name)));
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
    Ok(Pod {
        name: PodName {
            namespace,
            name: pod.name_any(),
        },
        uid: pod.uid().unwrap_or_default(),
        deletion: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        finished: is_finished(pod),
        owner: match (owner, &set) {
            (Some(owner), Some(set)) if set.uid().as_ref() == Some(&owner.uid) => Owner::DaemonSet,
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
    before: &OfPods,
    now: Timestamp,
) -> OfPods {
    let asked = pods.iter().map(|pod| {
        refusal::ask(workload, pod, unreachable)
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

/// Whether one of the Pods that are refused could go if another of its budget found a Node.
pub(super) fn waits_for_room(workload: &Workload, pods: &[Pod]) -> bool {
    pods.iter()
        .any(|pod| refusal::waits_for_room(workload, &pod.name))
}

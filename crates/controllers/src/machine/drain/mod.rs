//! The drain of a Node: what its Pods are, and evictions under their budgets.

pub(super) mod cordon;
pub(crate) mod refusal;

use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kube::ResourceExt;
use muster_api::{Cluster, Machine};
use muster_observe::View;
use muster_observe::drain::{Rules, pod as drained};
use muster_plan::drain::{Pod, Refusal};

use super::refusals::OfPods;

use crate::Context;
use crate::workload::Workload;

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
    let rules = context
        .caches
        .drain_rules
        .by(context.caches.drain_rules_by_namespace, &namespace);
    let rules = Rules::read(&rules);
    let ours = rules.of_machine(machine, cluster)?;
    let found = workload.pods_on(node);
    Ok(found
        .iter()
        .map(|pod| drained(pod, &ours, workload))
        .collect())
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

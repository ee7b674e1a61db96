//! The drain of a Node: what its Pods are, and evictions under their budgets.

pub(super) mod cordon;
pub(crate) mod refusal;

use std::collections::BTreeMap;

use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use muster_api::{Cluster, Machine};
use muster_observe::View;
use muster_observe::drain::{Rules, pod as drained};
use muster_plan::drain::asking::{Asked, answered, due, waits};
use muster_plan::drain::{Pod, PodName};

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

/// Asks for the eviction of the Pods whose turn it is; what is remembered of each Pod then, and how soon the next is to be
/// asked for. `told` says since when budgets have refused, as far as that was said.
pub(super) async fn evict(
    workload: &Workload,
    pods: &[Pod],
    unreachable: bool,
    before: &BTreeMap<PodName, Asked>,
    told: &BTreeMap<String, Timestamp>,
    now: Timestamp,
) -> (BTreeMap<PodName, Asked>, Option<SignedDuration>) {
    let mut asked: BTreeMap<PodName, Asked> = BTreeMap::new();
    let mut next: Option<SignedDuration> = None;
    let mut asking = Vec::new();
    for pod in pods {
        let grounds = refusal::grounds(workload, &pod.name);
        let last = before.get(&pod.name);
        match (due(pod, &grounds, last, now), last) {
            (Some(left), Some(last)) => {
                next = Some(next.map_or(left, |next| next.min(left)));
                asked.insert(pod.name.clone(), waits(last.clone(), grounds));
            }
            _ => asking.push(
                refusal::ask(workload, pod, unreachable)
                    .map(move |refusal| (pod, grounds, refusal))
                    .boxed(),
            ),
        }
    }
    let answers: Vec<_> = futures::stream::iter(asking)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    for (pod, grounds, refusal) in answers {
        let last = before.get(&pod.name);
        let answer = answered(pod, grounds.clone(), last, refusal, told, now);
        if let Some(left) = due(pod, &grounds, Some(&answer), now) {
            next = Some(next.map_or(left, |next| next.min(left)));
        }
        asked.insert(pod.name.clone(), answer);
    }
    (asked, next)
}

/// Whether one of the Pods that are refused could go if another of its budget found a Node.
pub(super) fn waits_for_room(workload: &Workload, pods: &[Pod]) -> bool {
    pods.iter()
        .any(|pod| refusal::waits_for_room(workload, &pod.name))
}

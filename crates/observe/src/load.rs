//! What on a Node would have to move, and the PodDisruptionBudgets that have a say.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod as CorePod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use muster_plan::disruption::{Bound, Budget, Evictee, Load};
use muster_plan::drain::{self, Skipped, Verdict};

use crate::View;
use crate::drain::{MachineRules, is_ready, pod as drained};
use crate::volumes::{self, claims_of};

/// The budgets of a workload cluster as far as they were asked for. Each namespace is looked at once.
pub struct Budgets<'a> {
    view: &'a dyn View,
    list: Vec<Budget>,
    by_namespace: HashMap<String, Vec<(Selector, usize)>>,
}

impl<'a> Budgets<'a> {
    /// Those of a cluster.
    pub fn new(view: &'a dyn View) -> Self {
        Self {
            view,
            list: Vec::new(),
            by_namespace: HashMap::new(),
        }
    }

    /// All that were asked for; an [`Evictee`] names them by their place.
    pub fn list(&self) -> &[Budget] {
        &self.list
    }

    /// The places of the budgets that select a Pod.
    fn of(&mut self, pod: &CorePod) -> Vec<usize> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        if !self.by_namespace.contains_key(namespace) {
            let mut found = Vec::new();
            for budget in self.view.budgets_in(namespace) {
                if let Some(selector) = selector(&budget) {
                    found.push((selector, self.list.len()));
                    self.list.push(read(&budget));
                }
            }
            self.by_namespace.insert(namespace.to_owned(), found);
        }
        self.by_namespace
            .get(namespace)
            .into_iter()
            .flatten()
            .filter(|(selector, _)| selector.matches(pod.labels()))
            .map(|(_, at)| *at)
            .collect()
    }
}

/// Whom a budget selects; nobody where it says nothing or nothing that can be read.
pub fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    let selector = budget.spec.as_ref()?.selector.clone()?;
    Selector::try_from(selector).ok()
}

/// Namespace and name of a budget as they are shown.
pub fn name_of(budget: &PodDisruptionBudget) -> String {
    format!(
        "{}/{}",
        budget.namespace().unwrap_or_default(),
        budget.name_any()
    )
}

/// A budget as a choice of machines sees it.
pub fn read(budget: &PodDisruptionBudget) -> Budget {
    let status = budget.status.clone().unwrap_or_default();
    // What its status says of another spec is not followed. Source: Kubernetes.
    let current = status.observed_generation >= budget.metadata.generation;
    let allowed = status.disruptions_allowed.filter(|_| current).unwrap_or(0);
    let (healthy, desired) = (
        status.current_healthy.unwrap_or(0),
        status.desired_healthy.unwrap_or(0),
    );
    let policy = budget
        .spec
        .as_ref()
        .and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let since = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "DisruptionAllowed" && condition.status == "False")
        .map(|condition| condition.last_transition_time.0);
    Budget {
        name: name_of(budget),
        allowed: u32::try_from(allowed).unwrap_or(0),
        lets_unready_go: policy == Some("AlwaysAllow") || desired > 0 && healthy >= desired,
        no_room_since: since.filter(|_| allowed <= 0),
        never: never(budget),
    }
}

/// What in a budget keeps it from ever allowing a disruption.
pub fn never(budget: &PodDisruptionBudget) -> Option<String> {
    let spec = budget.spec.as_ref()?;
    let expected = budget
        .status
        .as_ref()
        .and_then(|status| status.expected_pods);
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(IntOrString::Int(0)), _) => Some("maxUnavailable 0".to_owned()),
        (Some(IntOrString::String(text)), _) if text == "0%" => {
            Some("maxUnavailable 0%".to_owned())
        }
        (_, Some(IntOrString::String(text))) if text == "100%" => {
            Some("minAvailable 100%".to_owned())
        }
        (_, Some(IntOrString::Int(count)))
            if expected.is_some_and(|expected| *count >= expected) =>
        {
            Some(format!(
                "minAvailable {count} of {} Pods",
                expected.unwrap_or_default()
            ))
        }
        _ => None,
    }
}

/// What on a Node would have to move, and what is left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnNode {
    /// What would have to move.
    pub load: Load,
    /// Pods that a drain leaves alone.
    pub skipped: Vec<(drain::PodName, Skipped)>,
}

/// What on a Node would have to move for the Machine whose rules these are.
pub fn on_node(
    node: &str,
    state: drain::Node,
    rules: &MachineRules<'_>,
    view: &dyn View,
    budgets: &mut Budgets<'_>,
    now: Timestamp,
) -> OnNode {
    let mut found = OnNode::default();
    for pod in view.pods_on(node) {
        let seen = drained(&pod, rules, view);
        match drain::verdict(&seen, state, now) {
            Verdict::Skip(why) => found.skipped.push((seen.name, why)),
            Verdict::WaitCompleted => found.load.completing.push(seen.name),
            Verdict::Evict(_) => {
                let evictee = Evictee {
                    priority: pod
                        .spec
                        .as_ref()
                        .and_then(|spec| spec.priority)
                        .unwrap_or(0),
                    ready: is_ready(&pod),
                    free: is_free(&pod, &seen),
                    budgets: budgets.of(&pod),
                    bound: bound(&pod, view),
                    name: seen.name,
                };
                found.load.evicted.push(evictee);
            }
        }
    }
    found.load.evicted.sort_by(|a, b| a.name.cmp(&b.name));
    found.load.completing.sort();
    found.skipped.sort();
    found
}

/// Whether a Pod is evicted without a look at budgets. Source: Kubernetes.
fn is_free(pod: &CorePod, seen: &drain::Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    seen.finished || seen.deletion.is_some() || phase == Some("Pending")
}

fn bound(pod: &CorePod, view: &dyn View) -> Bound {
    claims_of(pod)
        .iter()
        .filter_map(|claim| view.volume_of(claim))
        .map(|volume| volumes::bound(&volume))
        .max()
        .unwrap_or_default()
}

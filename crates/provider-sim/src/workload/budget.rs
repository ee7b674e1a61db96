//! The live status of PodDisruptionBudgets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use muster_apiserver::machinery::selector::LabelSelector;
use muster_informers::{Key, Requeue};
use serde_json::json;

use super::{WorkError, Workload, is_deleting, is_finished, is_ready, moved_on};

/// For how long an eviction counts though its Pod does not go. Source: Kubernetes.
const DISRUPTED_FOR: SignedDuration = SignedDuration::from_secs(120);

/// The counts of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    expected: i32,
    desired: i32,
}

/// How many Pods are expected, and how many of them have to be healthy.
fn counts(budget: &PodDisruptionBudget, pods: i32, scale: i32) -> Counts {
    let spec = budget.spec.as_ref();
    let share = |text: &str, of: i32| {
        let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(100);
        // Percentages are rounded up, in both directions. Source: Kubernetes.
        (of * percent + 99) / 100
    };
    match (
        spec.and_then(|s| s.max_unavailable.as_ref()),
        spec.and_then(|s| s.min_available.as_ref()),
    ) {
        (Some(IntOrString::Int(most)), _) => Counts {
            expected: scale,
            desired: (scale - most).max(0),
        },
        (Some(IntOrString::String(most)), _) => Counts {
            expected: scale,
            desired: (scale - share(most, scale)).max(0),
        },
        (None, Some(IntOrString::Int(least))) => Counts {
            expected: pods,
            desired: *least,
        },
        (None, Some(IntOrString::String(least))) => Counts {
            expected: scale,
            desired: share(least, scale),
        },
        (None, None) => Counts {
            expected: pods,
            desired: 0,
        },
    }
}

pub(super) async fn pass(workload: &Workload, key: &Key) -> Result<Requeue, WorkError> {
    let Some(budget) = workload.budgets.get(key) else {
        return Ok(Requeue::Never);
    };
    if is_deleting(&*budget) {
        return Ok(Requeue::Never);
    }
    let selector = json!(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()));
    let Ok(selector) = LabelSelector::from_object(&selector) else {
        return Ok(Requeue::Never);
    };
    let pods: Vec<Arc<Pod>> = workload
        .pods
        .by(workload.pods_by_namespace, &key.namespace)
        .into_iter()
        .filter(|pod| {
            !is_finished(pod)
                && selector.matches_with(|label| pod.labels().get(label).map(String::as_str))
        })
        .collect();
    let now = workload.clock.now();
    let status = budget.status.clone().unwrap_or_default();
    let disrupted: BTreeMap<String, Time> = status
        .disrupted_pods
        .iter()
        .flatten()
        .filter(|(name, at)| {
            let pod = pods.iter().find(|pod| pod.name_any() == **name);
            pod.is_some_and(|pod| !is_deleting(&**pod)) && now.duration_since(at.0) < DISRUPTED_FOR
        })
        .map(|(name, at)| (name.clone(), at.clone()))
        .collect();
    let healthy = pods
        .iter()
        .filter(|pod| is_ready(pod) && !disrupted.contains_key(&pod.name_any()))
        .count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let total = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    let counts = counts(&budget, total, scale(workload, &pods));
    let allowed = if counts.expected > 0 {
        (healthy - counts.desired).max(0)
    } else {
        0
    };
    let mut conditions = status.conditions.clone().unwrap_or_default();
    let said = muster_api::conditions::Said::new(
        "DisruptionAllowed",
        muster_api::conditions::Status::of(allowed > 0),
        if allowed > 0 {
            "SufficientPods"
        } else {
            "InsufficientPods"
        },
    );
    muster_api::conditions::set(&mut conditions, said, budget.metadata.generation, now);
    let wait = disrupted
        .values()
        .map(|at| DISRUPTED_FOR.saturating_sub(now.duration_since(at.0)))
        .min();
    let next = PodDisruptionBudgetStatus {
        conditions: Some(conditions),
        current_healthy: Some(healthy),
        desired_healthy: Some(counts.desired),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(counts.expected),
        observed_generation: budget.metadata.generation,
    };
    let requeue = wait
        .and_then(|left| Duration::try_from(left).ok())
        .map_or(Requeue::Never, |left| {
            Requeue::After(left + Duration::from_secs(1))
        });
    if budget.status.as_ref() == Some(&next) {
        return Ok(requeue);
    }
    let api: Api<PodDisruptionBudget> = Api::namespaced(workload.client.clone(), &key.namespace);
    let object = PodDisruptionBudget {
        status: Some(next),
        ..(*budget).clone()
    };
    // Only onto the state that was counted: an eviction that came meanwhile has taken from the allowance.
    match api
        .replace_status(&key.name, &PostParams::default(), &object)
        .await
    {
        Ok(written) => {
            workload.budgets.absorb(written);
            Ok(requeue)
        }
        Err(error) if moved_on(&error) => Ok(Requeue::After(Duration::from_millis(20))),
        Err(error) => Err(error.into()),
    }
}

/// How many Pods the controllers of these Pods want together; Pods without one count as themselves.
fn scale(workload: &Workload, pods: &[Arc<Pod>]) -> i32 {
    let mut wanted: BTreeMap<String, i32> = BTreeMap::new();
    let mut alone = 0;
    for pod in pods {
        let namespace = pod.namespace().unwrap_or_default();
        let owner = pod
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true));
        let set = owner
            .filter(|owner| owner.kind == "ReplicaSet")
            .and_then(|owner| {
                workload
                    .replica_sets
                    .get(&Key::new(&namespace, &owner.name))
            });
        let Some(set) = set else {
            alone += 1;
            continue;
        };
        let above = set
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true));
        let deployment =
            above.and_then(|owner| workload.deployments.get(&Key::new(&namespace, &owner.name)));
        match deployment {
            Some(deployment) => wanted.insert(
                deployment.uid().unwrap_or_default(),
                super::wanted_of_deployment(&deployment),
            ),
            None => wanted.insert(set.uid().unwrap_or_default(), super::wanted_of_set(&set)),
        };
    }
    wanted.values().sum::<i32>() + alone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_percentages_are_counted_as_kubernetes_does() {
        let budget = |spec: serde_json::Value| -> PodDisruptionBudget {
            serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
        };
        for (spec, expected, desired) in [
            (json!({"maxUnavailable": 1}), 6, 5),
            (json!({"maxUnavailable": 0}), 6, 6),
            (json!({"maxUnavailable": "30%"}), 6, 4),
            (json!({"minAvailable": 2}), 5, 2),
            (json!({"minAvailable": "50%"}), 6, 3),
            (json!({"maxUnavailable": 10}), 6, 0),
        ] {
            assert_eq!(
                counts(&budget(spec.clone()), 5, 6),
                Counts { expected, desired },
                "{spec}"
            );
        }
    }
}

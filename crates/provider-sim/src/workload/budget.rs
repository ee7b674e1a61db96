//! The live status of PodDisruptionBudgets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use muster_api::conditions::{self, Reason as _, Status, types};
use muster_apiserver::machinery::selector::LabelSelector;
use muster_informers::{Key, Requeue};
use serde_json::json;

use super::{WorkError, Workload, is_deleting, is_finished, is_ready, moved_on};

/// For how long an eviction counts though its Pod does not go. Source: Kubernetes.
const DISRUPTED_FOR: SignedDuration = SignedDuration::from_secs(120);

/// When what could not be counted is counted again.
const RECOUNT: Duration = Duration::from_secs(5);

/// The counts of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    expected: i32,
    desired: i32,
}

/// How many Pods are expected, and how many of them have to be healthy. What the Pods' controllers want together, `scale`,
/// matters for shares and for what may be missing; only a plain number of Pods that have to be there does without.
fn counts(
    budget: &PodDisruptionBudget,
    pods: i32,
    scale: impl FnOnce() -> Result<i32, String>,
) -> Result<Counts, String> {
    let spec = budget.spec.as_ref();
    let share = |text: &str, of: i32| -> Result<i32, String> {
        let percent: i64 = text
            .strip_suffix('%')
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| format!("{text:?} is neither a number nor a percentage"))?;
        // Percentages are rounded up, in both directions. Source: Kubernetes.
        Ok(i32::try_from((i64::from(of) * percent + 99) / 100).unwrap_or(i32::MAX))
    };
    let (expected, desired) = match (
        spec.and_then(|s| s.max_unavailable.as_ref()),
        spec.and_then(|s| s.min_available.as_ref()),
    ) {
        (Some(most), _) => {
            let scale = scale()?;
            let most = match most {
                IntOrString::Int(most) => *most,
                IntOrString::String(most) => share(most, scale)?,
            };
            (scale, (scale - most).max(0))
        }
        (None, Some(IntOrString::Int(least))) => (pods, *least),
        (None, Some(IntOrString::String(least))) => {
            let scale = scale()?;
            (scale, share(least, scale)?)
        }
        (None, None) => (pods, 0),
    };
    Ok(Counts { expected, desired })
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
    let counted = counts(&budget, total, || scale(workload, &pods));
    let counts = counted.clone().unwrap_or(Counts {
        expected: status.expected_pods.unwrap_or(0),
        desired: status.desired_healthy.unwrap_or(0),
    });
    // Whoever cannot count allows nothing.
    let allowed = if counts.expected > 0 && counted.is_ok() {
        (healthy - counts.desired).max(0)
    } else {
        0
    };
    let mut list = status.conditions.clone().unwrap_or_default();
    let reason = match (&counted, allowed > 0) {
        (Err(_), _) => types::DisruptionAllowed::SyncFailed,
        (Ok(_), true) => types::DisruptionAllowed::SufficientPods,
        (Ok(_), false) => types::DisruptionAllowed::InsufficientPods,
    };
    let mut said = reason.said(Status::of(allowed > 0));
    if let Err(why) = &counted {
        said = said.because(why);
    }
    conditions::set(&mut list, said, budget.metadata.generation, now);
    let wait = disrupted
        .values()
        .map(|at| DISRUPTED_FOR.saturating_sub(now.duration_since(at.0)))
        .min();
    let next = PodDisruptionBudgetStatus {
        conditions: Some(list),
        current_healthy: Some(healthy),
        desired_healthy: Some(counts.desired),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(counts.expected),
        observed_generation: if counted.is_ok() {
            budget.metadata.generation
        } else {
            status.observed_generation
        },
    };
    let recount = counted.is_err().then_some(RECOUNT);
    let requeue = wait
        .and_then(|left| Duration::try_from(left).ok())
        .map(|left| left + Duration::from_secs(1))
        .into_iter()
        .chain(recount)
        .min()
        .map_or(Requeue::Never, Requeue::After);
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

/// How many Pods the controllers of these Pods want together. Pods without a controller count for nothing, so that a budget
/// over nothing else allows nothing; a controller that says no number makes the count fail. Source: Kubernetes.
fn scale(workload: &Workload, pods: &[Arc<Pod>]) -> Result<i32, String> {
    let mut wanted: BTreeMap<String, i32> = BTreeMap::new();
    for pod in pods {
        let namespace = pod.namespace().unwrap_or_default();
        if let Some(owner) = controller(&**pod) {
            let key = Key::new(&namespace, &owner.name);
            let (uid, replicas) = match owner.kind.as_str() {
                "ReplicaSet" => of_replica_set(workload, &key),
                "StatefulSet" => workload
                    .stateful_sets
                    .get(&key)
                    .map(|set| (set.uid(), super::stateful_set::replicas(&set))),
                _ => None,
            }
            .ok_or_else(|| {
                format!(
                    "found no controller with a number of replicas for pod {:?}, which {} {} owns",
                    pod.name_any(),
                    owner.kind,
                    owner.name
                )
            })?;
            wanted.insert(uid.unwrap_or_default(), replicas);
        }
    }
    Ok(wanted.values().fold(0, |sum, n| sum.saturating_add(*n)))
}

fn controller(object: &impl ResourceExt) -> Option<&OwnerReference> {
    let owners = object.owner_references();
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// What a ReplicaSet wants, or the Deployment that it belongs to.
fn of_replica_set(workload: &Workload, key: &Key) -> Option<(Option<String>, i32)> {
    let set = workload.replica_sets.get(key)?;
    let deployment = controller(&*set)
        .filter(|owner| owner.kind == "Deployment")
        .and_then(|owner| {
            let key = Key::new(&key.namespace, &owner.name);
            workload.deployments.get(&key)
        });
    Some(match deployment {
        Some(deployment) => (deployment.uid(), super::wanted_of_deployment(&deployment)),
        None => (set.uid(), super::wanted_of_set(&set)),
    })
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
                counts(&budget(spec.clone()), 5, || Ok(6)),
                Ok(Counts { expected, desired }),
                "{spec}"
            );
        }
    }

    #[test]
    fn only_a_plain_number_is_counted_without_the_controllers() {
        let budget = |spec: serde_json::Value| -> PodDisruptionBudget {
            serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
        };
        let unknown = || Err("unknown".to_owned());
        assert!(counts(&budget(json!({"minAvailable": 2})), 5, unknown).is_ok());
        assert!(counts(&budget(json!({"minAvailable": "50%"})), 5, unknown).is_err());
        assert!(counts(&budget(json!({"maxUnavailable": 1})), 5, unknown).is_err());
    }
}

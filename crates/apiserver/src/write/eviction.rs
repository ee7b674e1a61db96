//! The `eviction` subresource of Pods: a deletion that respects the disruption budgets of the pod's namespace.
//!
//! What the budget gives and what the pod loses is one commit, so that no crash and no other eviction can come between
//! them: a budget is never spent without its pod going, and never spent twice.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::binding::set_condition;
use super::delete::Propagation;
use super::update::Verdict;
use super::{ATTEMPTS, Cluster, DeleteOptions, Options, key, meta};
use crate::failure::{Cause, Failure};
use crate::machinery::selector::LabelSelector;
use crate::registry::Kind;
use crate::registry::strategy::{child, number_at, text_at};
use crate::storage::{Expect, Stored};

/// How many evictions a budget may have outstanding before its controller has to catch up.
const MAX_DISRUPTED: usize = 2000;
/// The message of every refusal for a budget's sake.
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// What the budgets say about one eviction.
enum Allowance {
    /// None is concerned.
    Free,
    /// One allows it and does not count it, as long as the pod is as it was seen.
    Uncounted,
    /// One allows it and counts it: its new state.
    Counted {
        budget: std::sync::Arc<Stored>,
        spent: Value,
    },
}

impl Cluster {
    pub(super) async fn evict(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        body: &Value,
        options: &Options,
    ) -> Result<Value, Failure> {
        let api_version = text_at(body, &["apiVersion"]);
        if !["", "policy/v1", "policy/v1beta1"].contains(&api_version) {
            return Err(Failure::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version (policy/v1)"
            )));
        }
        if meta::name(body) != name {
            return Err(Failure::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let delete = delete_options(&body["deleteOptions"], options)?;
        let key = key(kind, namespace, name);
        for _ in 0..ATTEMPTS {
            let current = self.current(kind, &key)?;
            let pod = current.value();
            let allowance = if needs_no_budget(&pod) {
                Allowance::Free
            } else {
                self.allowance(namespace, &pod)?
            };
            let now = self.clock.now();
            if let Allowance::Counted { budget, spent } = allowance
                && !delete.dry_run
            {
                super::delete::check(kind, &current, &delete)?;
                let verdict = self.doom(kind, &current, &delete, |pod| announce(pod, now));
                let pod_write = match verdict {
                    Verdict::Nothing => return Ok(success()),
                    Verdict::Put(object) => {
                        self.put(kind, &key, Expect::Revision(current.revision), object)
                    }
                    Verdict::Gone(_) => self.removal(kind, &key, current.revision),
                };
                let budgets = self.budgets()?;
                let budget_write = self.put(
                    &budgets,
                    &budget.key,
                    Expect::Revision(budget.revision),
                    spent,
                );
                if self.commit(vec![budget_write, pod_write]).await?.is_some() {
                    return Ok(success());
                }
                continue;
            }
            // The pod must still be as it was judged, or the judgement is made anew.
            let mut pinned = delete.clone();
            if pinned.resource_version.is_none() {
                pinned.resource_version = Some(current.revision.to_string());
            }
            match self
                .delete_with(kind, namespace, name, &pinned, |pod| announce(pod, now))
                .await
            {
                Ok(_) => return Ok(success()),
                Err(failure) if failure.is_conflict() && delete.resource_version.is_none() => {
                    // Only a moved pod is looked at again; another pod of that name is not the one to evict.
                    if delete.uid.as_ref().is_some_and(|uid| {
                        self.current(kind, &key)
                            .is_ok_and(|found| *uid != *found.uid)
                    }) {
                        return Err(failure);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::timeout(
            format!("couldn't evict pod {name:?} due to conflicts"),
            10,
        ))
    }

    fn budgets(&self) -> Result<std::sync::Arc<Kind>, Failure> {
        self.registry
            .by_kind("policy", "v1", "PodDisruptionBudget")
            .ok_or_else(|| Failure::internal("disruption budgets are not served"))
    }

    /// Asks the budgets of the pod's namespace.
    fn allowance(&self, namespace: &str, pod: &Value) -> Result<Allowance, Failure> {
        let labels = &pod["metadata"]["labels"];
        if labels.as_object().is_none_or(serde_json::Map::is_empty) {
            return Ok(Allowance::Free);
        }
        let budgets = self.budgets()?;
        let all = self
            .storage
            .list(&self.name, &budgets.stored_as, Some(namespace));
        let mut concerned = all.items.into_iter().filter_map(|stored| {
            let budget = stored.value();
            let selector = &budget["spec"]["selector"];
            let hit = !selector.is_null()
                && LabelSelector::from_object(selector)
                    .is_ok_and(|selector| selector.matches_value(labels));
            hit.then_some((stored, budget))
        });
        let Some((stored, budget)) = concerned.next() else {
            return Ok(Allowance::Free);
        };
        if concerned.next().is_some() {
            return Err(Failure::new(
                500,
                "",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
        if !is_ready(pod) {
            let status = |field: &str| number_at(&budget, &["status", field]).unwrap_or(0);
            let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
            let healthy = status("currentHealthy") >= status("desiredHealthy")
                && status("desiredHealthy") > 0;
            if always || healthy {
                return Ok(Allowance::Uncounted);
            }
        }
        let spent = spend(&budget, meta::name(pod), self.clock.now())?;
        Ok(Allowance::Counted {
            budget: stored,
            spent,
        })
    }
}

/// Takes one disruption from a budget.
fn spend(budget: &Value, pod: &str, now: Timestamp) -> Result<Value, Failure> {
    let name = meta::name(budget);
    let status = |field: &str| number_at(budget, &["status", field]).unwrap_or(0);
    let cause = |message: String| Cause {
        reason: "DisruptionBudget".to_owned(),
        message,
        field: String::new(),
    };
    let forbidden =
        |why: &str| Failure::resource_forbidden("policy", "poddisruptionbudget", name, why);
    if status("observedGeneration") < number_at(budget, &["metadata", "generation"]).unwrap_or(0) {
        let message =
            format!("The disruption budget {name} is still being processed by the server.");
        return Err(Failure::too_many_requests(REFUSED, cause(message), 10));
    }
    let allowed = status("disruptionsAllowed");
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    let outstanding = budget["status"]["disruptedPods"]
        .as_object()
        .map_or(0, serde_json::Map::len);
    if outstanding > MAX_DISRUPTED {
        return Err(forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        let failed = budget["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|condition| {
                condition["type"] == "DisruptionAllowed"
                    && condition["status"] == "False"
                    && condition["reason"] == "SyncFailed"
            });
        let message = match failed {
            Some(condition) => format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
                text_at(condition, &["message"])
            ),
            None => format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                status("desiredHealthy"),
                status("currentHealthy")
            ),
        };
        return Err(Failure::too_many_requests(REFUSED, cause(message), 0));
    }
    let mut spent = budget.clone();
    if let Some(status) = child(&mut spent, "status") {
        status["disruptionsAllowed"] = json!(allowed - 1);
        if let Some(disrupted) = child(status, "disruptedPods") {
            disrupted[pod] = json!(meta::time(now));
        }
    }
    if allowed == 1 {
        set_condition(
            &mut spent,
            json!({
                "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                "observedGeneration": status("observedGeneration"), "lastTransitionTime": meta::time(now),
            }),
        );
    }
    Ok(spent)
}

/// Says in the pod's status why it goes.
fn announce(pod: &mut Value, now: Timestamp) {
    let known = pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "DisruptionTarget" && condition["status"] == "True");
    if known {
        return;
    }
    set_condition(
        pod,
        json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": meta::time(now),
        }),
    );
}

/// Pods that have not started, have ended, or are going already disturb nobody.
fn needs_no_budget(pod: &Value) -> bool {
    meta::is_deleting(pod)
        || ["Succeeded", "Failed", "Pending"].contains(&text_at(pod, &["status", "phase"]))
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn delete_options(body: &Value, options: &Options) -> Result<DeleteOptions, Failure> {
    let mut delete = parse_delete_options(body)?;
    delete.dry_run |= options.dry_run;
    Ok(delete)
}

/// Reads a `DeleteOptions` body; an absent one means the defaults.
///
/// # Errors
/// When the propagation policy is unknown.
pub fn parse_delete_options(body: &Value) -> Result<DeleteOptions, Failure> {
    let text = |path: &[&str]| {
        Some(text_at(body, path))
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let propagation = match (
        text_at(body, &["propagationPolicy"]),
        body["orphanDependents"].as_bool(),
    ) {
        ("", None) => None,
        ("", Some(true)) | ("Orphan", None) => Some(Propagation::Orphan),
        ("", Some(false)) | ("Background", None) => Some(Propagation::Background),
        ("Foreground", None) => Some(Propagation::Foreground),
        (policy, None) => {
            let error = crate::registry::strategy::unsupported(
                "propagationPolicy",
                policy,
                &["Background", "Foreground", "Orphan", "nil"],
            );
            return Err(Failure::invalid_kind(
                "meta.k8s.io",
                "DeleteOptions",
                "",
                &[error],
            ));
        }
        (_, Some(_)) => {
            let error = crate::registry::strategy::invalid(
                "propagationPolicy",
                body["propagationPolicy"].clone(),
                "orphanDependents and deletionPropagation cannot be both set",
            );
            return Err(Failure::invalid_kind(
                "meta.k8s.io",
                "DeleteOptions",
                "",
                &[error],
            ));
        }
    };
    Ok(DeleteOptions {
        propagation,
        uid: text(&["preconditions", "uid"]),
        resource_version: text(&["preconditions", "resourceVersion"]),
        grace_period_seconds: body["gracePeriodSeconds"].as_i64(),
        dry_run: body["dryRun"]
            .as_array()
            .is_some_and(|list| list.iter().any(|item| item == "All")),
    })
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

//! A check's own status: its targets, how many are healthy, and whether Machines may be repaired.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::EventType;
use kube::{Api, Resource, ResourceExt};
use muster_api::conditions::{self, Reason as _, Said, Status, types};
use muster_api::reference::Conditioned as _;
use muster_api::{Cluster, MachineHealthCheck, names, owners};
use muster_informers::{Key, Requeue};
use muster_observe::health as observe;
use muster_provider::events::about;
use serde_json::json;

use super::opinions::{Repairer, Terms};
use super::{Work, look, requests, zones};
use crate::{Context, PassError, api, difference};

/// How many targets a status names. Source: Cluster API.
const TARGETS: usize = 10_000;

pub(super) async fn pass(
    context: &Context,
    key: &Key,
    check: &MachineHealthCheck,
) -> Result<Requeue, PassError> {
    let checks: Api<MachineHealthCheck> = Api::namespaced(context.client.clone(), &key.namespace);
    let cluster_key = Key::new(&key.namespace, &check.spec.cluster_name);
    let Some(cluster) = context.caches.clusters.get(&cluster_key) else {
        return Ok(Requeue::Never);
    };
    if check.metadata.deletion_timestamp.is_some() {
        return Ok(Requeue::Never);
    }
    if let Some(pause) = context.caches.pause_of(check, &check.spec.cluster_name) {
        allow(context, key, None);
        let said = types::Paused::Paused
            .holds()
            .because(pause.told("MachineHealthCheck"));
        put(context, &checks, check, vec![said], None).await?;
        return Ok(Requeue::Never);
    }
    belong(context, &checks, check, &cluster).await?;
    let now = context.clock.now();
    for name in context.health.roster(key, |roster| roster.due(now)) {
        let machine_key = Key::new(&key.namespace, &name);
        let machine = context.caches.machines.get(&machine_key);
        look(context, check, machine.as_deref(), &machine_key);
    }
    let counts = context.health.roster(key, |roster| Counts {
        targets: roster.names().take(TARGETS).map(str::to_owned).collect(),
        expected: roster.len(),
        healthy: roster.healthy(),
    });
    let unhealthy = counts.expected - counts.healthy;
    let mut lost = zones::lost(context, key, &cluster_key, now);
    let in_lost = context.health.roster(key, |roster| {
        let zone = |name: &str| roster.get(name).and_then(|found| found.zone.clone());
        let of_lost = |name: &&str| zone(name).is_some_and(|zone| lost.contains_key(&zone));
        if lost.is_empty() {
            0
        } else {
            roster.names().filter(of_lost).count()
        }
    });
    if unhealthy <= in_lost {
        // All others are well: what has been away for so long will not come back together.
        lost.retain(|_, since| now.duration_since(*since) < zones::PATIENCE);
    }
    let (said, terms, remaining) = match observe::trigger(check) {
        Err(why) => (
            types::RemediationAllowed::TooManyUnhealthy
                .fails()
                .because(why),
            None,
            0,
        ),
        Ok(trigger) => {
            let decision = context
                .health
                .roster(key, |roster| trigger.decide_for(roster));
            let said = if let Some((zone, since)) = lost.first_key_value() {
                types::RemediationAllowed::TooManyUnhealthy.fails().because(format!(
                    "Remediation is not allowed: no Node of zone {zone} has been heard of since {since}, so the zone is lost and not its machines; they are judged one by one when it is back, or after {:#} if all others are well",
                    zones::PATIENCE
                ))
            } else if decision.allowed {
                types::RemediationAllowed::RemediationAllowed.holds()
            } else {
                types::RemediationAllowed::TooManyUnhealthy.fails().because(format!(
                    "Remediation is not allowed: {unhealthy} of {} machines are not healthy, and {trigger} allows no repair then",
                    counts.expected
                ))
            };
            // A repairer from outside has the word where the check names one.
            let by = match requests::template(check) {
                Some(_) => Repairer::Outside,
                None => Repairer::Owner,
            };
            let terms = (said.status == Status::True).then_some(Terms { trigger, by });
            (said, terms, decision.remaining)
        }
    };
    allow(context, key, terms);
    let was = check.condition_of(types::RemediationAllowed::TYPE);
    if terms.is_none() && was.is_none_or(|was| was.status != "False") {
        let about = about(check);
        let reason = "RemediationRestricted";
        let note = said.message.clone();
        context
            .events
            .say(&about, EventType::Warning, reason, "Check", note)
            .await;
    }
    let said = vec![said, types::Paused::NotPaused.fails()];
    put(context, &checks, check, said, Some((counts, remaining))).await?;
    let next = context
        .health
        .roster(key, muster_plan::health::roster::Roster::next);
    let patient = lost
        .values()
        .map(|since| since.saturating_add(zones::PATIENCE).unwrap_or(now));
    let next = next.into_iter().chain(patient).min();
    let left = next.map(|at| {
        // One second more, so that the look is past the time and not at it. Source: Cluster API.
        let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
        left + Duration::from_secs(1)
    });
    Ok(left.map_or(Requeue::Never, Requeue::After))
}

fn allow(context: &Context, key: &Key, terms: Option<Terms>) {
    for machine in context.health.allow(key, terms) {
        context.health.requests.add(machine.clone());
        context.machines.add(machine);
    }
}

struct Counts {
    targets: Vec<String>,
    expected: usize,
    healthy: usize,
}

/// Owner and label, in one write.
async fn belong(
    context: &Context,
    checks: &Api<MachineHealthCheck>,
    check: &MachineHealthCheck,
    cluster: &Cluster,
) -> Result<(), PassError> {
    let labelled = names::CLUSTER_NAME.text(check) == Some(check.spec.cluster_name.as_str());
    if labelled && owners::is_owned_by(check, cluster) {
        return Ok(());
    }
    let mut list: Vec<OwnerReference> = check.owner_references().to_vec();
    list.retain(|owner| owner.kind != "Cluster");
    list.extend(cluster.owner_ref(&()));
    let patch = json!({"metadata": {
        "ownerReferences": list,
        "labels": {names::CLUSTER_NAME: check.spec.cluster_name},
        "resourceVersion": check.resource_version(),
    }});
    let patched = checks
        .patch(
            &check.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
        .map_err(api("adding owner and label"))?;
    context.caches.health_checks.absorb(patched);
    // The pass goes on from what is written.
    context.health.queue.add(Work::Check(Key::of(check)));
    Ok(())
}

async fn put(
    context: &Context,
    checks: &Api<MachineHealthCheck>,
    check: &MachineHealthCheck,
    said: Vec<Said>,
    counts: Option<(Counts, u32)>,
) -> Result<(), PassError> {
    let mut status = check.status.clone().unwrap_or_default();
    let number = |count: usize| Some(i32::try_from(count).unwrap_or(i32::MAX));
    if let Some((counts, remaining)) = counts {
        status.expected_machines = number(counts.expected);
        status.current_healthy = number(counts.healthy);
        status.remediations_allowed = Some(i32::try_from(remaining).unwrap_or(i32::MAX));
        status.targets = counts.targets;
        status.observed_generation = check.metadata.generation;
    }
    for said in said {
        conditions::set(
            &mut status.conditions,
            said,
            check.metadata.generation,
            context.clock.now(),
        );
    }
    if check.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let patch = json!({"status": difference(&check.status, &status)});
    match checks
        .patch_status(
            &check.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(patched) => context.caches.health_checks.absorb(patched),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(api("writing the status")(error)),
    }
    Ok(())
}

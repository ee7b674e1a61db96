//! A pool's status: counters, Nodes, phase and conditions, from its Machines.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::conditions::{self, Reason, Said, Status, types};
use muster_api::names::SizeOwner;
use muster_api::pool::{MachinePoolPhase, MachinePoolStatus};
use muster_api::reference::{Conditioned, VersionCount};
use muster_api::{Machine, MachinePool};
use muster_caches::Pause;
use muster_informers::{Key, Requeue};
use muster_observe::rollout::{Judged, told};
use serde_json::json;

use super::machines::Refused;
use super::rollout::{Step, judged};
use super::{Seen, initialization};
use crate::{Context, PassError, api, difference};

/// How many Machines a message names.
const NAMED: usize = 3;

pub(super) async fn write(
    context: &Context,
    pools: &Api<MachinePool>,
    pool: &MachinePool,
    seen: &Seen,
    step: Option<&Step>,
    whole: bool,
) -> Result<(), PassError> {
    let now = context.clock.now();
    // Judged by the very object whose generation is said to be observed.
    let judged = judged(context, pool, seen);
    let machines: Vec<Arc<Machine>> = judged.iter().map(|j| Arc::clone(&j.machine)).collect();
    let mut status = pool.status.clone().unwrap_or_default();
    status.initialization = initialization(status.initialization, seen);
    let count = |type_: &str| {
        machines
            .iter()
            .filter(|m| m.is_true(type_) && !m.is_deleting())
            .count()
    };
    if let Some(replicas) = seen.replicas {
        status.replicas = Some(replicas);
    } else if status.replicas.is_none() {
        status.replicas = Some(0);
    }
    if seen.has_machines || seen.provisioned {
        status.ready_replicas = number(count(types::Ready::TYPE));
        status.available_replicas = number(count(types::Available::TYPE));
        let up_to_date = judged
            .iter()
            .filter(|j| j.outdated.is_empty() && !j.machine.is_deleting());
        status.up_to_date_replicas = number(up_to_date.count());
        status.versions = versions(&machines);
        status.node_refs = node_refs(context, pool, &machines);
    }
    let desired = i32::try_from(pool.desired_replicas()).unwrap_or(i32::MAX);
    let ready = status.ready_replicas.unwrap_or(0);
    let have = status
        .replicas
        .unwrap_or(0)
        .max(number(machines.len()).unwrap_or(0));
    let most = step.map_or(desired, |step| {
        desired.saturating_add(i32::try_from(step.surge).unwrap_or(i32::MAX))
    });
    status.phase = Some(phase(pool, &status, desired, ready, have, most));
    if whole {
        status.observed_generation = pool.metadata.generation;
    }
    let sizes = Sizes {
        desired,
        have,
        most,
    };
    for said in said(seen, &status, &judged, &machines, &sizes)
        .into_iter()
        .chain(
            step.into_iter()
                .flat_map(|step| [step.said.clone(), step.remediating.clone()]),
        )
    {
        conditions::set(&mut status.conditions, said, pool.metadata.generation, now);
    }
    put(context, pools, pool, status).await
}

/// A number as counters have it.
fn number(count: usize) -> Option<i32> {
    Some(i32::try_from(count).unwrap_or(i32::MAX))
}

/// How many machines there are, and how many there are to be.
struct Sizes {
    desired: i32,
    have: i32,
    /// With those that a rollout has beyond the size.
    most: i32,
}

fn phase(
    pool: &MachinePool,
    status: &MachinePoolStatus,
    desired: i32,
    ready: i32,
    have: i32,
    most: i32,
) -> MachinePoolPhase {
    let done = status.initialization.unwrap_or_default();
    let external = SizeOwner::of(pool) == SizeOwner::Outside;
    let provisioned = done.infrastructure_provisioned == Some(true);
    match (
        done.bootstrap_data_secret_created == Some(true),
        provisioned,
    ) {
        (false, false) => MachinePoolPhase::Pending,
        (true, false) => MachinePoolPhase::Provisioning,
        _ if ready >= desired && (desired..=most).contains(&have) => MachinePoolPhase::Running,
        _ if external => MachinePoolPhase::Scaling,
        _ if have > most => MachinePoolPhase::ScalingDown,
        _ => MachinePoolPhase::ScalingUp,
    }
}

fn versions(machines: &[Arc<Machine>]) -> Vec<VersionCount> {
    let mut counts: BTreeMap<String, i32> = BTreeMap::new();
    for machine in machines {
        let version = machine
            .status
            .as_ref()
            .and_then(|status| status.node_info.as_ref());
        if let Some(info) = version {
            *counts.entry(info.kubelet_version.clone()).or_default() += 1;
        }
    }
    counts
        .into_iter()
        .map(|(version, replicas)| VersionCount {
            version,
            replicas: Some(replicas),
        })
        .collect()
}

/// The pool's Nodes with their present UIDs, by name.
fn node_refs(
    context: &Context,
    pool: &MachinePool,
    machines: &[Arc<Machine>],
) -> Vec<ObjectReference> {
    let cluster = Key::new(
        pool.namespace().unwrap_or_default(),
        &pool.spec.cluster_name,
    );
    let Some(workload) = context.workloads.get(&cluster) else {
        return pool
            .status
            .as_ref()
            .map(|status| status.node_refs.clone())
            .unwrap_or_default();
    };
    let mut list: Vec<ObjectReference> = machines
        .iter()
        .filter_map(|machine| workload.nodes.get(&Key::new("", machine.node_name()?)))
        .map(|node| ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.name_any()),
            uid: node.uid(),
            ..ObjectReference::default()
        })
        .collect();
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}

fn said(
    seen: &Seen,
    status: &MachinePoolStatus,
    judged: &[Judged],
    machines: &[Arc<Machine>],
    sizes: &Sizes,
) -> Vec<Said> {
    let Sizes {
        desired,
        have,
        most,
    } = *sizes;
    let mut list: Vec<Said> = seen
        .bootstrap
        .iter()
        .chain(&seen.infrastructure)
        .cloned()
        .collect();
    let available = status.available_replicas.unwrap_or(0);
    let good = available >= desired;
    list.push(if good {
        types::Available::Available.holds()
    } else {
        types::Available::NotAvailable
            .fails()
            .because(format!("{available} of {desired} machines are available"))
    });
    let ready = over(
        machines,
        types::Ready::TYPE,
        &Summary {
            all: types::MachinesReady::Ready,
            some_not: types::MachinesReady::NotReady,
            some_unknown: types::MachinesReady::ReadyUnknown,
            none: types::MachinesReady::NoReplicas,
        },
    );
    list.push(match refused(&seen.refused) {
        Some(why) => types::MachinesReady::NotReady
            .fails()
            .because([why, ready.message].join("\n").trim_end()),
        None => ready,
    });
    list.push(up_to_date(judged));
    list.push(if have < desired {
        let blocked = seen
            .infrastructure
            .as_ref()
            .filter(|said| said.status != Status::True);
        let why = blocked
            .map(|said| format!("; {}", said.message))
            .unwrap_or_default();
        types::ScalingUp::ScalingUp
            .holds()
            .because(format!("Scaling up from {have} to {desired} machines{why}"))
    } else {
        types::ScalingUp::NotScalingUp.fails()
    });
    let leaving: Vec<String> = machines
        .iter()
        .filter(|m| m.is_deleting())
        .map(|m| m.name_any())
        .collect();
    list.push(if have > most {
        let going = if leaving.is_empty() {
            String::new()
        } else {
            format!("; going: {}", few(&leaving))
        };
        types::ScalingDown::ScalingDown.holds().because(format!(
            "Scaling down from {have} to {desired} machines{going}"
        ))
    } else {
        types::ScalingDown::NotScalingDown.fails()
    });
    list.push(types::Deleting::NotDeleting.fails());
    list.push(types::Paused::NotPaused.fails());
    list
}

/// Machines of somebody else's that stand where the pool's are to be.
fn refused(refused: &[Refused]) -> Option<String> {
    let first = refused.first()?;
    let names: Vec<String> = refused.iter().map(|r| r.machine.clone()).collect();
    Some(format!(
        "* Machine{} {}: exists already and belongs to {}, so an instance of this pool has no Machine; delete it or give it to another InfraMachine",
        plural(&names),
        few(&names),
        first.whose
    ))
}

/// Whether all Machines are what the pool wants.
fn up_to_date(judged: &[Judged]) -> Said {
    if judged.is_empty() {
        return types::MachinesUpToDate::NoReplicas.holds();
    }
    let outdated: Vec<&Judged> = judged.iter().filter(|j| !j.outdated.is_empty()).collect();
    let Some(first) = outdated.first() else {
        return types::MachinesUpToDate::UpToDate.holds();
    };
    let names: Vec<String> = outdated.iter().map(|j| j.machine.name_any()).collect();
    types::MachinesUpToDate::NotUpToDate
        .fails()
        .because(format!(
            "* Machine{} {}:\n  {}",
            plural(&names),
            few(&names),
            told(&first.outdated).replace('\n', "\n  ")
        ))
}

/// The reasons of a condition that sums up one of all Machines.
struct Summary<R> {
    all: R,
    some_not: R,
    some_unknown: R,
    none: R,
}

/// A condition of the pool from one that its Machines have: the worst first, and only a few by name.
fn over<R: Reason>(machines: &[Arc<Machine>], of: &str, summary: &Summary<R>) -> Said {
    if machines.is_empty() {
        return summary.none.holds();
    }
    let status = |machine: &Machine| machine.condition_of(of).map(|c| c.status.clone());
    let names = |wanted: &dyn Fn(Option<&str>) -> bool| -> Vec<String> {
        machines
            .iter()
            .filter(|m| wanted(status(m).as_deref()))
            .map(|m| m.name_any())
            .collect()
    };
    let bad = names(&|s| s == Some("False"));
    let unknown = names(&|s| s != Some("False") && s != Some("True"));
    if !bad.is_empty() {
        let first = machines
            .iter()
            .find(|m| bad.contains(&m.name_any()))
            .and_then(|m| m.condition_of(of));
        let why = first
            .map(|c| c.message.lines().next().unwrap_or_default().to_owned())
            .unwrap_or_default();
        return summary.some_not.fails().because(format!(
            "* Machine{} {}: {why}",
            plural(&bad),
            few(&bad)
        ));
    }
    if !unknown.is_empty() {
        return summary.some_unknown.unknown().because(format!(
            "* Machine{} {}: {of} is not known yet",
            plural(&unknown),
            few(&unknown)
        ));
    }
    summary.all.holds()
}

pub(super) fn plural(list: &[String]) -> &'static str {
    if list.len() == 1 { "" } else { "s" }
}

/// A few of the names, and how many more there are.
pub(super) fn few(list: &[String]) -> String {
    let shown = list
        .iter()
        .take(NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match list.len().checked_sub(NAMED) {
        Some(more) if more > 0 => format!("{shown}, ... ({more} more)"),
        _ => shown,
    }
}

/// Something that has to be there first is not.
pub(super) async fn waits(
    context: &Context,
    pools: &Api<MachinePool>,
    pool: &MachinePool,
    why: String,
) -> Result<Requeue, PassError> {
    let mut status = pool.status.clone().unwrap_or_default();
    let said = types::InfrastructureReady::NotReady.fails().because(why);
    conditions::set(
        &mut status.conditions,
        said,
        pool.metadata.generation,
        context.clock.now(),
    );
    status.phase.get_or_insert(MachinePoolPhase::Pending);
    put(context, pools, pool, status).await?;
    Ok(Requeue::Never)
}

pub(super) async fn paused(
    context: &Context,
    pools: &Api<MachinePool>,
    pool: &MachinePool,
    pause: Pause,
) -> Result<Requeue, PassError> {
    let mut status = pool.status.clone().unwrap_or_default();
    let said = types::Paused::Paused
        .holds()
        .because(pause.told("MachinePool"));
    conditions::set(
        &mut status.conditions,
        said,
        pool.metadata.generation,
        context.clock.now(),
    );
    put(context, pools, pool, status).await?;
    Ok(Requeue::Never)
}

/// Says what the deletion of a pool waits for; the counters follow the Machines that are left, where these are known.
pub(super) async fn deleting(
    context: &Context,
    pools: &Api<MachinePool>,
    pool: &MachinePool,
    message: String,
    left: Option<&[Arc<Machine>]>,
) -> Result<(), PassError> {
    let mut status = pool.status.clone().unwrap_or_default();
    if let Some(left) = left {
        let count = |type_: &str| {
            let found = left.iter().filter(|m| m.is_true(type_) && !m.is_deleting());
            number(found.count())
        };
        status.replicas = number(left.len());
        status.ready_replicas = count(types::Ready::TYPE);
        status.available_replicas = count(types::Available::TYPE);
        status.up_to_date_replicas = count(types::UpToDate::TYPE);
        status.versions = versions(left);
        status.node_refs = node_refs(context, pool, left);
    }
    for said in [
        types::Deleting::Deleting.holds().because(message),
        types::Paused::NotPaused.fails(),
    ] {
        conditions::set(
            &mut status.conditions,
            said,
            pool.metadata.generation,
            context.clock.now(),
        );
    }
    status.phase = Some(MachinePoolPhase::Deleting);
    put(context, pools, pool, status).await
}

async fn put(
    context: &Context,
    pools: &Api<MachinePool>,
    pool: &MachinePool,
    status: MachinePoolStatus,
) -> Result<(), PassError> {
    if pool.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let patch = json!({"status": difference(&pool.status, &status)});
    match pools
        .patch_status(
            &pool.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(patched) => context.caches.pools.absorb(patched),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(api("writing the status")(error)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, ready: &str) -> Arc<Machine> {
        let said = json!({"type": "Ready", "status": ready, "reason": "X", "message": format!("* of {name}\n* more"),
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let value = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": name},
            "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {"apiGroup": "g", "kind": "K", "name": name}},
            "status": {"conditions": [said]}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn summary(machines: &[Arc<Machine>]) -> Said {
        let reasons = Summary {
            all: types::MachinesReady::Ready,
            some_not: types::MachinesReady::NotReady,
            some_unknown: types::MachinesReady::ReadyUnknown,
            none: types::MachinesReady::NoReplicas,
        };
        over(machines, types::Ready::TYPE, &reasons)
    }

    #[test]
    fn a_summary_names_the_worst_first_and_only_a_few() {
        assert_eq!(summary(&[]).reason, "NoReplicas");
        let well = machine("well", "True");
        assert_eq!(summary(&[Arc::clone(&well)]).status, Status::True);
        let unknown = machine("unknown", "Unknown");
        let said = summary(&[Arc::clone(&well), Arc::clone(&unknown)]);
        assert_eq!(said.status, Status::Unknown);
        let bad: Vec<_> = (0..1000)
            .map(|n| machine(&format!("bad-{n:03}"), "False"))
            .collect();
        let all: Vec<_> = [well, unknown].into_iter().chain(bad).collect();
        let said = summary(&all);
        assert_eq!(said.status, Status::False);
        assert_eq!(
            said.message,
            "* Machines bad-000, bad-001, bad-002, ... (997 more): * of bad-000"
        );
    }
}

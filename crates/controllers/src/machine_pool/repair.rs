//! The repair of a pool's sick Machines: they are deleted, so that they are drained as far as they can be, and replaced.

use std::collections::HashMap;

use kube::ResourceExt;
use muster_api::conditions::{Reason as _, Said, types};
use muster_api::policy::MachinePoolPolicySpec;
use muster_api::reference::Conditioned as _;
use muster_api::{Machine, MachinePool, names};
use muster_observe::rollout::Judged;
use muster_plan::allowance::Census;
use muster_plan::repair::{Decision, Sick, decide};
use muster_plan::rollout::Member;

use super::replace::replace;
use super::status::{few, plural};
use crate::{Context, PassError};

/// Begins the repairs that may begin now, and says where they stand. `limit` is how many machines may be down at once.
pub(super) async fn step(
    context: &Context,
    pool: &MachinePool,
    policy: Option<&MachinePoolPolicySpec>,
    machines: &[Judged],
    members: &[Member],
    limit: u32,
) -> Result<Said, PassError> {
    let by_name: HashMap<String, &Machine> = machines
        .iter()
        .map(|judged| (judged.machine.name_any(), &*judged.machine))
        .collect();
    let sick: Vec<Sick> = by_name
        .values()
        .filter_map(|machine| sick(machine))
        .collect();
    let standings = members.iter().map(|member| member.standing);
    let census = Census::of(pool.desired_replicas(), standings);
    let decision = decide(sick, census, limit);
    for name in &decision.begin {
        let Some(machine) = by_name.get(name) else {
            continue;
        };
        let why = fault(machine);
        let note = format!("repaired by deletion, since a health check finds fault with it: {why}");
        replace(context, policy, machine, "Repaired", note).await?;
    }
    let going: Vec<String> = by_name
        .iter()
        .filter(|(_, machine)| machine.is_deleting() && is_asked_for(machine))
        .map(|(name, _)| name.clone())
        .collect();
    Ok(said(going, &decision))
}

/// A Machine whose repair its owner is asked for.
fn sick(machine: &Machine) -> Option<Sick> {
    let said = machine.condition_of(types::HealthCheckSucceeded::TYPE)?;
    let asked = said.status == "False" && is_asked_for(machine) && !machine.is_deleting();
    asked.then(|| Sick {
        name: machine.name_any(),
        asked: names::REMEDIATE_MACHINE.is_on(machine),
        no_node: machine.node_name().is_none(),
        since: said.last_transition_time.0,
    })
}

fn is_asked_for(machine: &Machine) -> bool {
    let said = machine.condition_of(types::OwnerRemediated::TYPE);
    said.is_some_and(|said| said.status == "False")
}

fn fault(machine: &Machine) -> String {
    let said = machine.condition_of(types::HealthCheckSucceeded::TYPE);
    said.map(|said| said.message.clone()).unwrap_or_default()
}

/// The pool's Remediating condition.
fn said(mut going: Vec<String>, decision: &Decision) -> Said {
    going.extend(decision.begin.iter().cloned());
    going.sort();
    going.dedup();
    if going.is_empty() && decision.wait.is_empty() {
        return types::Remediating::NotRemediating.fails();
    }
    let mut lines = Vec::new();
    if !going.is_empty() {
        lines.push(format!(
            "* Machine{} {}: being repaired",
            plural(&going),
            few(&going)
        ));
    }
    if !decision.wait.is_empty() {
        lines.push(format!(
            "* Machine{} {}: waiting, since {} machine(s) of the pool are going or coming already and disruption.maxUnavailable lets {} be down at once",
            plural(&decision.wait),
            few(&decision.wait),
            decision.under_way.max(u32::try_from(going.len()).unwrap_or(u32::MAX)),
            decision.limit
        ));
    }
    types::Remediating::Remediating
        .holds()
        .because(lines.join("\n"))
}

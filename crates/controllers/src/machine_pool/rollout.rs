//! One step of a pool's rollout: its Machines as `plan` takes them, the decision, and the deletions that it asks for.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use kube::ResourceExt;
use muster_api::conditions::{Reason as _, Said, Status, types};
use muster_api::names::SizeOwner;
use muster_api::policy::MachinePoolPolicySpec;
use muster_api::{Cluster, MachinePool};
use muster_informers::Key;
use muster_observe::drain::Rules as DrainRules;
use muster_observe::rollout::{
    InvalidField, Judged, OnNodes, Rules, rules, startup, told, too_new,
};
use muster_plan::allowance::Standing;
use muster_plan::rollout::{self, Because, Decision, Member, NoPods, Pool, Waiting};

use super::replace::replace;
use super::{Seen, machines, repair};
use crate::machine::drain::refusal::unready;
use crate::{Context, PassError};

/// How many Machines are deleted at once.
const PARALLEL: usize = 16;
/// How soon to look again whether budgets of Pods have room.
const BUDGETS: Duration = Duration::from_secs(5);

/// What became of a step.
pub(super) struct Step {
    /// The pool's RollingOut condition.
    pub(super) said: Said,
    /// Its Remediating condition.
    pub(super) remediating: Said,
    /// How many machines more than its size the pool may have now.
    pub(super) surge: u32,
    /// How soon to look again.
    pub(super) again: Option<Duration>,
}

/// The pool's Machines, each judged by the pool as it is given, so that what is said of them belongs to its generation.
/// Walks the pool.
pub(super) fn judged(context: &Context, pool: &MachinePool, seen: &Seen) -> Vec<Judged> {
    let namespace = pool.namespace().unwrap_or_default();
    let machines = context.caches.machines_of(&namespace, &pool.name_any());
    machines
        .into_iter()
        .map(|machine| {
            let instance = seen.instances.get(&machine.name_any()).copied();
            Judged::new(pool, machine, instance)
        })
        .collect()
}

/// Decides, and deletes the Machines that go now.
pub(super) async fn step(
    context: &Context,
    pool: &MachinePool,
    cluster: &Cluster,
    seen: &Seen,
) -> Result<Step, PassError> {
    let policy = context
        .caches
        .policy(&pool.namespace().unwrap_or_default(), &pool.name_any());
    let policy = policy.as_deref().map(|policy| &policy.spec);
    let rules = rules(policy, pool.desired_replicas());
    let now = context.clock.now();
    let checks = context.caches.health_checks.walk_all();
    let labels = machines::labels(pool);
    let startup = startup(pool, &labels, checks.iter().map(|check| &**check));
    let members_of = |machines: &[Judged]| -> Vec<Member> {
        let members = machines.iter().map(|judged| judged.member(startup, now));
        members.collect()
    };
    let wanted = wanted(pool, cluster, seen, &rules);
    let mut machines = judged(context, pool, seen);
    let mut members = members_of(&machines);
    // Repair goes first, and what it begins counts for the rollout.
    let limit = wanted.disruption;
    let remediating = repair::step(context, pool, policy, &machines, &members, limit).await?;
    if remediating.status == Status::True {
        machines = judged(context, pool, seen);
        members = members_of(&machines);
    }
    let decision = decide(context, cluster, &wanted, &machines, &members);
    let by_name: HashMap<String, &Judged> = machines
        .iter()
        .map(|judged| (judged.machine.name_any(), judged))
        .collect();
    let mut going: Vec<BoxFuture<'_, Result<(), PassError>>> = Vec::new();
    for (name, because) in &decision.next {
        if let Some(judged) = by_name.get(name) {
            going.push(delete(context, policy, judged, *because).boxed());
        }
    }
    let done: Vec<Result<(), PassError>> = futures::stream::iter(going)
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    done.into_iter().collect::<Result<(), _>>()?;
    let budgets = matches!(decision.waiting, Waiting::Budgets(_)).then_some(BUDGETS);
    let starts = machines
        .iter()
        .zip(&members)
        .filter(|(_, member)| member.standing == Standing::Starting && !member.failed_to_start)
        .filter_map(|(judged, _)| Duration::try_from(judged.left_to_start(startup?, now)).ok());
    let again = starts.chain(budgets).min();
    Ok(Step {
        surge: match wanted.refused {
            Some(_) if too_new(pool, cluster).is_some() => 0,
            _ => rollout::surge(wanted.strategy, decision.counts.outdated),
        },
        said: said(&decision),
        remediating,
        again: again.filter(|_| !decision.is_over()),
    })
}

/// Decides with what is on the Nodes of the Machines. Where the cluster cannot be looked into, none of them is available.
fn decide(
    context: &Context,
    cluster: &Cluster,
    wanted: &Pool,
    machines: &[Judged],
    members: &[Member],
) -> Decision {
    let Some(workload) = context.workloads.get(&Key::of(cluster)) else {
        return rollout::decide(wanted, members, &mut NoPods);
    };
    let namespace = cluster.namespace().unwrap_or_default();
    let rules = context
        .caches
        .drain_rules
        .by(context.caches.drain_rules_by_namespace, &namespace);
    let rules = DrainRules::read(&rules);
    let now = context.clock.now();
    let mut pods = OnNodes::new(&*workload, &rules, Some(cluster), machines, now);
    let mut decision = rollout::decide(wanted, members, &mut pods);
    if let Waiting::Budgets(budgets) = &mut decision.waiting {
        for budget in budgets {
            let Some((namespace, name)) = budget.name.split_once('/') else {
                continue;
            };
            let object = workload.budgets.get(&Key::new(namespace, name));
            let object: Vec<_> = object.into_iter().collect();
            budget.unready = unready(&workload, namespace, &object);
        }
    }
    decision
}

/// What is decided about.
fn wanted(
    pool: &MachinePool,
    cluster: &Cluster,
    seen: &Seen,
    rules: &Result<Rules, InvalidField>,
) -> Pool {
    let not_ready = |said: &Option<Said>, what: &str| {
        let said = said.as_ref().filter(|said| said.status != Status::True)?;
        // What the cloud cannot launch is missing and counted as such.
        let trouble = said.reason == types::Ready::CloudTrouble.as_str();
        (!trouble).then(|| format!("waiting for the {what}: {}", said.message))
    };
    let refused = match rules {
        Err(invalid) => Some(invalid.to_string()),
        Ok(_) => too_new(pool, cluster),
    }
    .or_else(|| not_ready(&seen.bootstrap, "bootstrap data"))
    .or_else(|| not_ready(&seen.infrastructure, "infrastructure"));
    let rules = rules.clone().ok();
    Pool {
        desired: pool.desired_replicas(),
        // With a field that cannot be read nothing is done, and it is said why.
        strategy: rules.as_ref().map_or(
            rollout::Strategy::Rolling(rollout::Limits::resolve(None, None, 0)),
            |rules| rules.strategy,
        ),
        disruption: rules.as_ref().map_or(0, |rules| rules.disruption),
        can_surge: SizeOwner::of(pool) == SizeOwner::Spec
            // A provider that says which instances are up to date is Muster's own, and knows how.
            && !seen.instances.is_empty(),
        balanced: rules.as_ref().is_none_or(|rules| rules.balanced),
        refused,
    }
}

/// Deletes an outdated Machine, so that it is drained and replaced.
async fn delete(
    context: &Context,
    policy: Option<&MachinePoolPolicySpec>,
    judged: &Judged,
    because: Because,
) -> Result<(), PassError> {
    let note = format!(
        "replaced since it is out of date, and goes now because it {}:\n{}",
        because.told(),
        told(&judged.outdated)
    );
    replace(context, policy, &judged.machine, "RolledOut", note).await
}

/// The pool's RollingOut condition.
fn said(decision: &Decision) -> Said {
    if decision.is_over() {
        return types::RollingOut::NotRollingOut.fails();
    }
    let said = match decision.waiting {
        Waiting::OnDelete => types::RollingOut::NotRollingOut.fails(),
        Waiting::Stopped { .. } => types::RollingOut::RolloutStopped.holds(),
        Waiting::Refused(_) | Waiting::NoRoom(_) => types::RollingOut::RolloutRefused.holds(),
        Waiting::ScaleDown { .. }
        | Waiting::Machines { .. }
        | Waiting::Budgets(_)
        | Waiting::Nothing => types::RollingOut::RollingOut.holds(),
    };
    said.because(decision.told())
}

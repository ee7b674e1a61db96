//! MachineHealthChecks: which Machines are sick, and whether so many are that it cannot be the Machines.
//!
//! A change of one Machine or of its Node costs a look at that one: each check has a roster of its targets with what was
//! found about each, and a timer for the next that is due. What is found is written by the Machine's own reconciler, in
//! the one write of its status.

mod opinions;
mod requests;
mod status;
mod zones;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use muster_api::reference::Conditioned as _;
use muster_api::{Cluster, Machine, MachineHealthCheck};
use muster_caches::in_namespace;
use muster_informers::{Key, Options, Requeue};
use muster_observe::health as observe;
use muster_plan::health::roster::Found;
use muster_plan::health::{ALONE_AFTER, judge};
use tokio_util::sync::CancellationToken;

pub(crate) use opinions::{Handed, Health, Opinion};

use crate::{Context, PassError};

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// A Machine, by all checks that are for it.
    Machine(Key),
    /// A check, and all Machines of its Cluster: it or the Cluster changed.
    Everybody(Key),
    /// A check: its counts, and the targets that are due.
    Check(Key),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(key) => write!(f, "Machine {key}"),
            Self::Everybody(key) => write!(f, "all targets of MachineHealthCheck {key}"),
            Self::Check(key) => write!(f, "MachineHealthCheck {key}"),
        }
    }
}

/// How often it is noted that this process runs; one that was stopped for longer notices it by the gap.
const PULSE: Duration = Duration::from_secs(5);

pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    tokio::select! {
        synced = context.caches.synced() => if synced.is_err() { return },
        () = stop.cancelled() => return,
    }
    let feeder = Arc::clone(&context);
    let feed = tokio::spawn(async move {
        let mut machines = feeder.caches.machines.subscribe();
        let mut checks = feeder.caches.health_checks.subscribe();
        let mut clusters = feeder.caches.clusters.subscribe();
        let q = &feeder.health.queue;
        loop {
            tokio::select! {
                Some(change) = machines.recv() => change.either().for_each(|machine| q.add(Work::Machine(Key::of(&**machine)))),
                Some(change) = checks.recv() => {
                    let anew = change.old.as_ref().map(|c| c.metadata.generation) != change.new.as_ref().map(|c| c.metadata.generation);
                    for check in change.either() {
                        let key = Key::of(&**check);
                        q.add(if anew { Work::Everybody(key) } else { Work::Check(key) });
                    }
                }
                Some(change) = clusters.recv() => {
                    // What a verdict rests on; the counters of the status do not matter.
                    let mark = |c: &Arc<Cluster>| {
                        let said = ["InfrastructureReady", "ControlPlaneInitialized"];
                        let said = said.map(|type_| c.condition_of(type_).map(|c| c.last_transition_time.clone()));
                        (c.spec.paused, said)
                    };
                    if change.old.as_ref().map(mark) != change.new.as_ref().map(mark) {
                        for cluster in change.either() {
                            let value = in_namespace(&cluster.namespace().unwrap_or_default(), &cluster.name_any());
                            for check in feeder.caches.health_checks.by(feeder.caches.health_checks_by_cluster, &value) {
                                q.add(Work::Everybody(Key::of(&*check)));
                            }
                        }
                    }
                }
                else => return,
            }
        }
    });
    let beats = Arc::clone(&context);
    let pulse = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(PULSE);
        loop {
            ticks.tick().await;
            beats.health.beat(beats.clock.now());
        }
    });
    let asking = tokio::spawn(requests::run(Arc::clone(&context), stop.clone()));
    let options = Options {
        coalesce: Duration::from_millis(50),
        ..Options::new("machine-health-check")
    };
    let queue = context.health.queue.clone();
    queue
        .run(options, stop, move |work| {
            let context = Arc::clone(&context);
            async move { pass(&context, work).await }
        })
        .await;
    feed.abort();
    pulse.abort();
    asking.abort();
}

async fn pass(context: &Context, work: Work) -> Result<Requeue, PassError> {
    match work {
        Work::Machine(key) => {
            let machine = context.caches.machines.get(&key);
            let checks = match &machine {
                Some(machine) => {
                    let value = in_namespace(&key.namespace, &machine.spec.cluster_name);
                    context
                        .caches
                        .health_checks
                        .by(context.caches.health_checks_by_cluster, &value)
                }
                None => Vec::new(),
            };
            for check in context.health.forget_others(&key, &checks) {
                context.health.queue.add(Work::Check(check));
            }
            let is_new = !context.health.has_looked_at(&key);
            for check in &checks {
                if is_new {
                    learn(context, check).await;
                }
                if look(context, check, machine.as_deref(), &key) {
                    context.health.queue.add(Work::Check(Key::of(&**check)));
                }
            }
            if context.health.looked_at(&key, machine.is_some()) {
                context.health.requests.add(key.clone());
                context.machines.add(key);
            }
            Ok(Requeue::Never)
        }
        Work::Everybody(key) => {
            let Some(check) = context.caches.health_checks.get(&key) else {
                forget(context, &key);
                return Ok(Requeue::Never);
            };
            let value = in_namespace(&key.namespace, &check.spec.cluster_name);
            let machines = context
                .caches
                .machines
                .by(context.caches.machines_by_cluster, &value);
            learn(context, &check).await;
            for machine in &machines {
                let key = Key::of(&**machine);
                look(context, &check, Some(&**machine), &key);
                context.health.requests.add(key);
            }
            context.health.queue.add(Work::Check(key));
            Ok(Requeue::Never)
        }
        Work::Check(key) => {
            let Some(check) = context.caches.health_checks.get(&key) else {
                forget(context, &key);
                return Ok(Requeue::Never);
            };
            status::pass(context, &key, &check).await
        }
    }
}

/// Has the requests of a check known before anybody is looked at: a Machine in a repairer's hands is not healthy.
async fn learn(context: &Context, check: &MachineHealthCheck) {
    if let Some(template) = requests::template(check) {
        // Where they cannot be, it is said of the Machine that needs one.
        let _ = requests::learn(context, template).await;
    }
}

/// A check is gone: nobody is its target any more.
fn forget(context: &Context, check: &Key) {
    for machine in context.health.forget(check) {
        context.health.requests.add(machine.clone());
        context.machines.add(machine);
    }
}

/// Looks at one Machine by one check; whether the check's counts may be others now. A Machine about which something else
/// is found than before is told.
fn look(
    context: &Context,
    check: &MachineHealthCheck,
    machine: Option<&Machine>,
    key: &Key,
) -> bool {
    let of = Key::of(check);
    let found = machine.and_then(|machine| found(context, check, machine));
    let before = context.health.opinion(key);
    let changed = context.health.note(&of, key, found);
    if changed && requests::template(check).is_some() {
        context.health.requests.add(key.clone());
    }
    if context.health.opinion(key) != before {
        context.machines.add(key.clone());
    }
    changed
}

/// What is found about a Machine by a check that is for it.
fn found(context: &Context, check: &MachineHealthCheck, machine: &Machine) -> Option<Found> {
    match observe::is_for(check, machine) {
        Ok(true) => {}
        // What cannot be read is said in the check's status.
        Ok(false) | Err(_) => return None,
    }
    let namespace = machine.namespace().unwrap_or_default();
    let cluster_key = Key::new(namespace, &machine.spec.cluster_name);
    let cluster = context.caches.clusters.get(&cluster_key)?;
    let now = context.clock.now();
    let workload = context.workloads.get(&cluster_key);
    let watched = workload
        .as_ref()
        .map(|workload| context.health.watched(workload.watched_since, now));
    let node = machine.node_name().and_then(|name| {
        let workload = workload.as_ref()?;
        workload.nodes.get(&Key::new("", name))
    });
    let mut around = observe::surroundings(&cluster, watched);
    around.zones_back = context.health.zones_back(&Key::of(check));
    let silent = node.as_deref().and_then(zones::silent_since);
    let alone = silent.map(|since| since.saturating_add(ALONE_AFTER).unwrap_or(Timestamp::MAX));
    let seen = observe::machine(machine, node.as_deref());
    Some(Found {
        verdict: judge(&observe::check(check), &seen, &around, now),
        leaving: machine.is_deleting(),
        handed_over: requests::is_handed_over(context, check, machine),
        zone: machine
            .status
            .as_ref()
            .and_then(|status| status.failure_domain.clone()),
        settles: alone.filter(|at| *at > now),
    })
}

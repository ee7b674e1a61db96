//! Machines as members of a pool: what speaks for and against their going.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use muster_api::conditions::Reason as _;
use muster_api::conditions::types::{HealthCheckSucceeded, Ready, UpToDate};
use muster_api::machine::MachinePhase;
use muster_api::policy::{ScaleDownOrder, ZoneBalance};
use muster_api::reference::Conditioned;
use muster_api::{Cluster, Machine, MachinePoolPolicy, names};
use muster_plan::disruption::Disruption;
use muster_plan::drain;
use muster_plan::pool::{Balance, Member, Order, Pool};

use crate::View;
use crate::drain::Rules;
use crate::load::{self, Budgets};

/// How a pool chooses, by its policy.
pub fn pool(policy: Option<&MachinePoolPolicy>, desired: u32) -> Pool {
    let rules = policy
        .and_then(|policy| policy.spec.scale_down)
        .unwrap_or_default();
    Pool {
        desired,
        order: match rules.order {
            ScaleDownOrder::LeastDisruption => Order::LeastDisruption,
            ScaleDownOrder::Newest => Order::Newest,
            ScaleDownOrder::Oldest => Order::Oldest,
            ScaleDownOrder::Random => Order::Random,
        },
        balance: match rules.zone_balance {
            ZoneBalance::Required => Balance::Required,
            ZoneBalance::Preferred => Balance::Preferred,
            ZoneBalance::Ignored => Balance::Ignored,
        },
    }
}

/// A Machine as a member of its pool, without what is on its Node.
pub fn member(machine: &Machine) -> Member {
    let says = |type_: &str, status: &str| {
        machine
            .condition_of(type_)
            .is_some_and(|c| c.status == status)
    };
    let status = machine.status.as_ref();
    Member {
        name: machine.name_any(),
        created: machine
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        zone: status.and_then(|status| status.failure_domain.clone()),
        leaving: machine.is_deleting(),
        marked: names::DELETE_MACHINE.is_on(machine),
        has_node: machine.node_name().is_some(),
        failed: status.and_then(|s| s.phase) == Some(MachinePhase::Failed),
        unhealthy: says(HealthCheckSucceeded::TYPE, "False"),
        ready: says(Ready::TYPE, "True"),
        up_to_date: !says(UpToDate::TYPE, "False"),
        held: is_held(machine),
        disruption: Disruption::default(),
        zone_bound: false,
    }
}

/// Whether something asks to leave a Machine alone: a hook would hold its deletion, or it is excluded from repair.
pub(crate) fn is_held(machine: &Machine) -> bool {
    let hooked = machine.annotations().keys().any(|key| {
        key.starts_with(names::PRE_DRAIN_HOOK) || key.starts_with(names::PRE_TERMINATE_HOOK)
    });
    hooked || names::SKIP_REMEDIATION.is_on(machine)
}

/// The names of a kind of hooks that hold: what follows the prefix, or all of the key where nothing does.
pub fn hooks(machine: &Machine, prefix: &str) -> Vec<String> {
    let keys = machine.annotations().keys();
    let mut names: Vec<String> = keys
        .filter_map(|key| Some((key, key.strip_prefix(prefix)?)))
        .map(|(key, rest)| match rest.trim_start_matches('/') {
            "" => key.clone(),
            name => name.to_owned(),
        })
        .collect();
    names.sort();
    names
}

/// What is on the Nodes of a pool's Machines. Looking at all of them walks the pool and its Pods: for a choice that is to be
/// made, not for every event.
pub struct Nodes<'a> {
    rules: &'a Rules,
    cluster: Option<&'a Cluster>,
    view: &'a dyn View,
    budgets: Budgets<'a>,
    now: Timestamp,
}

impl<'a> Nodes<'a> {
    /// Those of one workload cluster.
    pub fn new(
        rules: &'a Rules,
        cluster: Option<&'a Cluster>,
        view: &'a dyn View,
        now: Timestamp,
    ) -> Self {
        Self {
            rules,
            cluster,
            view,
            budgets: Budgets::new(view),
            now,
        }
    }

    /// Adds what the going of a Machine would disturb.
    pub fn look(&mut self, machine: &Machine, member: &mut Member) {
        let (Some(node), false) = (machine.node_name(), member.leaving) else {
            return;
        };
        match self.rules.of_machine(machine, self.cluster) {
            Ok(rules) => {
                // Whether the kubelet answers changes only what is waited for, not what there is to move.
                let state = drain::Node { unreachable: false };
                let (view, now) = (self.view, self.now);
                let found = load::on_node(node, state, &rules, view, &mut self.budgets, now);
                member.disruption = found.load.disruption(self.budgets.list());
                member.zone_bound = found.load.is_zone_bound();
            }
            // Its drain would not begin.
            Err(_) => member.disruption.blocked = true,
        }
    }
}

/// What is known of a Node for a drain.
pub fn state(node: &Node) -> drain::Node {
    drain::Node {
        unreachable: crate::drain::is_unreachable(node),
    }
}

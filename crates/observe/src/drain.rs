//! Pods as a drain sees them: their owners, their labels, and the first MachineDrainRule that is for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod as CorePod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use muster_api::drain_rule::{DrainBehavior, DrainSpec};
use muster_api::{Cluster, Machine, MachineDrainRule, names};
use muster_plan::drain::{Owner, Pod, PodName, Treatment};

use crate::View;

/// The MachineDrainRules of a namespace, ready to be matched; the order is theirs by name.
#[derive(Debug, Default)]
pub struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    machines: Parts,
    pods: Parts,
    treatment: Treatment,
}

/// Pairs of selectors of which one pair has to match; what cannot be read is told when it is needed.
type Parts = Result<Vec<Part>, String>;

#[derive(Debug)]
struct Part {
    own: Option<Selector>,
    above: Option<Selector>,
}

impl Rules {
    /// Reads rules.
    pub fn read(rules: &[Arc<MachineDrainRule>]) -> Self {
        let mut sorted: Vec<&Arc<MachineDrainRule>> = rules.iter().collect();
        sorted.sort_by_key(|rule| rule.name_any());
        Self(sorted.into_iter().map(|rule| read(rule)).collect())
    }

    /// Those that are for a Machine.
    ///
    /// # Errors
    /// When one cannot be read: it may be the one that protects a Pod. The sentence says which.
    pub fn of_machine(
        &self,
        machine: &Machine,
        cluster: Option<&Cluster>,
    ) -> Result<MachineRules<'_>, String> {
        let nothing = BTreeMap::new();
        let of_cluster = cluster.map_or(&nothing, |cluster| cluster.labels());
        let mut ours = Vec::new();
        for rule in &self.0 {
            if applies(&rule.machines, machine.labels(), of_cluster)? {
                rule.pods.as_ref().map_err(Clone::clone)?;
                ours.push(rule);
            }
        }
        Ok(MachineRules(ours))
    }
}

/// The MachineDrainRules that are for one Machine, all of them readable.
#[derive(Debug)]
pub struct MachineRules<'a>(Vec<&'a Rule>);

impl MachineRules<'_> {
    fn treatment(&self, pod: &CorePod, view: &dyn View) -> Option<Treatment> {
        if self.0.is_empty() {
            return None;
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let namespace = view.namespace(namespace);
        let nothing = BTreeMap::new();
        let above = namespace
            .as_ref()
            .map_or(&nothing, |namespace| namespace.labels());
        self.0
            .iter()
            .find(|rule| applies(&rule.pods, pod.labels(), above).unwrap_or(false))
            .map(|rule| rule.treatment)
    }
}

fn read(rule: &MachineDrainRule) -> Rule {
    let of = rule.name_any();
    let machines = rule
        .spec
        .machines
        .iter()
        .map(|part| part_of(part.selector.as_ref(), part.cluster_selector.as_ref(), &of))
        .collect();
    let pods = rule
        .spec
        .pods
        .iter()
        .map(|part| {
            part_of(
                part.selector.as_ref(),
                part.namespace_selector.as_ref(),
                &of,
            )
        })
        .collect();
    Rule {
        machines,
        pods,
        treatment: treatment(&rule.spec.drain),
    }
}

fn part_of(
    own: Option<&LabelSelector>,
    above: Option<&LabelSelector>,
    of: &str,
) -> Result<Part, String> {
    let selector = |selector: Option<&LabelSelector>| {
        let read = selector.cloned().map(Selector::try_from).transpose();
        read.map_err(|error| {
            format!("a selector of MachineDrainRule {of} cannot be used: {error}; correct it")
        })
    };
    Ok(Part {
        own: selector(own)?,
        above: selector(above)?,
    })
}

/// A rule without parts is for all.
fn applies(
    parts: &Parts,
    own: &BTreeMap<String, String>,
    above: &BTreeMap<String, String>,
) -> Result<bool, String> {
    let parts = parts.as_ref().map_err(Clone::clone)?;
    let matches = |selector: &Option<Selector>, labels: &BTreeMap<String, String>| {
        selector
            .as_ref()
            .is_none_or(|selector| selector.matches(labels))
    };
    Ok(parts.is_empty()
        || parts
            .iter()
            .any(|part| matches(&part.own, own) && matches(&part.above, above)))
}

fn treatment(drain: &DrainSpec) -> Treatment {
    match drain.behavior {
        DrainBehavior::Drain => Treatment::Drain {
            order: drain.order.unwrap_or(0),
        },
        DrainBehavior::Skip => Treatment::Skip,
        DrainBehavior::WaitCompleted => Treatment::WaitCompleted,
    }
}

/// A Pod as a drain sees it.
pub fn pod(pod: &CorePod, rules: &MachineRules<'_>, view: &dyn View) -> Pod {
    let namespace = pod.namespace().unwrap_or_default();
    let owner = pod
        .owner_references()
        .iter()
        .find(|owner| owner.controller == Some(true));
    // A Pod whose DaemonSet is gone is nobody's any more, and is drained. Source: Cluster API.
    let set = owner
        .filter(|owner| owner.kind == "DaemonSet")
        .and_then(|owner| view.daemon_set(&namespace, &owner.name));
    Pod {
        name: PodName {
            namespace,
            name: pod.name_any(),
        },
        uid: pod.uid().unwrap_or_default(),
        deletion: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        finished: is_finished(pod),
        owner: match (owner, &set) {
            (Some(owner), Some(set)) if set.uid().as_ref() == Some(&owner.uid) => Owner::DaemonSet,
            _ => Owner::Other,
        },
        mirror: pod
            .annotations()
            .contains_key("kubernetes.io/config.mirror"),
        label: names::DRAIN.text(pod).map(str::to_owned),
        rule: rules.treatment(pod, view),
    }
}

/// Whether a Pod ran to its end.
pub fn is_finished(pod: &CorePod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a Pod is ready.
pub fn is_ready(pod: &CorePod) -> bool {
    pod.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether the kubelet of a Node does not answer.
pub fn is_unreachable(node: &k8s_openapi::api::core::v1::Node) -> bool {
    node.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}

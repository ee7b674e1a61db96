//! Labels, annotations, finalizers and Secrets: the names that Cluster API gives them, with their meanings.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::keys::{Annotation, Label, Presence, Value};
use crate::policy::Replacement;

/// The Cluster that an object belongs to.
pub const CLUSTER_NAME: Label = Label::new("cluster.x-k8s.io/cluster-name");
/// The MachinePool that a Machine or InfraMachine belongs to; the value is [`pool_label`]'s.
pub const POOL_NAME: Label = Label::new("cluster.x-k8s.io/pool-name");
/// A control plane's Machines.
pub const CONTROL_PLANE: Label<Presence> = Label::new("cluster.x-k8s.io/control-plane");
/// On Pods: how a drain treats them; `skip` or `wait-completed`.
pub const DRAIN: Label = Label::new("cluster.x-k8s.io/drain");
/// On Nodes of instances that the cloud may take back at any time.
pub const INTERRUPTIBLE: Label<Presence> = Label::new("cluster.x-k8s.io/interruptible");

/// Controllers leave the object alone; presence counts.
pub const PAUSED: Annotation<Presence> = Annotation::new("cluster.x-k8s.io/paused");
/// On a Machine: it is the first to go when the size goes down; presence counts.
pub const DELETE_MACHINE: Annotation<Presence> = Annotation::new("cluster.x-k8s.io/delete-machine");
/// On a Machine: no health check looks at it; presence counts.
pub const SKIP_REMEDIATION: Annotation<Presence> =
    Annotation::new("cluster.x-k8s.io/skip-remediation");
/// On a Machine: a health check finds it unhealthy at once; presence counts.
pub const REMEDIATE_MACHINE: Annotation<Presence> =
    Annotation::new("cluster.x-k8s.io/remediate-machine");
/// On an object made from a template: the template's name.
pub const CLONED_FROM_NAME: Annotation = Annotation::new("cluster.x-k8s.io/cloned-from-name");
/// On an object made from a template: the template's kind and group, as `Kind.group`.
pub const CLONED_FROM_GROUP_KIND: Annotation =
    Annotation::new("cluster.x-k8s.io/cloned-from-groupkind");
/// On a pool: something else owns its size, unless the value is `false`.
pub const REPLICAS_MANAGED_BY: Annotation<SizeOwner> =
    Annotation::new("cluster.x-k8s.io/replicas-managed-by");
/// On a Machine: its Node is not drained; presence counts.
pub const EXCLUDE_DRAIN: Annotation<Presence> =
    Annotation::new("machine.cluster.x-k8s.io/exclude-node-draining");
/// On a Machine: volumes of its Node are not waited for; presence counts.
pub const EXCLUDE_VOLUME_WAIT: Annotation<Presence> =
    Annotation::new("machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach");
/// Prefix of annotations on a Machine that hold its deletion before the drain.
pub const PRE_DRAIN_HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
/// Prefix of annotations on a Machine that hold its deletion before the instance is terminated.
pub const PRE_TERMINATE_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
/// On a Machine, read when its deletion starts: what that does to the size, over the policy.
pub const REPLACEMENT: Annotation<Replacement> = Annotation::new("muster.dev/replacement");
/// On a pool's Machine: the bootstrap object or Secret that its instance was launched with, as
/// [`bootstrap_reference`](crate::MachinePool::bootstrap_reference) tells it.
pub const BOOTSTRAPPED_WITH: Annotation = Annotation::new("muster.dev/bootstrapped-with");
/// On a pool: the Machines whose going `spec.replicas` follows already, by the first 16 digits of their UIDs.
pub const COUNTED_DELETIONS: Annotation = Annotation::new("muster.dev/counted-deletions");
/// On a pool: the smallest size that Cluster Autoscaler gives it.
pub const AUTOSCALER_MIN_SIZE: Annotation<u32> =
    Annotation::new("cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size");
/// On a pool: the largest size that Cluster Autoscaler gives it.
pub const AUTOSCALER_MAX_SIZE: Annotation<u32> =
    Annotation::new("cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size");
/// On a Machine: when the cloud takes its instance back, as it announced.
pub const TERMINATION_DEADLINE: Annotation<Timestamp> =
    Annotation::new("muster.dev/termination-deadline");

/// On a Node: the Cluster it belongs to.
pub const NODE_CLUSTER_NAME: Annotation = Annotation::new("cluster.x-k8s.io/cluster-name");
/// On a Node: the namespace of its Cluster.
pub const NODE_CLUSTER_NAMESPACE: Annotation =
    Annotation::new("cluster.x-k8s.io/cluster-namespace");
/// On a Node: its Machine.
pub const NODE_MACHINE: Annotation = Annotation::new("cluster.x-k8s.io/machine");
/// On a Node: kind of its Machine's owner.
pub const NODE_OWNER_KIND: Annotation = Annotation::new("cluster.x-k8s.io/owner-kind");
/// On a Node: name of its Machine's owner.
pub const NODE_OWNER_NAME: Annotation = Annotation::new("cluster.x-k8s.io/owner-name");
/// On a Node: labels that came from the Machine, so that they can be taken away again.
pub const NODE_LABELS_FROM_MACHINE: Annotation =
    Annotation::new("cluster.x-k8s.io/labels-from-machine");
/// On a Node: annotations that came from the Machine.
pub const NODE_ANNOTATIONS_FROM_MACHINE: Annotation =
    Annotation::new("cluster.x-k8s.io/annotations-from-machine");
/// On a Node: taints that came from the Machine, as `key:effect`.
pub const NODE_TAINTS_FROM_MACHINE: Annotation =
    Annotation::new("cluster.x-k8s.io/taints-from-machine");
/// On a Node: the Machine for whose drain Muster has cordoned it. A Node that somebody else cordoned does not have it, and
/// is never uncordoned by Muster.
pub const NODE_CORDONED_FOR: Annotation = Annotation::new("muster.dev/cordoned-for");
/// Taint, `PreferNoSchedule`, of Nodes that are drained soon: Pods that have the choice do not move there.
pub const DRAINS_SOON_TAINT: &str = "muster.dev/drains-soon";
/// On a Machine: when the deletion of its Node object was first tried, where the first try failed.
pub const NODE_DELETION_STARTED: Annotation<Timestamp> =
    Annotation::new("muster.dev/node-deletion-started");
/// Taint that a Node may register with until its labels are there.
pub const UNINITIALIZED_TAINT: &str = "node.cluster.x-k8s.io/uninitialized";

/// Finalizer of Clusters.
pub const CLUSTER_FINALIZER: &str = "cluster.cluster.x-k8s.io";
/// Finalizer of MachinePools.
pub const POOL_FINALIZER: &str = "machinepool.cluster.x-k8s.io";
/// Finalizer of Machines.
pub const MACHINE_FINALIZER: &str = "machine.cluster.x-k8s.io";
/// Finalizer of the InfraMachines of Muster's own providers. One that has it keeps its instance while it is being deleted,
/// until its Machine has been drained and waits for it.
pub const INFRA_MACHINE_FINALIZER: &str = "infrastructure.muster.dev/machine";

/// Type of a cluster's Secrets.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
/// Key of a cluster's Secrets that holds the kubeconfig or the bootstrap data.
pub const SECRET_VALUE: &str = "value";

/// Who owns a pool's size. Source: Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeOwner {
    /// `spec.replicas`: the value is `false`.
    Spec,
    /// Something outside.
    Outside,
}

impl Value for SizeOwner {
    const ALLOWED: &'static str = "any text";

    fn parse(text: &str) -> Option<Self> {
        Some(if text == "false" {
            Self::Spec
        } else {
            Self::Outside
        })
    }
}

impl SizeOwner {
    /// What the owner of a pool's size outside is called, if there is one.
    pub fn name(pool: &crate::MachinePool) -> Option<&str> {
        REPLICAS_MANAGED_BY
            .text(pool)
            .filter(|_| Self::of(pool) == Self::Outside)
    }

    /// Who owns the size of a pool.
    pub fn of(pool: &crate::MachinePool) -> Self {
        match REPLICAS_MANAGED_BY.read(pool) {
            Ok(Some(owner)) => owner,
            Ok(None) | Err(_) => Self::Spec,
        }
    }
}

impl Value for Replacement {
    const ALLOWED: &'static str = "Replace or Shrink";

    fn parse(text: &str) -> Option<Self> {
        match text {
            "Replace" => Some(Self::Replace),
            "Shrink" => Some(Self::Shrink),
            _ => None,
        }
    }
}

/// Name of the Secret with a cluster's kubeconfig.
pub fn kubeconfig_secret(cluster: &str) -> String {
    format!("{cluster}-kubeconfig")
}

/// The pool's name as a label value: itself where it fits, else a hash of it. Source: Cluster API.
pub fn pool_label(name: &str) -> Cow<'_, str> {
    if is_label_value(name) {
        return name.into();
    }
    let mut hash: u32 = 0x811c_9dc5;
    for byte in name.bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    format!("hash_{}_z", base64_url(&hash.to_be_bytes())).into()
}

fn is_label_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.chars().next())
        && edge(text.chars().next_back())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// URL-safe base64 without padding, of four bytes.
fn base64_url(bytes: &[u8; 4]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = u64::from(u32::from_be_bytes(*bytes)) << 4;
    (0..6)
        .rev()
        .map(|at| char::from(ALPHABET[usize::try_from(bits >> (at * 6) & 63).unwrap_or(0)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_pool_names_are_hashed_as_cluster_api_does() {
        assert_eq!(pool_label("workers"), "workers");
        assert_eq!(pool_label(&"machineSetName".repeat(12)), "hash_FR_ghQ_z");
    }
}

//! Labels, annotations, finalizers and Secrets: the names that Cluster API gives them, with their meanings.

use std::borrow::Cow;

/// Label: the Cluster that an object belongs to.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// Label: the MachinePool that a Machine or InfraMachine belongs to; the value is [`pool_label`]'s.
pub const POOL_NAME: &str = "cluster.x-k8s.io/pool-name";
/// Label: a control plane's Machines.
pub const CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
/// Label on Pods: `skip` or `wait-completed`, how a drain treats them.
pub const DRAIN: &str = "cluster.x-k8s.io/drain";
/// Label on Nodes of instances that the cloud may take back at any time.
pub const INTERRUPTIBLE: &str = "cluster.x-k8s.io/interruptible";

/// Annotation: controllers leave the object alone; presence counts.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";
/// Annotation on a Machine: it is the first to go when the size goes down; presence counts.
pub const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// Annotation on a Machine: no health check looks at it; presence counts.
pub const SKIP_REMEDIATION: &str = "cluster.x-k8s.io/skip-remediation";
/// Annotation on a pool: something else owns its size, unless the value is `false`.
pub const REPLICAS_MANAGED_BY: &str = "cluster.x-k8s.io/replicas-managed-by";
/// Annotation on a Machine: its Node is not drained; presence counts.
pub const EXCLUDE_DRAIN: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
/// Annotation on a Machine: volumes of its Node are not waited for; presence counts.
pub const EXCLUDE_VOLUME_WAIT: &str =
    "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach";
/// Prefix of annotations on a Machine that hold its deletion before the drain.
pub const PRE_DRAIN_HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
/// Prefix of annotations on a Machine that hold its deletion before the instance is terminated.
pub const PRE_TERMINATE_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
/// Annotation on a Machine, read when its deletion starts: `Replace` or `Shrink`, over the policy.
pub const REPLACEMENT: &str = "muster.dev/replacement";
/// Annotation on a Machine: when the cloud takes its instance back, as it announced.
pub const TERMINATION_DEADLINE: &str = "muster.dev/termination-deadline";

/// Annotation on a Node: the Cluster it belongs to.
pub const NODE_CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// Annotation on a Node: the namespace of its Cluster.
pub const NODE_CLUSTER_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";
/// Annotation on a Node: its Machine.
pub const NODE_MACHINE: &str = "cluster.x-k8s.io/machine";
/// Annotation on a Node: kind of its Machine's owner.
pub const NODE_OWNER_KIND: &str = "cluster.x-k8s.io/owner-kind";
/// Annotation on a Node: name of its Machine's owner.
pub const NODE_OWNER_NAME: &str = "cluster.x-k8s.io/owner-name";
/// Annotation on a Node: labels that came from the Machine, so that they can be taken away again.
pub const NODE_LABELS_FROM_MACHINE: &str = "cluster.x-k8s.io/labels-from-machine";
/// Annotation on a Node: annotations that came from the Machine.
pub const NODE_ANNOTATIONS_FROM_MACHINE: &str = "cluster.x-k8s.io/annotations-from-machine";
/// Annotation on a Node: taints that came from the Machine, as `key:effect`.
pub const NODE_TAINTS_FROM_MACHINE: &str = "cluster.x-k8s.io/taints-from-machine";
/// Taint that a Node may register with until its labels are there.
pub const UNINITIALIZED_TAINT: &str = "node.cluster.x-k8s.io/uninitialized";

/// Finalizer of Clusters.
pub const CLUSTER_FINALIZER: &str = "cluster.cluster.x-k8s.io";
/// Finalizer of MachinePools.
pub const POOL_FINALIZER: &str = "machinepool.cluster.x-k8s.io";
/// Finalizer of Machines.
pub const MACHINE_FINALIZER: &str = "machine.cluster.x-k8s.io";

/// Type of a cluster's Secrets.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
/// Key of a cluster's Secrets that holds the kubeconfig or the bootstrap data.
pub const SECRET_VALUE: &str = "value";

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

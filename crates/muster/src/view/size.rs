//! What there is to say of a pool's size: who owns it, whether it is within an autoscaler's bounds, who goes next.

use muster_api::names::{
    AUTOSCALER_MAX_SIZE, AUTOSCALER_MIN_SIZE, DELETE_MACHINE, REPLICAS_MANAGED_BY, SizeOwner,
};
use muster_api::{Machine, MachinePool};

/// What is worth knowing of a pool's size, each as the part of a sentence.
pub(super) fn notes(pool: &MachinePool) -> Vec<String> {
    let size = pool.desired_replicas();
    let mut notes = Vec::new();
    if let Some(owner) = SizeOwner::name(pool) {
        notes.push(format!(
            "the size belongs to {owner:?} ({REPLICAS_MANAGED_BY}) and follows the cloud's group"
        ));
    }
    let (min, max) = (
        AUTOSCALER_MIN_SIZE.read(pool),
        AUTOSCALER_MAX_SIZE.read(pool),
    );
    for invalid in [min.as_ref().err(), max.as_ref().err()]
        .into_iter()
        .flatten()
    {
        notes.push(format!("{invalid}; Cluster Autoscaler fails on it"));
    }
    match (min.ok().flatten(), max.ok().flatten()) {
        (Some(min), Some(max)) if min > max => notes.push(format!(
            "the autoscaler's bounds are from {min} to {max}, so it leaves the pool alone"
        )),
        (Some(min), _) if size < min => notes.push(format!(
            "the size {size} is below the autoscaler's minimum of {min}; Muster does not change it"
        )),
        (_, Some(max)) if size > max => notes.push(format!(
            "the size {size} is above the autoscaler's maximum of {max}; Muster does not change it"
        )),
        _ => {}
    }
    notes
}

/// That a Machine is marked to go, though nothing asks for it yet.
pub(super) fn mark(machine: &Machine) -> Option<String> {
    DELETE_MACHINE
        .is_on(machine)
        .then(|| format!("marked with {DELETE_MACHINE}: the first to go when the size goes down"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::ResourceExt;

    fn pool(size: i32, annotations: &[(&str, &str)]) -> MachinePool {
        let mut pool = MachinePool::new("workers", Default::default());
        pool.spec.replicas = Some(size);
        for (key, value) in annotations {
            pool.annotations_mut()
                .insert((*key).into(), (*value).into());
        }
        pool
    }

    #[test]
    fn a_size_outside_of_the_autoscalers_bounds_is_said_and_one_inside_is_not() {
        let (min, max) = (AUTOSCALER_MIN_SIZE.key(), AUTOSCALER_MAX_SIZE.key());
        let of = |size| notes(&pool(size, &[(min, "2"), (max, "4")])).join("; ");
        insta::assert_snapshot!(of(1), @"the size 1 is below the autoscaler's minimum of 2; Muster does not change it");
        insta::assert_snapshot!(of(5), @"the size 5 is above the autoscaler's maximum of 4; Muster does not change it");
        assert_eq!((of(2), of(4)), (String::new(), String::new()));
        insta::assert_snapshot!(notes(&pool(3, &[(min, "5"), (max, "4")])).join("; "), @"the autoscaler's bounds are from 5 to 4, so it leaves the pool alone");
        insta::assert_snapshot!(notes(&pool(3, &[(min, "many")])).join("; "), @r#"workers: annotation cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size is "many", but must be a number from 0 on; Cluster Autoscaler fails on it"#);
    }

    #[test]
    fn who_owns_the_size_is_said_unless_it_is_the_spec() {
        let key = REPLICAS_MANAGED_BY.key();
        insta::assert_snapshot!(notes(&pool(3, &[(key, "somebody")])).join("; "), @r#"the size belongs to "somebody" (cluster.x-k8s.io/replicas-managed-by) and follows the cloud's group"#);
        assert!(notes(&pool(3, &[(key, "false")])).is_empty());
    }
}

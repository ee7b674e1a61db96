//! What a pool's policy and its Cluster say of rollouts.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use muster_api::policy::{MachinePoolPolicySpec, RolloutType, ZoneBalance};
use muster_api::{Cluster, MachinePool};
use muster_plan::allowance;
use muster_plan::rollout::{Limits, Strategy, is_newer};
use muster_plan::share::{InvalidShare, Share};

/// What a policy says of rollouts of a pool of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Who replaces outdated machines, and within which limits.
    pub strategy: Strategy,
    /// How many machines may be down by repair and rollout together.
    pub disruption: u32,
    /// Whether the balance of zones counts.
    pub balanced: bool,
}

/// A field of a policy whose value is not one that is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.{field} of the MachinePoolPolicy: {source}")]
pub struct InvalidField {
    field: &'static str,
    source: InvalidShare,
}

/// What a policy says of rollouts of a pool of that size; without one, machines are replaced when they are deleted.
///
/// # Errors
/// When a field says what it cannot.
pub fn rules(policy: Option<&MachinePoolPolicySpec>, size: u32) -> Result<Rules, InvalidField> {
    let rollout = policy.and_then(|policy| policy.rollout.as_ref());
    let disruption = policy.and_then(|policy| policy.disruption.as_ref());
    let surge = share(
        "rollout.maxSurge",
        rollout.and_then(|r| r.max_surge.as_ref()),
    )?;
    let unavailable = share(
        "rollout.maxUnavailable",
        rollout.and_then(|r| r.max_unavailable.as_ref()),
    )?;
    let disruption = share(
        "disruption.maxUnavailable",
        disruption.and_then(|d| d.max_unavailable.as_ref()),
    )?;
    let strategy = match rollout.map(|rollout| rollout.type_) {
        Some(RolloutType::RollingUpdate) => {
            Strategy::Rolling(Limits::resolve(surge, unavailable, size))
        }
        Some(RolloutType::OnDelete) | None => Strategy::OnDelete,
    };
    let balance = policy.and_then(|policy| policy.scale_down);
    Ok(Rules {
        strategy,
        disruption: allowance::limit(disruption, unavailable, size),
        balanced: balance.unwrap_or_default().zone_balance != ZoneBalance::Ignored,
    })
}

fn share(field: &'static str, given: Option<&IntOrString>) -> Result<Option<Share>, InvalidField> {
    let parsed = match given {
        None => return Ok(None),
        Some(IntOrString::Int(number)) => Share::number(*number),
        Some(IntOrString::String(text)) => Share::parse(text),
    };
    parsed
        .map(Some)
        .map_err(|source| InvalidField { field, source })
}

/// Why a pool's version is refused: its kubelets would be newer than the control plane, as far as that is known.
pub fn too_new(pool: &MachinePool, cluster: &Cluster) -> Option<String> {
    let wanted = pool.spec.template.spec.version.as_deref()?;
    let control_plane = cluster.status.as_ref()?.control_plane.as_ref()?;
    let oldest = control_plane
        .versions
        .iter()
        .find(|has| is_newer(wanted, &has.version))?;
    Some(format!(
        "spec.template.spec.version of MachinePool {} is {wanted}, newer than {} of the control plane of Cluster {}; upgrade the control plane first, or let the version be that at most",
        pool.name_any(),
        oldest.version,
        cluster.name_any()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_api::policy::{DisruptionPolicy, RolloutPolicy};

    fn policy(rollout: RolloutPolicy, disruption: Option<IntOrString>) -> MachinePoolPolicySpec {
        MachinePoolPolicySpec {
            rollout: Some(rollout),
            disruption: Some(DisruptionPolicy {
                max_unavailable: disruption,
            }),
            ..MachinePoolPolicySpec::default()
        }
    }

    #[test]
    fn a_policy_is_read_with_its_defaults_and_a_wrong_field_is_named() {
        assert_eq!(rules(None, 10).unwrap().strategy, Strategy::OnDelete);
        let rolling = RolloutPolicy {
            type_: RolloutType::RollingUpdate,
            ..RolloutPolicy::default()
        };
        let read = rules(Some(&policy(rolling.clone(), None)), 10).unwrap();
        let limits = Limits {
            max_surge: 1,
            max_unavailable: 0,
        };
        assert_eq!(read.strategy, Strategy::Rolling(limits));
        let text = |text: &str| Some(IntOrString::String(text.to_owned()));
        let read = rules(Some(&policy(rolling.clone(), text("20%"))), 10).unwrap();
        assert_eq!(read.disruption, 2);
        let wrong = RolloutPolicy {
            max_surge: text("many"),
            ..rolling
        };
        let error = rules(Some(&policy(wrong, None)), 10).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.rollout.maxSurge of the MachinePoolPolicy: \"many\" is neither a number from 0 on nor a percentage such as 10%"
        );
    }
}

//! A kubelet is never newer than its control plane. Source: Kubernetes' version skew policy.

/// Whether a kubelet of version `kubelet` would be newer than a control plane of version `control_plane`. A part that one of
/// the two does not give is not compared; a text that is no version is not newer.
pub fn is_newer(kubelet: &str, control_plane: &str) -> bool {
    let (kubelet, control_plane) = (numbers(kubelet), numbers(control_plane));
    for (new, old) in kubelet.iter().zip(&control_plane) {
        if new != old {
            return new > old;
        }
    }
    false
}

/// Major, minor and patch, as far as they are given.
fn numbers(version: &str) -> Vec<u64> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let parts = core.split('.').map(|part| part.parse().ok());
    parts.map_while(|part| part).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_is_told_part_by_part_and_only_where_both_say_it() {
        for (kubelet, control_plane, newer) in [
            ("v1.38.0", "v1.37.2", true),
            ("v1.37.3", "v1.37.2", true),
            ("v1.37.2", "v1.37.2", false),
            ("v1.9.0", "v1.10.0", false),
            ("v1.37.3", "v1.37", false),
            ("v1.37.2+build", "v1.37.2-eks-1", false),
            ("v2.0.0", "v1.99.9", true),
            ("latest", "v1.37.2", false),
        ] {
            assert_eq!(
                is_newer(kubelet, control_plane),
                newer,
                "{kubelet} {control_plane}"
            );
        }
    }
}

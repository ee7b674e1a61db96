//! How many machines more or fewer there may be meanwhile.

use crate::share::Share;

/// How many machines more and fewer than its size a pool may have during a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// More.
    pub max_surge: u32,
    /// Fewer that are available.
    pub max_unavailable: u32,
}

impl Limits {
    /// The limits of a pool of that size, as a MachineDeployment reckons them: surge is rounded up, what may be missing is
    /// rounded down, and where nothing is left of both, one machine may be missing. Source: Cluster API.
    pub fn resolve(surge: Option<Share>, unavailable: Option<Share>, size: u32) -> Self {
        let max_surge = surge.unwrap_or(Share::Number(1)).rounded_up(size);
        let max_unavailable = unavailable.unwrap_or(Share::Number(0)).rounded_down(size);
        Self {
            max_surge,
            max_unavailable: if max_surge == 0 {
                max_unavailable.max(1)
            } else {
                max_unavailable
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(surge: Option<&str>, unavailable: Option<&str>, size: u32) -> (u32, u32) {
        let parse = |text: Option<&str>| text.map(|text| Share::parse(text).unwrap());
        let limits = Limits::resolve(parse(surge), parse(unavailable), size);
        (limits.max_surge, limits.max_unavailable)
    }

    #[test]
    fn limits_are_reckoned_as_a_machine_deployment_does() {
        let cases = [
            ((None, None, 10), (1, 0)),
            ((Some("25%"), Some("25%"), 10), (3, 2)),
            ((Some("10%"), Some("10%"), 300), (30, 30)),
            ((Some("0"), Some("10%"), 5), (0, 1)),
            ((Some("0%"), Some("0"), 5), (0, 1)),
            ((Some("150%"), Some("0"), 4), (6, 0)),
            ((Some("2"), Some("3"), 1), (2, 3)),
            ((Some("10%"), Some("0"), 0), (0, 1)),
        ];
        for ((surge, unavailable, size), expected) in cases {
            let found = resolved(surge, unavailable, size);
            assert_eq!(found, expected, "{surge:?} {unavailable:?} of {size}");
        }
    }
}

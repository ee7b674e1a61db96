//! Whether so many Machines are unhealthy that it cannot be the Machines: then nothing is repaired.

use super::roster::Roster;
use crate::share::Share;

/// When a check has Machines repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// When at most so many are unhealthy. A percentage is rounded down, but at least one Machine, so that small pools are
    /// repaired too.
    AtMost(Share),
    /// When their number is within this range.
    Within(u32, u32),
}

impl Default for Trigger {
    fn default() -> Self {
        Self::AtMost(Share::Percent(100))
    }
}

/// A range that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range such as [3-5]")]
pub struct InvalidRange(String);

impl Trigger {
    /// From a range as it is written: `[3-5]`.
    ///
    /// # Errors
    /// When it is none.
    pub fn range(text: &str) -> Result<Self, InvalidRange> {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        inner
            .and_then(|inner| inner.split_once('-'))
            .and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)))
            .filter(|(from, to): &(u32, u32)| from <= to)
            .map(|(from, to)| Self::Within(from, to))
            .ok_or_else(|| InvalidRange(text.to_owned()))
    }

    /// Decides for the targets of a check.
    pub fn decide_for(self, targets: &Roster) -> Decision {
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let unhealthy = targets.len() - targets.healthy();
        self.decide(small(targets.len()), small(unhealthy))
    }

    /// Decides for so many targets of which so many are not healthy.
    pub fn decide(self, targets: u32, unhealthy: u32) -> Decision {
        let (allowed, most) = match self {
            Self::AtMost(share) => {
                let most = share.at_least_one(targets);
                (unhealthy <= most, most)
            }
            Self::Within(from, to) => ((from..=to).contains(&unhealthy), to),
        };
        Decision {
            allowed,
            remaining: if allowed { most - unhealthy } else { 0 },
        }
    }
}

impl std::fmt::Display for Trigger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(share) => write!(f, "unhealthyLessThanOrEqualTo: {share}"),
            Self::Within(from, to) => write!(f, "unhealthyInRange: [{from}-{to}]"),
        }
    }
}

/// Whether Machines may be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// They may.
    pub allowed: bool,
    /// How many more may turn unhealthy before they may not.
    pub remaining: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(trigger: Trigger, targets: u32, unhealthy: u32) -> (bool, u32) {
        let decision = trigger.decide(targets, unhealthy);
        (decision.allowed, decision.remaining)
    }

    #[test]
    fn a_percentage_is_rounded_down_and_no_small_pool_is_without_repair() {
        let forty = Trigger::AtMost(Share::Percent(40));
        assert_eq!(decide(forty, 10, 4), (true, 0));
        assert_eq!(decide(forty, 10, 5), (false, 0));
        assert_eq!(decide(forty, 9, 3), (true, 0));
        assert_eq!(decide(forty, 9, 4), (false, 0));
        assert_eq!(decide(forty, 2, 1), (true, 0));
        assert_eq!(decide(forty, 2, 2), (false, 0));
        assert_eq!(decide(Trigger::default(), 3, 1), (true, 2));
        let none = Trigger::AtMost(Share::Number(0));
        assert_eq!(decide(none, 10, 0), (true, 0));
        assert_eq!(decide(none, 10, 1), (false, 0));
    }

    #[test]
    fn a_range_holds_from_its_begin_to_its_end() {
        let range = Trigger::range("[3-5]").unwrap();
        assert_eq!(decide(range, 10, 2), (false, 0));
        assert_eq!(decide(range, 10, 3), (true, 2));
        assert_eq!(decide(range, 10, 5), (true, 0));
        assert_eq!(decide(range, 10, 6), (false, 0));
        for text in ["3-5", "[5-3]", "[3]", "[-5]", "[a-b]", ""] {
            assert!(Trigger::range(text).is_err(), "{text}");
        }
    }
}

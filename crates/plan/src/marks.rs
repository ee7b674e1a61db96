//! How long a scale-down waits for the marks that say which machines go.
//!
//! An autoscaler marks the Machines that it means and lowers the size after that. Whoever lowers first and marks a moment
//! later means the same, but a deletion cannot be taken back: so, in a pool that an autoscaler has a say in, machines that
//! nobody marked are left alone for a moment after the size went down.

use jiff::{SignedDuration, Timestamp};

/// The moment: longer than any client takes from one write to the next, and much shorter than a drain.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(3);

/// A size that asks for machines to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// How many are wanted.
    pub desired: u32,
    /// Since when that is known.
    pub since: Timestamp,
}

impl Lowered {
    /// What is known after another look: the time starts anew when the size goes down further.
    pub fn seen(before: Option<Self>, desired: u32, now: Timestamp) -> Self {
        match before {
            Some(before) if before.desired <= desired => Self { desired, ..before },
            _ => Self {
                desired,
                since: now,
            },
        }
    }

    /// How long unmarked machines are still left alone.
    pub fn patience_left(self, now: Timestamp) -> Option<SignedDuration> {
        let left = PATIENCE.saturating_sub(now.duration_since(self.since));
        left.is_positive().then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn patience_begins_anew_when_the_size_goes_down_further_and_not_otherwise() {
        let first = Lowered::seen(None, 4, at(10));
        assert_eq!(
            first.patience_left(at(11)),
            Some(SignedDuration::from_secs(2))
        );
        let same = Lowered::seen(Some(first), 4, at(12));
        assert_eq!(same, first);
        let raised = Lowered::seen(Some(first), 5, at(12));
        assert_eq!(raised.since, at(10));
        let further = Lowered::seen(Some(first), 3, at(12));
        assert_eq!(further.since, at(12));
        assert_eq!(first.patience_left(at(13)), None);
    }
}

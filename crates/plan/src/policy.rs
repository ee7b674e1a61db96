//! Which of a pool's policies counts, and what the others are told.

use jiff::Timestamp;

/// A policy, as far as its standing is concerned; the first in order counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Its name, which decides between two of one second.
    pub name: String,
}

/// What becomes of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It counts.
    Accepted,
    /// Another one came first, and that one counts.
    Conflicting {
        /// Its name.
        first: String,
    },
    /// There is no pool of that name, yet.
    NoSuchPool,
}

/// What becomes of a policy among all that name the same pool.
pub fn verdict(own: &Standing, all: &[Standing], pool_exists: bool) -> Verdict {
    match all.iter().min() {
        // Said first: it is wrong whether the pool is there or not.
        Some(first) if first < own => Verdict::Conflicting {
            first: first.name.clone(),
        },
        _ if !pool_exists => Verdict::NoSuchPool,
        _ => Verdict::Accepted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(second: i64, name: &str) -> Standing {
        Standing {
            created: Some(Timestamp::from_second(second).unwrap()),
            name: name.to_owned(),
        }
    }

    #[test]
    fn the_oldest_counts_and_the_others_are_told_its_name() {
        let all = [of(2, "b"), of(1, "z"), of(2, "a")];
        let told = |own: &Standing| verdict(own, &all, true);
        assert_eq!(told(&all[1]), Verdict::Accepted);
        for other in [&all[0], &all[2]] {
            let first = "z".to_owned();
            assert_eq!(told(other), Verdict::Conflicting { first });
        }
        // Two of one second: the name decides, the same whoever asks.
        assert_eq!(
            verdict(&all[2], &[of(2, "b"), of(2, "a")], true),
            Verdict::Accepted
        );
    }

    #[test]
    fn a_policy_may_come_before_its_pool_and_waits_for_it() {
        assert_eq!(
            verdict(&of(1, "a"), &[of(1, "a")], false),
            Verdict::NoSuchPool
        );
    }
}

//! Which sick machines of a pool are repaired now: the most sick first, within the budget that is shared with rollouts.

use jiff::Timestamp;

use crate::allowance::{Census, Standing};

/// A machine whose repair is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sick {
    /// Its name.
    pub name: String,
    /// Somebody asked for it by hand.
    pub asked: bool,
    /// It is no Node: nothing runs on it.
    pub no_node: bool,
    /// Since when fault has been found with it.
    pub since: Timestamp,
}

/// What is done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Machines whose repair begins, in order.
    pub begin: Vec<String>,
    /// Machines that wait, in order.
    pub wait: Vec<String>,
    /// How many machines are on their way: going, or to come.
    pub under_way: u32,
    /// How many may be down at once.
    pub limit: u32,
}

/// Decides for a pool that stands so, in which `limit` machines may be down. Those that somebody asked for go first, then
/// those that are no Node, then the longest sick; names decide between equals.
pub fn decide(mut sick: Vec<Sick>, census: Census, limit: u32) -> Decision {
    sick.sort_by(|a, b| {
        (!a.asked, !a.no_node, a.since, &a.name).cmp(&(!b.asked, !b.no_node, b.since, &b.name))
    });
    let under_way = census.under_way();
    let may = usize::try_from(census.allows(limit).repairs).unwrap_or(usize::MAX);
    let mut names = sick.into_iter().map(|machine| machine.name);
    Decision {
        begin: names.by_ref().take(may).collect(),
        wait: names.collect(),
        under_way,
        limit,
    }
}

/// The census after the repairs of a decision have begun.
pub fn after(mut census: Census, decision: &Decision) -> Census {
    for _ in &decision.begin {
        census.begin(Standing::Sick);
    }
    census
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sick(name: &str, asked: bool, no_node: bool, since: i64) -> Sick {
        Sick {
            name: name.to_owned(),
            asked,
            no_node,
            since: Timestamp::from_second(since).unwrap(),
        }
    }

    #[test]
    fn the_most_sick_go_first_and_no_more_than_may_be_down() {
        let all = vec![
            sick("late", false, false, 50),
            sick("old", false, false, 10),
            sick("never", false, true, 90),
            sick("asked", true, false, 99),
        ];
        let census = Census {
            desired: 10,
            up: 6,
            sick: 4,
            ..Census::default()
        };
        let decision = decide(all.clone(), census, 2);
        assert_eq!(decision.begin, ["asked", "never"]);
        assert_eq!(decision.wait, ["old", "late"]);
        let next = after(census, &decision);
        assert_eq!((next.leaving, next.sick), (2, 2));
        assert!(decide(all, next, 2).begin.is_empty(), "both are under way");
    }

    proptest::proptest! {
        /// However a pool stands: never more repairs under way than the limit, and never none for ever.
        #[test]
        fn repairs_are_paced_and_go_on(up in 0_u32..20, ill in 0_u32..20, limit in 0_u32..6) {
            let mut census = Census { desired: up + ill, up, sick: ill, ..Census::default() };
            let mut left: Vec<Sick> = (0..ill).map(|n| sick(&format!("m{n:02}"), false, false, i64::from(n))).collect();
            let mut rounds = 0;
            while census.sick > 0 && limit > 0 {
                let decision = decide(left.clone(), census, limit);
                census = after(census, &decision);
                proptest::prop_assert!(census.leaving <= limit);
                proptest::prop_assert!(!decision.begin.is_empty());
                left.retain(|machine| !decision.begin.contains(&machine.name));
                // Those that went come up again.
                census.up += census.leaving;
                census.leaving = 0;
                rounds += 1;
            }
            proptest::prop_assert!(limit == 0 || rounds == ill.div_ceil(limit));
        }
    }
}

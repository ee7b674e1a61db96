//! Which machines of a pool go when its size goes down.
//!
//! The order is a type: [`Because`] derives its `Ord`, and the first variant goes first. Within one reason the balance of
//! zones and then the policy's order decide, and at last the name, so that equal input gives an equal answer.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// Which of otherwise equal machines go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Those whose going disturbs least.
    #[default]
    LeastDisruption,
    /// The youngest.
    Newest,
    /// The oldest.
    Oldest,
    /// By chance, the same for the same machines.
    Random,
}

/// How much the balance of zones counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Zones are never left more than one apart while there is a choice, whatever else speaks for a machine but that it
    /// is leaving or was asked for.
    Required,
    /// Balance comes before the order among machines that are equal otherwise.
    #[default]
    Preferred,
    /// Zones do not count.
    Ignored,
}

/// What is decided about.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// How many machines are wanted.
    pub desired: u32,
    /// Which of otherwise equal machines go first.
    pub order: Order,
    /// How much the balance of zones counts.
    pub balance: Balance,
}

/// What is known of a machine.
#[derive(Clone, Debug)]
pub struct Member {
    /// Name, unique in the pool.
    pub name: String,
    /// When it was created.
    pub created: Timestamp,
    /// The zone it is in, once known.
    pub zone: Option<String>,
    /// Its deletion was asked for already.
    pub leaving: bool,
    /// It carries the `delete-machine` annotation.
    pub marked: bool,
    /// It is, or was, a Node.
    pub has_node: bool,
    /// It failed for good.
    pub failed: bool,
    /// A health check finds fault with it.
    pub unhealthy: bool,
    /// It is ready.
    pub ready: bool,
    /// It is what the pool's template asks for.
    pub up_to_date: bool,
    /// A hook or `skip-remediation` asks that it be left alone.
    pub held: bool,
    /// What its going would disturb.
    pub disruption: Disruption,
}

/// What a machine's going would disturb; less goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Disruption {
    /// A budget has no room for one of its Pods now.
    pub blocked: bool,
    /// How many Pods would be evicted.
    pub pods: u32,
    /// The highest priority among them.
    pub priority: i32,
}

/// Why a machine goes; first goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Because {
    /// It is going already.
    AlreadyLeaving,
    /// It was marked for this with the `delete-machine` annotation.
    Marked,
    /// It never became a Node, or failed.
    NoNode,
    /// A health check finds fault with it.
    Unhealthy,
    /// It is not ready.
    NotReady,
    /// It is not what the template asks for.
    OutOfDate,
    /// Its zone has more than the others.
    ZoneSurplus,
    /// The order of the policy.
    Order,
}

impl Because {
    /// The reason as a sentence's end: "was chosen because it …".
    pub fn told(self) -> &'static str {
        match self {
            Self::AlreadyLeaving => "is being deleted already",
            Self::Marked => "carries the delete-machine annotation",
            Self::NoNode => "has no Node",
            Self::Unhealthy => "is unhealthy",
            Self::NotReady => "is not ready",
            Self::OutOfDate => "is out of date",
            Self::ZoneSurplus => "is in the zone with the most machines",
            Self::Order => "is first in the policy's order",
        }
    }
}

/// A choice: every machine is either a victim or kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Those that go, in order, with the rule that chose each.
    pub victims: Vec<(String, Because)>,
    /// Those that stay.
    pub kept: Vec<String>,
}

impl Choice {
    /// The victims that are not going yet.
    pub fn new_victims(&self) -> impl Iterator<Item = (&str, Because)> {
        self.victims
            .iter()
            .filter(|(_, because)| *because != Because::AlreadyLeaving)
            .map(|(name, because)| (name.as_str(), *because))
    }
}

/// Chooses who goes so that `desired` remain. Machines that are going already always count as victims, so that a drain
/// under way never makes another machine go.
pub fn scale_down(pool: &Pool, members: &[Member]) -> Choice {
    let excess = members
        .len()
        .saturating_sub(usize::try_from(pool.desired).unwrap_or(usize::MAX));
    let mut choice = Choice::default();
    let mut rest: Vec<&Member> = Vec::new();
    for member in members {
        if member.leaving {
            choice
                .victims
                .push((member.name.clone(), Because::AlreadyLeaving));
        } else {
            rest.push(member);
        }
    }
    choice.victims.sort();
    // How many stay in each zone; a victim takes one away.
    let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
    for member in &rest {
        *zones.entry(zone_of(member)).or_default() += 1;
    }
    // One sort by all that does not depend on earlier victims; zones are then taken from the fullest.
    rest.sort_by(|a, b| standing(pool, a).cmp(&standing(pool, b)));
    let mut queues: BTreeMap<(Group, &str), std::collections::VecDeque<&Member>> = BTreeMap::new();
    for member in &rest {
        queues
            .entry((group(pool, member), zone_of(member)))
            .or_default()
            .push_back(member);
    }
    while choice.victims.len() < excess {
        let next = queues
            .iter()
            .filter_map(|((group, zone), queue)| {
                let head = queue.front()?;
                let fullest = std::cmp::Reverse(zones.get(zone).copied().unwrap_or(0));
                let weight = match pool.balance {
                    Balance::Ignored => std::cmp::Reverse(0),
                    Balance::Required | Balance::Preferred => fullest,
                };
                Some(((*group, weight, standing(pool, head)), (*group, *zone)))
            })
            .min();
        let Some((_, place)) = next else {
            break;
        };
        let Some(victim) = queues
            .get_mut(&place)
            .and_then(std::collections::VecDeque::pop_front)
        else {
            break;
        };
        let (most, least) = spread(&zones);
        let surplus = pool.balance != Balance::Ignored
            && most > least
            && zones.get(place.1).copied().unwrap_or(0) == most;
        let because = match reason(victim) {
            Because::Order if surplus => Because::ZoneSurplus,
            because => because,
        };
        if let Some(count) = zones.get_mut(place.1) {
            *count -= 1;
        }
        choice.victims.push((victim.name.clone(), because));
    }
    let mut kept: Vec<String> = queues
        .into_values()
        .flatten()
        .map(|member| member.name.clone())
        .collect();
    kept.sort();
    choice.kept = kept;
    choice
}

fn zone_of(member: &Member) -> &str {
    member.zone.as_deref().unwrap_or_default()
}

fn spread(zones: &BTreeMap<&str, usize>) -> (usize, usize) {
    let most = zones.values().copied().max().unwrap_or(0);
    let least = zones.values().copied().min().unwrap_or(0);
    (most, least)
}

/// Why a machine would go, apart from zones.
fn reason(member: &Member) -> Because {
    if member.leaving {
        Because::AlreadyLeaving
    } else if member.marked {
        Because::Marked
    } else if !member.has_node || member.failed {
        Because::NoNode
    } else if member.unhealthy {
        Because::Unhealthy
    } else if !member.ready {
        Because::NotReady
    } else if !member.up_to_date {
        Because::OutOfDate
    } else {
        Because::Order
    }
}

/// What is decided before zones are looked at: whether something asks to leave it alone, and the reason to go. Where
/// balance is required, only being marked comes before it.
type Group = (bool, Because);

fn group(pool: &Pool, member: &Member) -> Group {
    let because = reason(member);
    let because = match (pool.balance, because) {
        (Balance::Required, because) if because > Because::Marked => Because::Order,
        (_, because) => because,
    };
    (member.held && !member.marked, because)
}

/// Everything but zones: what is decided before them, the reason, the policy's order, the name.
fn standing<'a>(
    pool: &Pool,
    member: &'a Member,
) -> (Group, Because, Disruption, i64, u64, &'a str) {
    let second = member.created.as_second();
    let (disruption, age, chance) = match pool.order {
        Order::LeastDisruption => (member.disruption, -second, 0),
        Order::Newest => (Disruption::default(), -second, 0),
        Order::Oldest => (Disruption::default(), second, 0),
        Order::Random => (Disruption::default(), 0, hash(&member.name)),
    };
    (
        group(pool, member),
        reason(member),
        disruption,
        age,
        chance,
        &member.name,
    )
}

/// FNV-1a: the same on every machine and in every version.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn member(name: &str, zone: &str) -> Member {
        Member {
            name: name.to_owned(),
            created: Timestamp::UNIX_EPOCH,
            zone: Some(zone.to_owned()),
            leaving: false,
            marked: false,
            has_node: true,
            failed: false,
            unhealthy: false,
            ready: true,
            up_to_date: true,
            held: false,
            disruption: Disruption::default(),
        }
    }

    fn told(choice: &Choice) -> Vec<String> {
        choice
            .victims
            .iter()
            .map(|(name, because)| format!("{name} {because:?}"))
            .collect()
    }

    fn down_to(desired: u32) -> Pool {
        Pool {
            desired,
            ..Pool::default()
        }
    }

    #[test]
    fn who_goes_first_is_decided_by_the_first_reason_that_speaks_for_it() {
        let mut members = vec![
            member("ok", "a"),
            Member {
                up_to_date: false,
                ..member("old", "a")
            },
            Member {
                ready: false,
                ..member("unready", "a")
            },
            Member {
                unhealthy: true,
                ..member("sick", "a")
            },
            Member {
                has_node: false,
                ..member("lost", "a")
            },
            Member {
                marked: true,
                ..member("marked", "a")
            },
            Member {
                leaving: true,
                ..member("leaving", "a")
            },
        ];
        let expected = [
            "leaving AlreadyLeaving",
            "marked Marked",
            "lost NoNode",
            "sick Unhealthy",
            "unready NotReady",
            "old OutOfDate",
            "ok Order",
        ];
        assert_eq!(told(&scale_down(&down_to(0), &members)), expected);
        members.reverse();
        assert_eq!(told(&scale_down(&down_to(0), &members)), expected);
    }

    #[test]
    fn one_too_many_goes_from_the_fullest_zone() {
        let members: Vec<_> = [
            ("a1", "a"),
            ("a2", "a"),
            ("a3", "a"),
            ("b1", "b"),
            ("b2", "b"),
            ("c1", "c"),
            ("c2", "c"),
        ]
        .map(|(name, zone)| member(name, zone))
        .into();
        assert_eq!(told(&scale_down(&down_to(6), &members)), ["a1 ZoneSurplus"]);
        let three = scale_down(&down_to(3), &members);
        assert_eq!(three.kept, ["a3", "b2", "c2"]);
    }

    #[test]
    fn a_machine_that_is_leaving_makes_no_other_one_go() {
        let members = [
            Member {
                leaving: true,
                ..member("a", "a")
            },
            member("b", "a"),
            member("c", "a"),
        ];
        let choice = scale_down(&down_to(2), &members);
        assert_eq!(choice.new_victims().count(), 0);
        // Nor does it come back when the size goes up meanwhile.
        assert_eq!(
            told(&scale_down(&down_to(5), &members)),
            ["a AlreadyLeaving"]
        );
    }

    #[test]
    fn held_machines_are_no_preferred_victims_unless_asked_for() {
        let members = [
            Member {
                held: true,
                ready: false,
                ..member("a", "a")
            },
            member("b", "a"),
        ];
        assert_eq!(told(&scale_down(&down_to(1), &members)), ["b Order"]);
        let members = [
            Member {
                held: true,
                marked: true,
                ..member("a", "a")
            },
            member("b", "a"),
        ];
        assert_eq!(told(&scale_down(&down_to(1), &members)), ["a Marked"]);
    }

    fn members() -> impl Strategy<Value = Vec<Member>> {
        let one = (0..4_usize, any::<[bool; 7]>(), 0..50_i64, 0..5_u32);
        prop::collection::vec(one, 0..24).prop_map(|list| {
            list.into_iter()
                .enumerate()
                .map(|(index, (zone, flags, age, pods))| Member {
                    created: Timestamp::from_second(age).unwrap(),
                    leaving: flags[0] && flags[1],
                    marked: flags[1] && flags[2],
                    has_node: flags[2] || flags[3],
                    failed: flags[0] && flags[3],
                    unhealthy: flags[4] && flags[0],
                    ready: flags[5],
                    up_to_date: flags[6],
                    held: flags[3] && flags[4],
                    disruption: Disruption {
                        pods,
                        ..Disruption::default()
                    },
                    ..member(&format!("m{index:02}"), ["a", "b", "c", "d"][zone])
                })
                .collect()
        })
    }

    fn policy() -> impl Strategy<Value = (Order, Balance)> {
        (
            prop::sample::select(vec![
                Order::LeastDisruption,
                Order::Newest,
                Order::Oldest,
                Order::Random,
            ]),
            prop::sample::select(vec![
                Balance::Required,
                Balance::Preferred,
                Balance::Ignored,
            ]),
        )
    }

    proptest! {
        #[test]
        fn victims_and_kept_partition_the_pool_and_are_never_too_many(members in members(), desired in 0..24_u32, (order, balance) in policy()) {
            let choice = scale_down(&Pool { desired, order, balance }, &members);
            let mut all: Vec<String> = choice.victims.iter().map(|(n, _)| n.clone()).chain(choice.kept.clone()).collect();
            all.sort();
            let mut names: Vec<String> = members.iter().map(|m| m.name.clone()).collect();
            names.sort();
            prop_assert_eq!(all, names);
            let leaving = members.iter().filter(|m| m.leaving).count();
            let excess = members.len().saturating_sub(desired as usize);
            prop_assert_eq!(choice.victims.len(), excess.max(leaving));
        }

        #[test]
        fn the_order_of_the_input_does_not_matter(members in members(), desired in 0..24_u32, (order, balance) in policy()) {
            let pool = Pool { desired, order, balance };
            let mut reversed = members.clone();
            reversed.reverse();
            prop_assert_eq!(scale_down(&pool, &members), scale_down(&pool, &reversed));
        }

        #[test]
        fn asking_for_one_fewer_never_changes_the_first_victims(members in members(), desired in 1..24_u32, (order, balance) in policy()) {
            let few = scale_down(&Pool { desired, order, balance }, &members);
            let more = scale_down(&Pool { desired: desired - 1, order, balance }, &members);
            prop_assert_eq!(&more.victims[..few.victims.len()], &few.victims[..]);
        }

        #[test]
        fn required_balance_is_kept_while_there_is_a_choice(zones in prop::collection::vec(0..3_usize, 0..24), desired in 0..24_u32, ready in prop::collection::vec(any::<bool>(), 24)) {
            let members: Vec<Member> = zones.iter().enumerate()
                .map(|(i, z)| Member { ready: ready[i], ..member(&format!("m{i:02}"), ["a", "b", "c"][*z]) })
                .collect();
            let count = |names: &[String]| {
                let mut counts: BTreeMap<String, usize> = members.iter().map(|m| (m.zone.clone().unwrap(), 0)).collect();
                for m in members.iter().filter(|m| names.contains(&m.name)) {
                    *counts.get_mut(m.zone.as_ref().unwrap()).unwrap() += 1;
                }
                (counts.values().max().copied().unwrap_or(0), counts.values().min().copied().unwrap_or(0))
            };
            let all: Vec<String> = members.iter().map(|m| m.name.clone()).collect();
            let choice = scale_down(&Pool { desired, balance: Balance::Required, ..Pool::default() }, &members);
            let (before_most, before_least) = count(&all);
            let (most, least) = count(&choice.kept);
            prop_assert!(most - least <= 1 || least == before_least && most <= before_most);
        }
    }
}

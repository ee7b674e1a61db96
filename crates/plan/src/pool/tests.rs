use std::cell::Cell;

use proptest::prelude::*;

use super::*;

std::thread_local! {
    /// How often two machines were compared on this thread.
    pub(super) static COMPARISONS: Cell<u64> = const { Cell::new(0) };
}

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
        zone_bound: false,
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

#[test]
fn least_disruption_is_what_can_go_now_then_fewest_pods_then_lowest_priority_then_youngest() {
    let with = |name: &str, strands, blocked, pods, priority| Member {
        disruption: Disruption {
            strands,
            blocked,
            pods,
            priority,
        },
        ..member(name, "a")
    };
    let mut members = vec![
        with("strands", true, false, 1, 0),
        with("blocked", false, true, 0, 0),
        with("many", false, false, 9, 0),
        with("important", false, false, 2, 1000),
        with("old", false, false, 2, 0),
        Member {
            created: Timestamp::from_second(60).unwrap(),
            ..with("young", false, false, 2, 0)
        },
        with("empty", false, false, 0, 0),
    ];
    members.reverse();
    let names = |choice: Choice| -> Vec<String> {
        choice.victims.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(
        names(scale_down(&down_to(0), &members)),
        [
            "empty",
            "young",
            "old",
            "important",
            "many",
            "blocked",
            "strands"
        ]
    );
}

#[test]
fn the_last_machine_of_a_zone_stays_for_the_volumes_that_are_bound_to_it() {
    // Each zone has one machine. The one of zone a is nearly empty, but a volume of its Pod can be reached nowhere else.
    let mut members = [
        Member {
            zone_bound: true,
            disruption: Disruption {
                pods: 1,
                ..Disruption::default()
            },
            ..member("a", "a")
        },
        Member {
            disruption: Disruption {
                pods: 20,
                ..Disruption::default()
            },
            ..member("b", "b")
        },
    ];
    assert_eq!(told(&scale_down(&down_to(1), &members)), ["b Order"]);
    // With another machine in its zone, the Pod has somewhere to go.
    members[1].zone = Some("a".to_owned());
    assert_eq!(told(&scale_down(&down_to(1), &members)), ["a Order"]);
}

#[test]
fn a_held_machine_goes_before_required_balance_is_broken() {
    let members = [
        Member {
            held: true,
            ..member("a1", "a")
        },
        Member {
            held: true,
            ..member("a2", "a")
        },
        member("b1", "b"),
    ];
    let required = Pool {
        balance: Balance::Required,
        ..down_to(2)
    };
    assert_eq!(told(&scale_down(&required, &members)), ["a1 ZoneSurplus"]);
    assert_eq!(told(&scale_down(&down_to(2), &members)), ["b1 Order"]);
}

/// Machines over three zones of which every reason and every amount of Pods occurs.
fn many(count: usize) -> Vec<Member> {
    (0..count)
        .map(|n| Member {
            ready: n % 7 != 0,
            up_to_date: n % 3 != 0,
            disruption: Disruption {
                blocked: n % 5 == 0,
                pods: u32::try_from(n * 7919 % 31).unwrap(),
                ..Disruption::default()
            },
            ..member(&format!("m{:05}", n * 7919 % count), ["a", "b", "c"][n % 3])
        })
        .collect()
}

#[test]
fn the_cost_of_a_choice_grows_no_faster_than_n_log_n() {
    let cost = |count: u32| {
        let members = many(usize::try_from(count).unwrap());
        let before = COMPARISONS.get();
        let choice = scale_down(&down_to(count / 2), &members);
        assert_eq!(choice.kept.len(), usize::try_from(count / 2).unwrap());
        f64::from(u32::try_from(COMPARISONS.get() - before).unwrap())
    };
    let per_n_log_n = |count: u32| {
        let n = f64::from(count);
        cost(count) / (n * n.log2())
    };
    let small = per_n_log_n(100);
    for count in [1_000, 10_000] {
        let grown = per_n_log_n(count);
        assert!(grown <= small * 1.25, "{count}: {grown} after {small}");
    }
    // Somebody who has to choose nobody compares nobody.
    let before = COMPARISONS.get();
    scale_down(&down_to(10_000), &many(10_000));
    assert_eq!(COMPARISONS.get(), before);
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let one = (0..4_usize, any::<[bool; 10]>(), 0..50_i64, 0..5_u32);
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
                    strands: flags[7] && flags[8],
                    blocked: flags[7],
                    pods,
                    ..Disruption::default()
                },
                zone_bound: flags[9],
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
    fn a_choice_is_needed_just_when_somebody_new_goes(members in members(), desired in 0..24_u32, (order, balance) in policy()) {
        let pool = Pool { desired, order, balance };
        let leaving = members.iter().filter(|m| m.leaving).count();
        let choice = scale_down(&pool, &members);
        prop_assert_eq!(needs_choice(&pool, members.len(), leaving), choice.new_victims().count() > 0);
    }

    /// Whatever the machines are like, only those that go anyway or were asked for leave zones further apart.
    #[test]
    fn required_balance_is_kept_while_there_is_a_choice(members in members(), desired in 0..24_u32, (order, _) in policy()) {
        let choice = scale_down(&Pool { desired, order, balance: Balance::Required }, &members);
        let zone = |name: &str| members.iter().find(|m| m.name == name).and_then(|m| m.zone.as_deref()).unwrap();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for member in members.iter().filter(|m| !m.leaving) {
            *counts.entry(zone(&member.name)).or_default() += 1;
        }
        for (name, because) in choice.new_victims() {
            let most = counts.values().copied().max().unwrap();
            let count = counts.get_mut(zone(name)).unwrap();
            if because != Because::Marked {
                prop_assert_eq!(*count, most, "{} is of a zone that has fewer than another", name);
            }
            *count -= 1;
        }
    }

    /// Among machines for which the same speaks, a Preferred balance takes from the fullest zone that has one of them.
    #[test]
    fn preferred_balance_comes_before_the_order(members in members(), desired in 0..24_u32, (order, _) in policy()) {
        let pool = Pool { desired, order, balance: Balance::Preferred };
        let choice = scale_down(&pool, &members);
        let find = |name: &str| members.iter().find(|m| m.name == name).unwrap();
        let mut left: Vec<&Member> = members.iter().filter(|m| !m.leaving).collect();
        for (name, _) in choice.new_victims() {
            let victim = find(name);
            let count = |zone: &str| left.iter().filter(|m| zone_of(m) == zone).count();
            let equals = left.iter().filter(|m| group(&pool, m) == group(&pool, victim));
            let most = equals.map(|m| count(zone_of(m))).max().unwrap();
            prop_assert_eq!(count(zone_of(victim)), most);
            left.retain(|m| m.name != name);
        }
    }

    /// A machine that something asks to leave alone goes only when no other of its balance's choice is left.
    #[test]
    fn held_machines_go_last_unless_asked_for(members in members(), desired in 0..24_u32, (order, _) in policy()) {
        for balance in [Balance::Preferred, Balance::Ignored] {
            let choice = scale_down(&Pool { desired, order, balance }, &members);
            let find = |name: &str| members.iter().find(|m| m.name == name).unwrap();
            let held = choice.new_victims().any(|(name, because)| find(name).held && because != Because::Marked);
            let other = choice.kept.iter().any(|name| !find(name).held);
            prop_assert!(!(held && other));
        }
    }
}

//! Rollouts of small pools, step by step.

mod history;

use std::collections::BTreeMap;

use super::*;

fn member(name: &str, zone: &str) -> Member {
    Member {
        name: name.to_owned(),
        created: Timestamp::UNIX_EPOCH,
        zone: Some(zone.to_owned()),
        standing: Standing::Up,
        marked: false,
        held: false,
        outdated: Vec::new(),
        failed_to_start: false,
    }
}

fn old(name: &str, zone: &str) -> Member {
    Member {
        outdated: vec![Outdated::Instance],
        ..member(name, zone)
    }
}

fn standing(standing: Standing, member: Member) -> Member {
    Member { standing, ..member }
}

fn rolling(desired: u32, max_surge: u32, max_unavailable: u32) -> Pool {
    Pool {
        desired,
        strategy: Strategy::Rolling(Limits {
            max_surge,
            max_unavailable,
        }),
        disruption: 1000,
        can_surge: true,
        balanced: true,
        refused: None,
    }
}

fn names(decision: &Decision) -> Vec<&str> {
    decision
        .next
        .iter()
        .map(|(name, _)| name.as_str())
        .collect()
}

fn decided(pool: &Pool, members: &[Member]) -> Decision {
    decide(pool, members, &mut NoPods)
}

#[test]
fn a_pool_that_may_surge_by_one_launches_one_and_lets_none_go_before_it_is_up() {
    let pool = rolling(3, 1, 0);
    let mut members = vec![old("a", "a"), old("b", "b"), old("c", "c")];
    let first = decided(&pool, &members);
    assert_eq!((first.surge, names(&first).len()), (1, 0));
    assert_eq!(
        first.told(),
        "0 machines up to date, 3 out of date; waiting for 1 machine to be launched"
    );
    members.push(standing(Standing::Starting, member("n", "a")));
    let second = decided(&pool, &members);
    assert_eq!(
        second.told(),
        "1 machine up to date, 3 out of date, 1 new not available yet; waiting for Machine n to become available"
    );
    members[3].standing = Standing::Up;
    // Not of the zone that has two: the last to go, which has no successor, is to come from there.
    let third = decided(&pool, &members);
    assert_eq!(third.next, [("c".to_owned(), Because::Age)]);
    assert_eq!(third.surge, 1);
}

#[test]
fn the_last_ones_need_no_more_places_than_they_are() {
    let pool = rolling(3, 2, 0);
    let mut members = vec![
        old("a", "a"),
        member("b", "b"),
        member("c", "c"),
        member("n", "a"),
    ];
    assert_eq!(decided(&pool, &members).surge, 1);
    assert_eq!(names(&decided(&pool, &members)), ["a"]);
    members[0].standing = Standing::Leaving;
    let last = decided(&pool, &members);
    assert_eq!((last.surge, last.waiting), (0, Waiting::Nothing));
}

#[test]
fn without_surge_as_many_go_as_may_be_missing_and_zones_take_turns() {
    let pool = Pool {
        can_surge: false,
        ..rolling(6, 3, 3)
    };
    let members: Vec<Member> = [
        ("a1", "a"),
        ("a2", "a"),
        ("b1", "b"),
        ("b2", "b"),
        ("c1", "c"),
        ("c2", "c"),
    ]
    .map(|(name, zone)| old(name, zone))
    .into();
    let decision = decided(&pool, &members);
    assert_eq!(decision.surge, 0);
    assert_eq!(names(&decision), ["c1", "b1", "a1"]);
}

#[test]
fn what_is_down_goes_first_and_never_more_than_one_of_one() {
    let pool = rolling(4, 0, 1);
    let members = [
        old("a", "a"),
        standing(Standing::Down, old("b", "b")),
        standing(Standing::Sick, old("c", "c")),
        old("d", "d"),
    ];
    let decision = decided(&pool, &members);
    assert_eq!(decision.next, [("c".to_owned(), Because::Unhealthy)]);
    let marked = Member {
        marked: true,
        ..old("d", "d")
    };
    let members = [old("a", "a"), old("b", "b"), old("c", "c"), marked];
    assert_eq!(
        decided(&pool, &members).next,
        [("d".to_owned(), Because::Marked)]
    );
}

#[test]
fn repair_under_way_takes_the_place_of_a_rollout() {
    let pool = Pool {
        disruption: 1,
        ..rolling(10, 0, 3)
    };
    let mut members: Vec<Member> = (0..10).map(|n| old(&format!("m{n}"), "a")).collect();
    assert_eq!(names(&decided(&pool, &members)).len(), 1);
    members[4].standing = Standing::Leaving;
    assert_eq!(names(&decided(&pool, &members)).len(), 0);
    members[4].standing = Standing::Down;
    assert_eq!(names(&decided(&pool, &members)), ["m4"]);
}

#[test]
fn a_machine_that_does_not_start_stops_the_rollout_and_a_corrected_template_replaces_it_first() {
    let pool = rolling(3, 1, 0);
    let mut members = vec![
        old("a", "a"),
        old("b", "b"),
        old("c", "c"),
        Member {
            standing: Standing::Starting,
            failed_to_start: true,
            ..member("n", "a")
        },
    ];
    let stopped = decided(&pool, &members);
    assert_eq!(names(&stopped).len(), 0);
    // The failed one keeps its place: without it another one would be launched from the same template.
    assert_eq!(stopped.surge, 1);
    assert!(
        stopped
            .told()
            .contains("stopped, since Machine n did not become available"),
        "{}",
        stopped.told()
    );
    members[3].outdated = vec![Outdated::Instance];
    assert_eq!(
        decided(&pool, &members).next,
        [("n".to_owned(), Because::NotAvailable)]
    );
    // Also where nothing more may be missing than it.
    let pool = Pool {
        disruption: 1,
        ..rolling(4, 0, 1)
    };
    assert_eq!(names(&decided(&pool, &members)), ["n"]);
}

#[test]
fn what_nobody_may_do_is_said() {
    let members = [old("a", "a")];
    let on_delete = Pool {
        strategy: Strategy::OnDelete,
        ..rolling(1, 1, 0)
    };
    assert_eq!(decided(&on_delete, &members).waiting, Waiting::OnDelete);
    let refused = Pool {
        refused: Some("no".to_owned()),
        ..rolling(1, 1, 1)
    };
    assert_eq!(
        decided(&refused, &members).waiting,
        Waiting::Refused("no".to_owned())
    );
    assert_eq!(decided(&refused, &members).surge, 0);
    let shut = Pool {
        can_surge: false,
        ..rolling(1, 1, 0)
    };
    assert_eq!(
        decided(&shut, &members).waiting.told().unwrap(),
        "the group cannot have more machines than its size for a while, so rollout.maxSurge is of no use here and rollout.maxUnavailable is 0 of 1 machines; let rollout.maxUnavailable of the MachinePoolPolicy be 1 or more"
    );
    let smaller = decided(&rolling(0, 0, 1), &members);
    assert_eq!(smaller.waiting, Waiting::ScaleDown { surplus: 1 });
    let held = Member {
        held: true,
        ..old("a", "a")
    };
    let members = [held, old("b", "b")];
    assert_eq!(names(&decided(&rolling(2, 0, 1), &members)), ["b"]);
}

/// Each machine's Pods ask the budgets named for it.
struct Asks {
    budgets: Vec<Budget>,
    of: BTreeMap<String, Vec<Ask>>,
}

impl Pods for Asks {
    fn asks(&mut self, machine: &str) -> Vec<Ask> {
        self.of.get(machine).cloned().unwrap_or_default()
    }

    fn budget(&self, place: usize) -> Option<&Budget> {
        self.budgets.get(place)
    }
}

#[test]
fn a_machine_whose_pods_have_no_room_elsewhere_waits_and_the_budget_is_named() {
    let pool = rolling(4, 0, 2);
    let mut members = vec![old("a", "a"), old("b", "a"), old("c", "a"), old("d", "a")];
    let web = Ask { budget: 0, pods: 2 };
    let mut pods = Asks {
        budgets: vec![Budget {
            name: "default/web".to_owned(),
            allowed: 1,
            unready: vec!["default/web-1 (CrashLoopBackOff)".to_owned()],
            ..Budget::default()
        }],
        of: ["a", "b", "c"]
            .map(|name| (name.to_owned(), vec![web.clone()]))
            .into(),
    };
    // One of those that have its Pods, and one that has none.
    assert_eq!(names(&decide(&pool, &members, &mut pods)), ["a", "d"]);
    members.remove(3);
    members[0].standing = Standing::Leaving;
    let pool = rolling(3, 0, 2);
    let decision = decide(&pool, &members, &mut pods);
    assert_eq!(
        decision.told(),
        "0 machines up to date, 2 out of date, 1 out of date and leaving; waiting for room in PodDisruptionBudget default/web, of which Pod default/web-1 (CrashLoopBackOff) is not ready"
    );
    // One that never has room is not waited for.
    pods.budgets[0].never = true;
    assert_eq!(names(&decide(&pool, &members, &mut pods)), ["b"]);
}

#[test]
fn waves_are_told_before_anything_is_done() {
    let pool = rolling(4, 1, 1);
    let members = [
        old("a1", "a"),
        old("a2", "a"),
        old("b1", "b"),
        member("b2", "b"),
    ];
    let (waves, waiting) = waves(&pool, &members, &mut NoPods);
    assert_eq!(waiting, Waiting::Nothing);
    let told: Vec<String> = waves
        .iter()
        .map(|wave| {
            let names: Vec<&str> = wave
                .machines
                .iter()
                .map(|(name, _)| name.as_str())
                .collect();
            format!(
                "{} surge {} available {} {:?}",
                names.join(" "),
                wave.surge,
                wave.available,
                wave.zones
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            r#"a1 b1 surge 1 available 3 {"a": 3, "b": 2}"#,
            r#"a2 surge 1 available 4 {"a": 2, "b": 2}"#,
        ]
    );
    let stuck = Pool {
        strategy: Strategy::OnDelete,
        ..pool
    };
    assert_eq!(
        super::waves(&stuck, &members, &mut NoPods),
        (Vec::new(), Waiting::OnDelete)
    );
}

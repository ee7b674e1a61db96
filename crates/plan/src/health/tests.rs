use super::*;
use proptest::prelude::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn seconds(number: i64) -> SignedDuration {
    SignedDuration::from_secs(number)
}

fn fault(type_: &str, status: &str, timeout: i64) -> Fault {
    Fault {
        type_: type_.to_owned(),
        status: status.to_owned(),
        timeout: seconds(timeout),
    }
}

fn reported(type_: &str, status: &str, since: i64) -> Reported {
    Reported {
        type_: type_.to_owned(),
        status: status.to_owned(),
        since: Some(at(since)),
    }
}

fn check() -> Check {
    Check {
        node: vec![fault("Ready", "False", 300), fault("Ready", "Unknown", 300)],
        machine: vec![fault("DiskChecked", "False", 60)],
        startup: Some(seconds(600)),
    }
}

fn around() -> Surroundings {
    Surroundings {
        infrastructure: Some(at(0)),
        control_plane: Some(at(0)),
        answers: Some(at(0)),
        zones_back: None,
    }
}

fn machine(node: Node) -> Machine {
    Machine {
        created: at(0),
        infrastructure: None,
        asked: false,
        conditions: Vec::new(),
        node,
    }
}

fn ready(status: &str, since: i64) -> Machine {
    machine(Node::Here(vec![reported("Ready", status, since)]))
}

fn reason(verdict: &Verdict) -> Option<Reason> {
    match verdict {
        Verdict::Unhealthy { reason, .. } => Some(*reason),
        Verdict::Healthy | Verdict::Suspect(_) | Verdict::Unseen => None,
    }
}

#[test]
fn a_condition_is_a_fault_once_it_has_lasted() {
    let judge = |machine: &Machine, now| judge(&check(), machine, &around(), at(now));
    assert_eq!(judge(&ready("True", 10), 10_000), Verdict::Healthy);
    let sick = ready("Unknown", 1000);
    assert_eq!(judge(&sick, 1299), Verdict::Suspect(Some(at(1300))));
    let verdict = judge(&sick, 1300);
    let Verdict::Unhealthy { reason, why } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(reason, Reason::UnhealthyNode);
    assert_eq!(
        why,
        ["condition Ready of the Node has been Unknown for more than 5m"]
    );
}

#[test]
fn conditions_of_machine_and_node_are_both_told_and_the_machines_is_the_reason() {
    let mut sick = ready("False", 0);
    sick.conditions = vec![reported("DiskChecked", "False", 0)];
    let verdict = judge(&check(), &sick, &around(), at(1000));
    let Verdict::Unhealthy { reason, why } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!((reason, why.len()), (Reason::UnhealthyMachine, 2));
}

/// Case C32.
#[test]
fn the_clock_of_a_start_begins_when_everything_it_needs_is_there() {
    let young = Machine {
        infrastructure: Some(at(50)),
        ..machine(Node::Never)
    };
    let late = Surroundings {
        control_plane: Some(at(900)),
        ..around()
    };
    let verdict = judge(&check(), &young, &late, at(1000));
    assert_eq!(verdict, Verdict::Suspect(Some(at(1500))));
    let verdict = judge(&check(), &young, &late, at(1500));
    assert_eq!(reason(&verdict), Some(Reason::NodeStartupTimeout));
    for missing in [
        Surroundings {
            control_plane: None,
            ..around()
        },
        Surroundings {
            infrastructure: None,
            ..around()
        },
    ] {
        assert_eq!(
            judge(&check(), &young, &missing, at(99_999)),
            Verdict::Unseen
        );
    }
    let off = Check {
        startup: None,
        ..check()
    };
    assert_eq!(
        judge(&off, &young, &around(), at(99_999)),
        Verdict::Suspect(None)
    );
}

/// Case C33.
#[test]
fn clocks_begin_anew_when_the_api_or_a_zone_is_back() {
    let sick = ready("Unknown", 100);
    let gone = Surroundings {
        answers: None,
        ..around()
    };
    assert_eq!(judge(&check(), &sick, &gone, at(5000)), Verdict::Unseen);
    for back in [
        Surroundings {
            answers: Some(at(5000)),
            ..around()
        },
        Surroundings {
            zones_back: Some(at(5000)),
            ..around()
        },
    ] {
        assert_eq!(
            judge(&check(), &sick, &back, at(5001)),
            Verdict::Suspect(Some(at(5300)))
        );
        let young = machine(Node::Never);
        assert_eq!(
            judge(&check(), &young, &back, at(5001)),
            Verdict::Suspect(Some(at(5600)))
        );
    }
}

/// Case C47.
#[test]
fn a_node_object_that_vanished_has_its_time_to_come_back() {
    let gone = machine(Node::Gone {
        name: "n".to_owned(),
        since: Some(at(1000)),
    });
    let verdict = judge(&check(), &gone, &around(), at(1000));
    assert_eq!(verdict, Verdict::Suspect(Some(at(1600))));
    let verdict = judge(&check(), &gone, &around(), at(1600));
    assert_eq!(reason(&verdict), Some(Reason::NodeDeleted));
}

#[test]
fn who_is_asked_for_is_unhealthy_before_anything_else_is_judged() {
    let asked = Machine {
        asked: true,
        ..ready("True", 0)
    };
    let nothing = Surroundings::default();
    assert_eq!(
        reason(&judge(&check(), &asked, &nothing, at(1))),
        Some(Reason::HasRemediateAnnotation)
    );
}

#[test]
fn several_checks_say_one_thing_whatever_their_order() {
    let sick = |reason, why: &str| Verdict::Unhealthy {
        reason,
        why: vec![why.to_owned()],
    };
    let a = sick(Reason::UnhealthyNode, "a");
    let b = sick(Reason::NodeDeleted, "b");
    let both = together([a.clone(), Verdict::Healthy, b.clone()]);
    assert_eq!(both, together([b, a.clone(), Verdict::Healthy]));
    let Verdict::Unhealthy { reason, why } = both else {
        panic!("{both:?}");
    };
    assert_eq!(
        (reason, why),
        (Reason::UnhealthyNode, vec!["a".into(), "b".into()])
    );
    assert_eq!(together([a.clone(), a.clone()]), a);
    let next = |second| Verdict::Suspect(Some(at(second)));
    assert_eq!(together([next(9), Verdict::Healthy, next(3)]), next(3));
    assert_eq!(
        together([Verdict::Unseen, Verdict::Healthy]),
        Verdict::Healthy
    );
    assert_eq!(together([Verdict::Unseen]), Verdict::Unseen);
    assert_eq!(together([]), Verdict::Healthy);
}

#[test]
fn a_zone_is_lost_when_its_nodes_fell_silent_together() {
    assert!(is_lost(0, &[at(1000), at(1030)]));
    assert!(!is_lost(1, &[at(1000), at(1030)]));
    assert!(!is_lost(0, &[at(1000)]), "one Node alone is a sick Node");
    assert!(
        !is_lost(0, &[at(1000), at(4000)]),
        "each fell silent by itself"
    );
    assert!(
        is_lost(0, &[at(0), at(4000), at(4010)]),
        "one was sick before"
    );
    assert!(!is_lost(0, &[]));
}

proptest! {
    /// A look too early is never lost: at the time it names there is a verdict, and before it there is none.
    #[test]
    fn the_next_look_is_when_the_verdict_changes(since in 0..1000_i64, created in 0..1000_i64, answers in 0..1000_i64, now in 0..3000_i64, node in 0..3_u8) {
        let subject = Machine {
            created: at(created),
            ..match node {
                0 => ready("Unknown", since),
                1 => machine(Node::Gone { name: "n".into(), since: Some(at(since)) }),
                _ => machine(Node::Never),
            }
        };
        let around = Surroundings { answers: Some(at(answers)), ..around() };
        match judge(&check(), &subject, &around, at(now)) {
            Verdict::Suspect(Some(next)) => {
                prop_assert!(next > at(now));
                prop_assert!(reason(&judge(&check(), &subject, &around, next)).is_some());
                let before = next.saturating_sub(seconds(1)).unwrap();
                prop_assert_eq!(judge(&check(), &subject, &around, before), Verdict::Suspect(Some(next)));
            }
            verdict => prop_assert!(reason(&verdict).is_some()),
        }
    }
}

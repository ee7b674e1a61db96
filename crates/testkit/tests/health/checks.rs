//! Who is found to be sick, who is repaired, how many at once, and who is left alone.

use std::time::Duration;

use kube::{Api, ResourceExt};
use muster_api::reference::Conditioned as _;
use muster_api::{Cluster, Machine, MachineHealthCheck, names, owners};
use muster_provider_sim::console;
use muster_testkit::outage::Reach;
use muster_testkit::world::{LATER, SOON, World, instance_of};
use serde_json::json;

use crate::support::{check, counts, fail, heal, is, policy, said, with_check};

#[tokio::test(start_paused = true)]
async fn a_machine_whose_kubelet_stops_is_repaired_and_its_pool_says_so() {
    let world = with_check(3, "").await;
    let check = world
        .api::<MachineHealthCheck>()
        .get("nodes")
        .await
        .unwrap();
    let clusters: Api<Cluster> = world.api();
    let cluster = clusters.get("quickstart").await.unwrap();
    assert!(owners::is_owned_by(&check, &cluster));
    assert_eq!(names::CLUSTER_NAME.text(&check), Some("quickstart"));
    let status = check.status.clone().unwrap();
    assert_eq!(status.targets, world.names("workers"));
    assert_eq!(status.remediations_allowed, Some(3));
    let sick = world.first("workers");
    let name = sick.name_any();
    assert_eq!(
        said(&world, &name, "HealthCheckSucceeded"),
        is("True", "HealthCheckSucceeded")
    );
    fail(&world, &sick).await;
    world
        .until("its repair", LATER, || async {
            world.machine(&name).is_some_and(|m| m.is_deleting())
        })
        .await
        .unwrap();
    world
        .pool_tells("workers", "Remediating", &name)
        .await
        .unwrap();
    assert_eq!(
        said(&world, &name, "HealthCheckSucceeded"),
        is("False", "UnhealthyNode")
    );
    let told = world.machine_says(&name, "HealthCheckSucceeded");
    assert!(told.ends_with("(MachineHealthCheck nodes)"), "{told}");
    world.gone(&name).await.unwrap();
    world.settled("workers", 3).await.unwrap();
    counts(&world, 3, 3).await;
    let events = world.events(&name).await.unwrap();
    for reason in ["MachineMarkedUnhealthy", "Repaired", "DrainingNode"] {
        assert!(events.contains(&reason.to_owned()), "{reason}: {events:?}");
    }
    assert_eq!(world.pool_says("workers", "Remediating"), "");
}

#[tokio::test(start_paused = true)]
async fn a_boot_that_never_ends_is_repaired_after_the_time_that_a_start_may_take() {
    let world = with_check(2, "").await;
    let before = world.names("workers");
    world.scale("workers", 3).await.unwrap();
    world
        .until("the third", SOON, || async {
            world.machines("workers").len() == 3
        })
        .await
        .unwrap();
    let machines = world.machines("workers");
    let new = machines
        .iter()
        .find(|m| !before.contains(&m.name_any()))
        .unwrap();
    console::hang(&world.cloud().unwrap(), &instance_of(new))
        .await
        .unwrap();
    let start = world.clock.now();
    world
        .until("its repair", LATER, || async {
            world
                .machine(&new.name_any())
                .is_none_or(|m| m.is_deleting())
        })
        .await
        .unwrap();
    let took = world.clock.now().duration_since(start).as_secs();
    assert!((170..=200).contains(&took), "{took}");
    heal(&world, new).await;
    world.settled("workers", 3).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_flaps_within_its_time_is_left_alone() {
    let world = with_check(3, "").await;
    let machine = world.first("workers");
    for _ in 0..6 {
        fail(&world, &machine).await;
        // Fifty seconds until the Node counts as silent, and less than a minute of that.
        tokio::time::sleep(Duration::from_secs(90)).await;
        heal(&world, &machine).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    counts(&world, 3, 3).await;
    assert_eq!(
        world.machine(&machine.name_any()).unwrap().uid(),
        machine.uid()
    );
}

/// Case C31.
#[tokio::test(start_paused = true)]
async fn a_wave_of_sick_machines_is_repaired_one_at_a_time() {
    let world = with_check(9, "").await;
    world
        .apply(&policy("disruption: {maxUnavailable: 1}"))
        .await
        .unwrap();
    // One of three in each zone, and one more: no zone is lost.
    let mut by_zone = world.machines("workers");
    by_zone.sort_by_key(|m| m.status.as_ref().and_then(|s| s.failure_domain.clone()));
    let wave: Vec<_> = [0, 1, 3, 6].map(|at| by_zone[at].clone()).to_vec();
    for machine in &wave {
        fail(&world, machine).await;
    }
    let mut most = 0;
    let left = || {
        let here = |m: &std::sync::Arc<Machine>| {
            world
                .machine(&m.name_any())
                .is_some_and(|n| n.uid() == m.uid())
        };
        wave.iter().filter(|m| here(m)).count()
    };
    world
        .until("all to be repaired", 4 * LATER, || {
            let going = world
                .machines("workers")
                .iter()
                .filter(|m| m.is_deleting())
                .count();
            most = most.max(going);
            async { left() == 0 }
        })
        .await
        .unwrap();
    assert_eq!(most, 1, "one at a time");
    world.settled("workers", 9).await.unwrap();
    counts(&world, 9, 9).await;
}

#[tokio::test(start_paused = true)]
async fn too_many_sick_machines_are_not_the_machines_fault_and_none_is_repaired() {
    let limit = "  remediation: {triggerIf: {unhealthyLessThanOrEqualTo: 40%}}\n";
    let world = with_check(5, limit).await;
    world
        .apply(&policy("disruption: {maxUnavailable: 50%}"))
        .await
        .unwrap();
    let wave: Vec<_> = world.machines("workers").into_iter().take(3).collect();
    for machine in &wave {
        fail(&world, machine).await;
    }
    let checks: Api<MachineHealthCheck> = world.api();
    world
        .until("the short circuit", LATER, || async {
            let check = checks.get("nodes").await.unwrap();
            let said = check.condition_of("RemediationAllowed").cloned();
            said.is_some_and(|said| {
                said.reason == "TooManyUnhealthy" && said.message.contains("3 of 5")
            })
        })
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert!(world.machines("workers").iter().all(|m| !m.is_deleting()));
    let events = world.events("nodes").await.unwrap();
    assert!(
        events.contains(&"RemediationRestricted".to_owned()),
        "{events:?}"
    );
    // One comes back by itself: two of five are few enough.
    heal(&world, &wave[0]).await;
    for machine in &wave[1..] {
        world
            .until("its repair", LATER, || async {
                world
                    .machine(&machine.name_any())
                    .is_none_or(|m| m.uid() != machine.uid())
            })
            .await
            .unwrap();
    }
    world.settled("workers", 5).await.unwrap();
    assert_eq!(
        world.machine(&wave[0].name_any()).unwrap().uid(),
        wave[0].uid()
    );
}

#[tokio::test(start_paused = true)]
async fn marks_have_a_machine_repaired_at_once_or_never() {
    let world = with_check(3, "").await;
    let names = world.names("workers");
    let skipped = world.machine(&names[0]).unwrap();
    world
        .annotate::<Machine>(&names[0], names::SKIP_REMEDIATION.key(), Some(""))
        .await
        .unwrap();
    counts(&world, 2, 2).await;
    assert_eq!(said(&world, &names[0], "HealthCheckSucceeded"), None);
    fail(&world, &skipped).await;
    tokio::time::sleep(LATER).await;
    assert_eq!(world.machine(&names[0]).unwrap().uid(), skipped.uid());
    heal(&world, &skipped).await;
    world.settled("workers", 3).await.unwrap();
    world
        .annotate::<Machine>(&names[1], names::REMEDIATE_MACHINE.key(), Some(""))
        .await
        .unwrap();
    world.gone(&names[1]).await.unwrap();
    world.settled("workers", 3).await.unwrap();
}

/// Case C33, as far as the API is concerned.
#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_for_an_hour_condemns_nobody_also_when_it_is_back() {
    let world = with_check(3, "").await;
    let before: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    world.reach("quickstart", Reach::Silent);
    tokio::time::sleep(2 * LATER).await;
    world.reach("quickstart", Reach::Answers);
    tokio::time::sleep(LATER).await;
    let after: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    assert_eq!(after, before);
    counts(&world, 3, 3).await;
}

/// Case C32.
#[tokio::test(start_paused = true)]
async fn the_clock_of_a_start_waits_for_a_control_plane_that_is_late() {
    let world = World::start().await.unwrap();
    world.reach("quickstart", Reach::Refuses);
    world
        .apply(&muster_testkit::world::quickstart(2))
        .await
        .unwrap();
    world.apply(&check("nodes", "")).await.unwrap();
    world
        .until("two Machines", LATER, || async {
            world.machines("workers").len() == 2
        })
        .await
        .unwrap();
    let before: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    // Five times as long as a start may take.
    tokio::time::sleep(Duration::from_secs(15 * 60)).await;
    world.reach("quickstart", Reach::Answers);
    world.settled("workers", 2).await.unwrap();
    let after: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    assert_eq!(after, before);
    counts(&world, 2, 2).await;
}

/// Case C55: what has begun is carried through.
#[tokio::test(start_paused = true)]
async fn a_repair_that_has_begun_ends_though_the_node_heals_meanwhile() {
    let world = with_check(3, "").await;
    let sick = world.first("workers");
    let name = sick.name_any();
    let hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/slow";
    world
        .annotate::<Machine>(&name, hook, Some(""))
        .await
        .unwrap();
    fail(&world, &sick).await;
    world
        .deletion_at(&name, "WaitingForPreTerminateHook")
        .await
        .unwrap();
    heal(&world, &sick).await;
    tokio::time::sleep(LATER).await;
    world.annotate::<Machine>(&name, hook, None).await.unwrap();
    world.gone(&name).await.unwrap();
    world.settled("workers", 3).await.unwrap();
    counts(&world, 3, 3).await;
}

/// Case C33, as far as a zone is concerned.
#[tokio::test(start_paused = true)]
async fn a_zone_that_is_lost_is_waited_for_and_nobody_in_it_is_repaired() {
    let world = with_check(6, "").await;
    let of_zone = |zone: &str| -> Vec<_> {
        let machines = world.machines("workers");
        let here = |m: &std::sync::Arc<Machine>| {
            m.status.as_ref().and_then(|s| s.failure_domain.as_deref()) == Some(zone)
        };
        machines.into_iter().filter(here).collect()
    };
    let uids = |machines: &[std::sync::Arc<Machine>]| -> Vec<_> {
        machines.iter().map(|m| m.uid()).collect()
    };
    let zone = of_zone("b");
    assert_eq!(zone.len(), 2);
    for machine in &zone {
        fail(&world, machine).await;
    }
    let checks: Api<MachineHealthCheck> = world.api();
    let told = || async {
        let check = checks.get("nodes").await.unwrap();
        let said = check.condition_of("RemediationAllowed").cloned();
        said.is_some_and(|said| {
            said.status == "False" && said.message.contains("zone b has been heard of since")
        })
    };
    world
        .until("the loss of the zone", SOON * 3, told)
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(uids(&of_zone("b")), uids(&zone), "nobody was repaired");
    // It comes back: no burst, and nobody is condemned on what was before.
    for machine in &zone {
        heal(&world, machine).await;
    }
    counts(&world, 6, 6).await;
    tokio::time::sleep(LATER).await;
    assert_eq!(uids(&of_zone("b")), uids(&zone));
    // Lost once more, and for good: after an hour, with all others well, its machines are replaced.
    for machine in &zone {
        fail(&world, machine).await;
    }
    world
        .until("the loss of the zone", SOON * 3, told)
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(uids(&of_zone("b")), uids(&zone));
    for machine in &zone {
        world
            .until("its repair", 4 * LATER, || async {
                world
                    .machine(&machine.name_any())
                    .is_none_or(|m| m.uid() != machine.uid())
            })
            .await
            .unwrap();
    }
    world.settled("workers", 6).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restart_begins_clocks_anew_and_a_check_that_goes_takes_its_word_along() {
    let mut world = with_check(3, "").await;
    let sick = world.first("workers");
    let name = sick.name_any();
    fail(&world, &sick).await;
    world
        .says(&name, "NodeReady", "NodeStatusUnknown")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(50)).await;
    world.restart().await.unwrap();
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(
        !world.machine(&name).unwrap().is_deleting(),
        "it was looked at for less than a minute"
    );
    world
        .until("its repair", LATER, || async {
            world.machine(&name).is_none_or(|m| m.is_deleting())
        })
        .await
        .unwrap();
    world.gone(&name).await.unwrap();
    world.settled("workers", 3).await.unwrap();
    world.delete::<MachineHealthCheck>("nodes").await.unwrap();
    world
        .until("nothing said of health", SOON, || async {
            let machines = world.machines("workers");
            machines
                .iter()
                .all(|m| m.condition_of("HealthCheckSucceeded").is_none())
        })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_paused_check_has_nobody_repaired_and_an_idle_one_writes_nothing() {
    let world = with_check(3, "").await;
    let writes = || {
        let requests = world.host.existing("management").unwrap().requests();
        let quiet = ["get", "list", "watch"];
        requests
            .iter()
            .filter(|((verb, _), _)| !quiet.contains(&verb.as_str()))
            .map(|(_, count)| *count)
            .sum::<u64>()
    };
    tokio::time::sleep(LATER).await;
    let before = writes();
    tokio::time::sleep(LATER).await;
    assert_eq!(writes(), before);
    world
        .annotate::<MachineHealthCheck>("nodes", names::PAUSED.key(), Some(""))
        .await
        .unwrap();
    let sick = world.first("workers");
    fail(&world, &sick).await;
    tokio::time::sleep(LATER).await;
    assert_eq!(world.machine(&sick.name_any()).unwrap().uid(), sick.uid());
    let check = world
        .api::<MachineHealthCheck>()
        .get("nodes")
        .await
        .unwrap();
    assert_eq!(check.condition_of("Paused").unwrap().status, "True");
    world
        .annotate::<MachineHealthCheck>("nodes", names::PAUSED.key(), None)
        .await
        .unwrap();
    world.gone(&sick.name_any()).await.unwrap();
    // A check that looks at something else says nothing of these.
    let other = json!({"spec": {"selector": {"matchLabels": {"no": "machine"}}}});
    world
        .patch::<MachineHealthCheck>("nodes", other)
        .await
        .unwrap();
    counts(&world, 0, 0).await;
}

//! Objects of the provider that are lost, deleted or changed behind the pool's back.

use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use muster_api::{Machine, SimMachine, SimMachinePool, names, owners};
use muster_testkit::witness::Witness;
use muster_testkit::world::{LATER, SOON, World, instance_of, quickstart};
use serde_json::json;

use super::support::start_workload;

/// Takes the finalizers of the SimMachinePool away until it is gone.
async fn lose_the_infra_pool(world: &World, deletes_first: bool) {
    let pools: Api<SimMachinePool> = world.api();
    let strip = json!({"metadata": {"finalizers": null}});
    if deletes_first {
        world.delete::<SimMachinePool>("workers").await.unwrap();
        tokio::time::sleep(SOON).await;
        world
            .patch::<SimMachinePool>("workers", strip)
            .await
            .unwrap();
    } else {
        world
            .patch::<SimMachinePool>("workers", strip)
            .await
            .unwrap();
        pools
            .delete("workers", &DeleteParams::default())
            .await
            .unwrap();
    }
    assert!(pools.get_opt("workers").await.unwrap().is_none());
}

#[rstest::rstest]
#[case::in_one_go(false)]
#[case::deleted_a_minute_before(true)]
#[tokio::test(start_paused = true)]
async fn instances_of_a_lost_infra_pool_are_found_again(#[case] deletes_first: bool) {
    let world = World::quickstart(3).await.unwrap();
    start_workload(&world).await;
    let before: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    let instances = world.live_instances().await.unwrap();
    lose_the_infra_pool(&world, deletes_first).await;
    world
        .pool_tells(
            "workers",
            "InfrastructureReady",
            "SimMachinePool default/workers",
        )
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(world.live_instances().await.unwrap(), instances);
    assert!(world.machines("workers").iter().all(|m| !m.is_deleting()));
    world.apply(&quickstart(3)).await.unwrap();
    world
        .until("a pool that is ready again", SOON, || async {
            world.pool_says("workers", "InfrastructureReady").is_empty()
        })
        .await
        .unwrap();
    world.settled("workers", 3).await.unwrap();
    let after: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    assert_eq!(after, before, "the same Machines");
    assert_eq!(world.live_instances().await.unwrap(), instances);
    let uid = world
        .api::<SimMachinePool>()
        .get("workers")
        .await
        .unwrap()
        .uid();
    for name in world.names("workers") {
        let infra = world.api::<SimMachine>().get(&name).await.unwrap();
        let owned = infra
            .owner_references()
            .iter()
            .any(|o| Some(o.uid.clone()) == uid);
        assert!(
            owned,
            "{name} belongs to the new object: {:?}",
            infra.owner_references()
        );
    }
    // The pool works as before: what is deleted is replaced, and a smaller size is reached.
    let gone = world.first("workers").name_any();
    world.delete::<Machine>(&gone).await.unwrap();
    world.gone(&gone).await.unwrap();
    world.settled("workers", 3).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_infra_machine_is_deleted_by_hand_is_drained_before_its_instance_ends() {
    let world = World::quickstart(3).await.unwrap();
    let client = start_workload(&world).await;
    let witness = Witness::start(client, "web");
    let victim = world.first("workers");
    let name = victim.name_any();
    world.delete::<SimMachine>(&name).await.unwrap();
    world.deletion_at(&name, "DrainingNode").await.unwrap();
    let id = instance_of(&victim);
    assert!(world.live_instances().await.unwrap().contains(&id));
    let mut most = 0;
    world
        .until("its end", LATER, || {
            most = most.max(world.machines("workers").len());
            async { world.machine(&name).is_none_or(|m| m.uid() != victim.uid()) }
        })
        .await
        .unwrap();
    world.settled("workers", 3).await.unwrap();
    assert_eq!(most, 3, "never one more than the pool's size");
    assert!(witness.fewest_ready().unwrap() >= 5);
    let events = world.events(&name).await.unwrap();
    for reason in ["InfraMachineDeleted", "DrainingNode", "SuccessfulDrainNode"] {
        assert!(events.contains(&reason.to_owned()), "{reason}: {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_infra_machine_that_was_torn_away_is_made_again_for_its_instance() {
    let world = World::quickstart(3).await.unwrap();
    let instances = world.live_instances().await.unwrap();
    let name = world.first("workers").name_any();
    // Finalizers first, so that nothing sees it being deleted.
    let strip = json!({"metadata": {"finalizers": null}});
    let before = world.patch::<SimMachine>(&name, strip).await.unwrap().uid();
    world.delete::<SimMachine>(&name).await.unwrap();
    world
        .until("another of its name", SOON, || async {
            let found = world.api::<SimMachine>().get_opt(&name).await.unwrap();
            found.is_some_and(|infra| infra.uid() != before)
        })
        .await
        .unwrap();
    world.settled("workers", 3).await.unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(world.live_instances().await.unwrap(), instances);
    world.settled("workers", 3).await.unwrap();
    let infra = world.api::<SimMachine>().get(&name).await.unwrap();
    let machine = world.machine(&name).unwrap();
    assert!(owners::is_controlled_by(&infra, &*machine));
}

#[tokio::test(start_paused = true)]
async fn labels_of_membership_that_somebody_changes_are_put_back_and_told() {
    let world = World::quickstart(3).await.unwrap();
    let pool_name = names::POOL_NAME.key();
    let victim = world.first("workers").name_any();
    let other = world.names("workers")[1].clone();
    let set = |value: Option<&str>| json!({"metadata": {"labels": {pool_name: value}}});
    world.patch::<Machine>(&victim, set(None)).await.unwrap();
    world.patch::<SimMachine>(&victim, set(None)).await.unwrap();
    world
        .patch::<Machine>(&other, set(Some("else")))
        .await
        .unwrap();
    world
        .patch::<SimMachine>(&other, set(Some("else")))
        .await
        .unwrap();
    world
        .until("the labels", SOON, || async {
            let mut right = true;
            for name in [&victim, &other] {
                let infra = world.api::<SimMachine>().get(name).await.unwrap();
                let machine = world.machine(name).unwrap();
                right &= names::POOL_NAME.text(&infra) == Some("workers")
                    && names::POOL_NAME.text(&*machine) == Some("workers");
            }
            right
        })
        .await
        .unwrap();
    world.settled("workers", 3).await.unwrap();
    for name in [&victim, &other] {
        let events = world.events(name).await.unwrap();
        assert!(events.contains(&"LabelRestored".to_owned()), "{events:?}");
    }
}

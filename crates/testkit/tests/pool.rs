//! Stories of what a pool decides: who goes first, what a deletion does to the size, who owns the size.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::{Machine, MachinePool, names};
use muster_provider_sim::cloud::types::CloudGroup;
use muster_testkit::fault::Side;
use muster_testkit::world::World;
use serde_json::json;

const MINUTE: Duration = Duration::from_secs(60);

fn machines(world: &World) -> Api<Machine> {
    Api::namespaced(world.client.clone(), "default")
}

async fn delete(world: &World, name: &str) {
    machines(world)
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

async fn annotate_machine(world: &World, name: &str, key: &str, value: Option<&str>) {
    let patch = json!({"metadata": {"annotations": {key: value}}});
    machines(world)
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

async fn annotate_pool(world: &World, key: &str, value: Option<&str>) {
    let pools: Api<MachinePool> = Api::namespaced(world.client.clone(), "default");
    let patch = json!({"metadata": {"annotations": {key: value}}});
    pools
        .patch("workers", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// A policy of the pool, with this in its spec.
async fn policy(world: &World, spec: &str) {
    let yaml = format!(
        "apiVersion: muster.dev/v1alpha1\nkind: MachinePoolPolicy\nmetadata: {{name: workers, namespace: default}}\nspec: {{machinePoolName: workers, {spec}}}"
    );
    world.apply(&yaml).await.unwrap();
}

fn names_of(world: &World) -> Vec<String> {
    let machines = world.machines("workers");
    machines.iter().map(|machine| machine.name_any()).collect()
}

/// The name of a machine of a zone.
fn in_zone(world: &World, zone: &str) -> String {
    let machines = world.machines("workers");
    let of_zone = machines.iter().find(|machine| {
        let status = machine.status.as_ref();
        status.and_then(|status| status.failure_domain.as_deref()) == Some(zone)
    });
    of_zone.unwrap().name_any()
}

async fn gone(world: &World, name: &str) {
    world
        .until(&format!("the end of {name}"), 30 * MINUTE, || async {
            !names_of(world).iter().any(|known| known == name)
        })
        .await
        .unwrap();
}

/// The size that the pool asks for and the size that the cloud's group has.
async fn sizes(world: &World) -> (u32, u32) {
    let pools: Api<MachinePool> = Api::namespaced(world.client.clone(), "default");
    let groups: Api<CloudGroup> = Api::namespaced(world.cloud().unwrap(), "default");
    let pool = pools.get("workers").await.unwrap();
    (
        pool.desired_replicas(),
        groups.get("workers").await.unwrap().spec.size,
    )
}

fn counted(world: &World) -> Option<String> {
    let pool = world.pool("workers").unwrap();
    names::COUNTED_DELETIONS.text(&*pool).map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn a_deletion_shrinks_the_pool_when_the_machine_says_so_and_another_one_does_not() {
    let world = World::quickstart(4).await.unwrap();
    // Four machines in three zones: the one that is not replaced is of the zone that has two, so that the zones end even.
    assert_eq!(world.spread("workers"), "a2 b1 c1");
    let first = &in_zone(&world, "a");
    let second = &in_zone(&world, "b");
    annotate_machine(&world, first, names::REPLACEMENT.key(), Some("Shrink")).await;
    delete(&world, first).await;
    gone(&world, first).await;
    world.settled("workers", 3).await.unwrap();
    assert_eq!(sizes(&world).await, (3, 3));
    let events = world.events(first).await.unwrap();
    assert!(events.contains(&"SizeLowered".to_owned()), "{events:?}");
    delete(&world, second).await;
    gone(&world, second).await;
    world.settled("workers", 3).await.unwrap();
    assert_eq!(sizes(&world).await, (3, 3));
    assert_eq!(world.spread("workers"), "a1 b1 c1");
    world
        .until("nothing to remember", MINUTE, || async {
            counted(&world).is_none()
        })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_shrinking_lowers_the_size_for_deletions_by_hand_and_for_nothing_else() {
    let world = World::quickstart(7).await.unwrap();
    policy(&world, "machineDeletion: {replacement: Shrink}").await;
    let all = names_of(&world);
    // Two at once, and one that says otherwise for itself.
    annotate_machine(&world, &all[2], names::REPLACEMENT.key(), Some("Replace")).await;
    for name in &all[..3] {
        delete(&world, name).await;
    }
    for name in &all[..3] {
        gone(&world, name).await;
    }
    world.settled("workers", 5).await.unwrap();
    assert_eq!(sizes(&world).await, (5, 5));
    // Victims of a smaller size are deleted too, and make it no smaller.
    world.scale("workers", 3).await.unwrap();
    world.settled("workers", 3).await.unwrap();
    assert_eq!(sizes(&world).await, (3, 3));
    // An instance that the cloud takes is the cloud's to replace.
    let machine = world.machines("workers")[0].clone();
    let id = machine.spec.provider_id.clone().unwrap();
    let id = id.rsplit('/').next().unwrap();
    muster_provider_sim::console::terminate(&world.cloud().unwrap(), id, world.clock.now())
        .await
        .unwrap();
    gone(&world, &machine.name_any()).await;
    world.settled("workers", 3).await.unwrap();
    assert_eq!(sizes(&world).await, (3, 3));
    assert_eq!(world.spread("workers"), "a1 b1 c1");
}

#[tokio::test(start_paused = true)]
async fn what_a_deletion_does_to_the_size_is_decided_when_it_starts() {
    let world = World::quickstart(3).await.unwrap();
    let name = names_of(&world)[0].clone();
    let hook = format!("{}/wait", names::PRE_TERMINATE_HOOK);
    annotate_machine(&world, &name, &hook, Some("")).await;
    delete(&world, &name).await;
    world
        .until("the hook", MINUTE, || async {
            world.machine_says(&name, "Deleting").contains("wait")
        })
        .await
        .unwrap();
    annotate_machine(&world, &name, names::REPLACEMENT.key(), Some("Shrink")).await;
    policy(&world, "machineDeletion: {replacement: Shrink}").await;
    annotate_machine(&world, &name, &hook, None).await;
    gone(&world, &name).await;
    world.settled("workers", 3).await.unwrap();
    assert_eq!(sizes(&world).await, (3, 3));
}

#[tokio::test(start_paused = true)]
async fn shrinking_below_the_autoscalers_minimum_is_said_and_a_foreign_size_is_left_alone() {
    let world = World::quickstart(3).await.unwrap();
    annotate_pool(&world, names::AUTOSCALER_MIN_SIZE.key(), Some("3")).await;
    let name = names_of(&world)[0].clone();
    annotate_machine(&world, &name, names::REPLACEMENT.key(), Some("Shrink")).await;
    delete(&world, &name).await;
    gone(&world, &name).await;
    world.settled("workers", 2).await.unwrap();
    let events = world.events(&name).await.unwrap();
    assert!(
        events.contains(&"SizeBelowMinimum".to_owned()),
        "{events:?}"
    );

    annotate_pool(&world, names::REPLICAS_MANAGED_BY.key(), Some("somebody")).await;
    let name = names_of(&world)[0].clone();
    annotate_machine(&world, &name, names::REPLACEMENT.key(), Some("Shrink")).await;
    delete(&world, &name).await;
    gone(&world, &name).await;
    world.settled("workers", 2).await.unwrap();
    let events = world.events(&name).await.unwrap();
    assert!(events.contains(&"SizeNotLowered".to_owned()), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_size_is_lowered_once_wherever_the_process_dies() {
    let mut points = 0;
    for side in [Side::Before, Side::After] {
        for write in 0.. {
            let mut world = World::quickstart(3).await.unwrap();
            let name = names_of(&world)[0].clone();
            annotate_machine(&world, &name, names::REPLACEMENT.key(), Some("Shrink")).await;
            world.fate.dies_at(write, side);
            delete(&world, &name).await;
            tokio::select! {
                () = world.fate.death() => {}
                () = tokio::time::sleep(5 * MINUTE) => {}
            }
            let died = world.fate.is_dead();
            if died {
                points += 1;
                world.restart().await.unwrap();
            }
            gone(&world, &name).await;
            world.settled("workers", 2).await.unwrap();
            assert_eq!(sizes(&world).await, (2, 2), "{side:?} write {write}");
            if !died {
                break;
            }
        }
    }
    assert!(points >= 12, "only {points} points to die at");
}

#[tokio::test(start_paused = true)]
async fn a_replacement_is_launched_in_the_zone_that_is_short() {
    let world = World::quickstart(6).await.unwrap();
    // Both of zone b go for good, so that b is short; then one of zone a is replaced: in b.
    let of_zone = |zone: &str| {
        let machines = world.machines("workers");
        let found = machines.iter().find(|machine| {
            machine
                .status
                .as_ref()
                .and_then(|s| s.failure_domain.as_deref())
                == Some(zone)
                && !machine.is_deleting()
        });
        found.unwrap().name_any()
    };
    for _ in 0..2 {
        let b = of_zone("b");
        annotate_machine(&world, &b, names::REPLACEMENT.key(), Some("Shrink")).await;
        delete(&world, &b).await;
        gone(&world, &b).await;
    }
    world.settled("workers", 4).await.unwrap();
    assert_eq!(world.spread("workers"), "a2 c2");
    let a = of_zone("a");
    delete(&world, &a).await;
    gone(&world, &a).await;
    world.settled("workers", 4).await.unwrap();
    assert_eq!(world.spread("workers"), "a1 b1 c2");
    world.scale("workers", 6).await.unwrap();
    world.settled("workers", 6).await.unwrap();
    assert_eq!(world.spread("workers"), "a2 b2 c2");
}

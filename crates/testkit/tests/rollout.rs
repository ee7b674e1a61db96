//! Stories of rollouts: outdated machines are replaced within their limits, and what holds them is said.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::reference::Conditioned;
use muster_api::{Machine, MachinePool, SimCluster, SimMachinePool};
use muster_testkit::world::World;
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

async fn policy(world: &World, rollout: &str) {
    let yaml = format!(
        "apiVersion: muster.dev/v1alpha1\nkind: MachinePoolPolicy\nmetadata: {{name: workers, namespace: default}}\nspec: {{machinePoolName: workers, rollout: {{{rollout}}}}}"
    );
    world.apply(&yaml).await.unwrap();
}

async fn template(world: &World, change: Value) {
    let pools: Api<SimMachinePool> = Api::namespaced(world.client.clone(), "default");
    let patch = json!({"spec": {"template": change}});
    pools
        .patch("workers", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

async fn version(world: &World, version: &str) {
    let pools: Api<MachinePool> = Api::namespaced(world.client.clone(), "default");
    let patch = json!({"spec": {"template": {"spec": {"version": version}}}});
    pools
        .patch("workers", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

fn says(world: &World, status: &str, reason: &str) -> bool {
    let pool = world.pool("workers").unwrap();
    pool.condition_of("RollingOut")
        .is_some_and(|c| c.status == status && c.reason == reason)
}

fn names_of(world: &World) -> Vec<String> {
    let machines = world.machines("workers");
    machines.iter().map(|machine| machine.name_any()).collect()
}

/// Waits until all machines are others than these; tells the fewest that were available and the most that were not
/// leaving.
async fn rolled(world: &World, before: &[String], size: usize) -> (usize, usize) {
    let (mut fewest, mut most) = (usize::MAX, 0);
    let end = tokio::time::Instant::now() + 120 * MINUTE;
    loop {
        let machines = world.machines("workers");
        let available = machines
            .iter()
            .filter(|m| m.is_true("Available") && !m.is_deleting())
            .count();
        fewest = fewest.min(available);
        most = most.max(machines.iter().filter(|m| !m.is_deleting()).count());
        let none_left = !names_of(world).iter().any(|name| before.contains(name));
        if none_left
            && available == size
            && machines.len() == size
            && says(world, "False", "NotRollingOut")
        {
            return (fewest, most);
        }
        assert!(tokio::time::Instant::now() < end, "{}", world.story());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn outdated_machines_are_replaced_one_more_at_a_time_and_zones_end_even() {
    let world = World::quickstart(6).await.unwrap();
    policy(&world, "type: RollingUpdate").await;
    let before = names_of(&world);
    template(&world, json!({"nodeLabels": {"generation": "two"}})).await;
    let (fewest, most) = rolled(&world, &before, 6).await;
    assert_eq!((fewest, most), (6, 7));
    world.settled("workers", 6).await.unwrap();
    assert_eq!(world.spread("workers"), "a2 b2 c2");
    let status = world.pool("workers").unwrap().status.clone().unwrap();
    assert_eq!(status.up_to_date_replicas, Some(6));
    assert_eq!(
        world.instances().await.unwrap().len(),
        6,
        "nobody went twice"
    );
}

#[tokio::test(start_paused = true)]
async fn without_places_beyond_the_size_as_many_are_missing_as_may_be() {
    let world = World::quickstart(6).await.unwrap();
    policy(
        &world,
        "type: RollingUpdate, maxSurge: 0, maxUnavailable: 2",
    )
    .await;
    let before = names_of(&world);
    template(&world, json!({"nodeLabels": {"generation": "two"}})).await;
    let (fewest, most) = rolled(&world, &before, 6).await;
    assert!(fewest >= 4 && most <= 6, "{fewest} {most}");
    world.settled("workers", 6).await.unwrap();
    assert_eq!(world.spread("workers"), "a2 b2 c2");
}

#[tokio::test(start_paused = true)]
async fn a_template_that_never_boots_stops_the_rollout_and_a_corrected_one_goes_on() {
    let world = World::quickstart(3).await.unwrap();
    policy(&world, "type: RollingUpdate").await;
    let before = names_of(&world);
    template(&world, json!({"bootDuration": "1000h"})).await;
    world
        .until("the stop", 30 * MINUTE, || async {
            says(&world, "True", "RolloutStopped")
        })
        .await
        .unwrap();
    tokio::time::sleep(60 * MINUTE).await;
    assert!(before.iter().all(|name| names_of(&world).contains(name)));
    assert_eq!(names_of(&world).len(), 4);
    assert!(
        world
            .pool_says("workers", "RollingOut")
            .contains("did not become available")
    );
    template(&world, json!({"bootDuration": "4s"})).await;
    let (fewest, most) = rolled(&world, &before, 3).await;
    assert_eq!((fewest, most <= 5), (3, true));
}

#[tokio::test(start_paused = true)]
async fn on_delete_nothing_goes_by_itself_and_what_is_deleted_comes_back_new() {
    let world = World::quickstart(3).await.unwrap();
    let before = names_of(&world);
    template(&world, json!({"nodeLabels": {"generation": "two"}})).await;
    world
        .until("the word", MINUTE, || async {
            world
                .pool_says("workers", "RollingOut")
                .contains("OnDelete")
        })
        .await
        .unwrap();
    tokio::time::sleep(30 * MINUTE).await;
    assert_eq!(names_of(&world), before);
    let machines: Api<Machine> = Api::namespaced(world.client.clone(), "default");
    machines
        .delete(&before[0], &DeleteParams::default())
        .await
        .unwrap();
    world
        .until("one new machine", 10 * MINUTE, || async {
            let status = world.pool("workers").unwrap().status.clone().unwrap();
            status.up_to_date_replicas == Some(1) && status.available_replicas == Some(3)
        })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_version_newer_than_the_control_plane_is_refused_until_that_is_upgraded() {
    let world = World::quickstart(3).await.unwrap();
    policy(&world, "type: RollingUpdate").await;
    let before = names_of(&world);
    version(&world, "v1.38.0").await;
    world
        .until("the refusal", MINUTE, || async {
            says(&world, "True", "RolloutRefused")
        })
        .await
        .unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(names_of(&world), before);
    assert!(
        world
            .pool_says("workers", "RollingOut")
            .contains("upgrade the control plane first")
    );
    let clusters: Api<SimCluster> = Api::namespaced(world.client.clone(), "default");
    let patch = json!({"spec": {"kubernetesVersion": "v1.38.0"}});
    clusters
        .patch("quickstart", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    rolled(&world, &before, 3).await;
    let status = world.pool("workers").unwrap().status.clone().unwrap();
    let versions: Vec<(&str, Option<i32>)> = status
        .versions
        .iter()
        .map(|v| (&*v.version, v.replicas))
        .collect();
    assert_eq!(versions, [("v1.38.0", Some(3))]);
}

#[tokio::test(start_paused = true)]
async fn an_observed_generation_is_never_seen_with_the_verdict_on_the_one_before() {
    let world = World::quickstart(3).await.unwrap();
    policy(&world, "type: RollingUpdate").await;
    let generation = world.pool("workers").unwrap().metadata.generation;
    version(&world, "v1.37.1").await;
    let pools: Api<MachinePool> = Api::namespaced(world.client.clone(), "default");
    let mut seen = false;
    for _ in 0..500 {
        let pool = pools.get("workers").await.unwrap();
        let status = pool.status.clone().unwrap();
        if status.observed_generation > generation && !seen {
            seen = true;
            assert_eq!(status.up_to_date_replicas, Some(0));
            assert_eq!(
                pool.condition_of("MachinesUpToDate").unwrap().status,
                "False"
            );
            assert_eq!(pool.condition_of("RollingOut").unwrap().status, "True");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(seen);
}

#[tokio::test(start_paused = true)]
async fn templates_that_change_in_the_midst_re_aim_and_the_size_is_followed() {
    let world = World::quickstart(6).await.unwrap();
    policy(
        &world,
        "type: RollingUpdate, maxSurge: 1, maxUnavailable: 1",
    )
    .await;
    let before = names_of(&world);
    template(&world, json!({"nodeLabels": {"generation": "two"}})).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    template(&world, json!({"nodeLabels": {"generation": "three"}})).await;
    world.scale("workers", 8).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    template(&world, json!({"nodeLabels": {"generation": "four"}})).await;
    world.scale("workers", 5).await.unwrap();
    rolled(&world, &before, 5).await;
    world.settled("workers", 5).await.unwrap();
    let made = world.instances().await.unwrap();
    let last = |label: &str| label == "four";
    assert!(made.iter().all(|i| {
        let labels = &i.spec.template.machine.node_labels;
        labels.get("generation").is_some_and(|label| last(label))
    }));
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_shrinks_with_deletions_by_hand_does_not_shrink_with_a_rollout() {
    let world = World::quickstart(3).await.unwrap();
    policy(
        &world,
        "type: RollingUpdate}, machineDeletion: {replacement: Shrink",
    )
    .await;
    let before = names_of(&world);
    template(&world, json!({"nodeLabels": {"generation": "two"}})).await;
    rolled(&world, &before, 3).await;
    assert_eq!(world.pool("workers").unwrap().desired_replicas(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_goes_on_wherever_the_process_dies() {
    for write in [0, 3, 7, 12, 20, 31] {
        for side in [
            muster_testkit::fault::Side::Before,
            muster_testkit::fault::Side::After,
        ] {
            let mut world = World::quickstart(3).await.unwrap();
            policy(&world, "type: RollingUpdate").await;
            let before = names_of(&world);
            world.fate.dies_at(write, side);
            template(&world, json!({"nodeLabels": {"generation": "two"}})).await;
            tokio::select! {
                () = world.fate.death() => {}
                () = tokio::time::sleep(10 * MINUTE) => {}
            }
            if world.fate.is_dead() {
                world.restart().await.unwrap();
            }
            let (fewest, _) = rolled(&world, &before, 3).await;
            assert_eq!(fewest, 3, "{side:?} write {write}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn three_hundred_machines_roll_a_tenth_at_a_time_while_some_of_them_fail() {
    let world = World::quickstart(300).await.unwrap();
    policy(
        &world,
        "type: RollingUpdate, maxSurge: 10%, maxUnavailable: 10%",
    )
    .await;
    let before = names_of(&world);
    template(&world, json!({"nodeLabels": {"generation": "two"}})).await;
    // The cloud takes some, each time another.
    for turn in 0..5_usize {
        tokio::time::sleep(Duration::from_secs(15)).await;
        let instances = world.instances().await.unwrap();
        let victim = &instances[turn * 37 % instances.len()];
        muster_provider_sim::console::terminate(
            &world.cloud().unwrap(),
            &victim.name_any(),
            world.clock.now(),
        )
        .await
        .unwrap();
    }
    let (fewest, most) = rolled(&world, &before, 300).await;
    assert!(fewest >= 265 && most <= 330, "{fewest} {most}");
    world.settled("workers", 300).await.unwrap();
    assert_eq!(world.spread("workers"), "a100 b100 c100");
}

#[tokio::test(start_paused = true)]
async fn a_template_that_says_the_same_in_other_words_rolls_nothing() {
    let world = World::quickstart(3).await.unwrap();
    policy(&world, "type: RollingUpdate").await;
    let before = names_of(&world);
    let same = json!({"bootDuration": "3000ms", "capacity": {"cpu": "4000m", "memory": "16384Mi"}});
    template(&world, same).await;
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(names_of(&world), before);
    assert!(says(&world, "False", "NotRollingOut"));
}

//! Stories of workload clusters whose API cannot be reached: what waits, what goes on, and what it says.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::reference::Conditioned;
use muster_api::{Cluster, Machine, MachinePool};
use muster_testkit::outage::Reach;
use muster_testkit::world::{self, World};
use serde_json::json;

const MINUTE: Duration = Duration::from_secs(60);

async fn delete(world: &World, name: &str) {
    let machines: Api<Machine> = Api::namespaced(world.client.clone(), "default");
    machines
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

fn is_gone(world: &World, name: &str) -> bool {
    !world
        .caches
        .machines
        .walk_all()
        .iter()
        .any(|machine| machine.name_any() == name)
}

fn cluster_says(world: &World, name: &str, type_: &str) -> (String, String) {
    let key = muster_informers::Key::new("default", name);
    let cluster = world.caches.clusters.get(&key).unwrap();
    let condition = cluster.condition_of(type_).unwrap();
    (condition.status.clone(), condition.message.clone())
}

async fn reached(world: &World, status: &str) {
    world
        .until("the probe's answer", 5 * MINUTE, || async {
            cluster_says(world, "quickstart", "RemoteConnectionProbe").0 == status
        })
        .await
        .unwrap();
}

/// Case C11.
#[tokio::test(start_paused = true)]
async fn a_deletion_waits_visibly_for_an_api_that_is_gone_and_ends_when_it_is_back() {
    for reach in [Reach::Silent, Reach::Refuses] {
        let world = World::quickstart(3).await.unwrap();
        let victim = world.machines("workers")[0].name_any();
        world.reach("quickstart", reach);
        reached(&world, "False").await;
        let (_, why) = cluster_says(&world, "quickstart", "RemoteConnectionProbe");
        assert!(why.contains("has not answered since"), "{why}");
        delete(&world, &victim).await;
        tokio::time::sleep(60 * MINUTE).await;
        assert!(!is_gone(&world, &victim), "{reach:?}");
        let why = world.machine_says(&victim, "Deleting");
        assert!(
            why.contains("the API of Cluster quickstart does not answer"),
            "{why}"
        );
        world.reach("quickstart", Reach::Answers);
        world
            .until("its end", 10 * MINUTE, || async {
                is_gone(&world, &victim)
            })
            .await
            .unwrap();
        reached(&world, "True").await;
        world.settled("workers", 3).await.unwrap();
    }
}

/// Defect D24, and case C2: limits apply to what cannot be asked, too.
#[tokio::test(start_paused = true)]
async fn the_limit_of_a_drain_holds_while_the_api_is_gone() {
    let world = World::quickstart(3).await.unwrap();
    let pools: Api<MachinePool> = Api::namespaced(world.client.clone(), "default");
    let limits = json!({"spec": {"template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 300, "nodeVolumeDetachTimeoutSeconds": 60}}}}});
    pools
        .patch("workers", &PatchParams::default(), &Patch::Merge(limits))
        .await
        .unwrap();
    let victim = world.machines("workers")[0].name_any();
    world
        .until("the limits on the Machine", MINUTE, || async {
            let machines = world.machines("workers");
            let limit = |m: &Machine| m.spec.deletion.as_ref()?.node_drain_timeout_seconds;
            machines.iter().all(|m| limit(m) == Some(300))
        })
        .await
        .unwrap();
    world.reach("quickstart", Reach::Silent);
    reached(&world, "False").await;
    delete(&world, &victim).await;
    tokio::time::sleep(4 * MINUTE).await;
    assert!(!is_gone(&world, &victim));
    world
        .until("its end", 4 * MINUTE, || async { is_gone(&world, &victim) })
        .await
        .unwrap();
    let events = world.events(&victim).await.unwrap();
    for reason in [
        "FailedDrainNode",
        "FailedWaitForVolumeDetach",
        "FailedDeleteNode",
    ] {
        assert!(events.iter().any(|event| event == reason), "{events:?}");
    }
}

/// A timeout that is set while a Machine is deleting already takes effect at once.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_changed_on_the_pool_reaches_a_machine_that_is_going() {
    let world = World::quickstart(3).await.unwrap();
    let victim = world.machines("workers")[0].name_any();
    world.reach("quickstart", Reach::Silent);
    reached(&world, "False").await;
    delete(&world, &victim).await;
    tokio::time::sleep(60 * MINUTE).await;
    assert!(!is_gone(&world, &victim));
    let pools: Api<MachinePool> = Api::namespaced(world.client.clone(), "default");
    let limits = json!({"spec": {"template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 600, "nodeVolumeDetachTimeoutSeconds": 60}}}}});
    pools
        .patch("workers", &PatchParams::default(), &Patch::Merge(limits))
        .await
        .unwrap();
    world
        .until("its end", 2 * MINUTE, || async { is_gone(&world, &victim) })
        .await
        .unwrap();
}

/// Case C11, its second half.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_deleted_waits_for_no_api() {
    let world = World::quickstart(3).await.unwrap();
    world.reach("quickstart", Reach::Silent);
    reached(&world, "False").await;
    delete(&world, &world.machines("workers")[0].name_any()).await;
    let clusters: Api<Cluster> = Api::namespaced(world.client.clone(), "default");
    clusters
        .delete("quickstart", &DeleteParams::default())
        .await
        .unwrap();
    world
        .until("the cluster's end", 5 * MINUTE, || async {
            world.caches.clusters.is_empty()
        })
        .await
        .unwrap();
    assert!(world.instances().await.unwrap().is_empty());
}

/// Case C12: silence of some clusters costs the others nothing.
#[tokio::test(start_paused = true)]
async fn clusters_that_are_silent_do_not_delay_the_others() {
    let world = World::start().await.unwrap();
    let name = |number: usize| format!("c{number}");
    // Enough machines in the silent ones that their passes, unbounded, would take every place there is.
    let size = |number| if number < 4 { 40 } else { 3 };
    for number in 0..10 {
        let manifests = world::quickstart(size(number))
            .replace("quickstart", &name(number))
            .replace("workers", &name(number));
        world.apply(&manifests).await.unwrap();
    }
    for number in 0..10 {
        world.settled(&name(number), size(number)).await.unwrap();
    }
    let time_to_cordon = async |pool: &str| {
        let victim = world.machines(pool)[0].clone();
        let begun = tokio::time::Instant::now();
        delete(&world, &victim.name_any()).await;
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(world.workload(pool).unwrap());
        world
            .until("its cordon", 30 * MINUTE, || async {
                let list = nodes.list(&ListParams::default()).await.unwrap().items;
                list.iter()
                    .any(|node| node.spec.as_ref().unwrap().unschedulable == Some(true))
            })
            .await
            .unwrap();
        begun.elapsed()
    };
    let before = time_to_cordon(&name(8)).await;
    for number in 0..4 {
        world.reach(&name(number), Reach::Silent);
        // Before anybody has noticed: all that is going on with them hangs.
        for machine in world.machines(&name(number)) {
            delete(&world, &machine.name_any()).await;
        }
    }
    let after = time_to_cordon(&name(9)).await;
    assert!(
        after <= before + Duration::from_millis(500),
        "{after:?} instead of {before:?}"
    );
}

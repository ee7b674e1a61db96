//! Hooks hold a deletion until their owner takes them away, whatever else happens.

use kube::ResourceExt;
use kube::api::DeleteParams;
use muster_api::{Cluster, Machine, names};
use muster_testkit::world::{LATER, World, instance_of};
use rstest::rstest;

fn hook(prefix: &str) -> String {
    format!("{prefix}/backup")
}

#[rstest]
#[case::pre_drain(names::PRE_DRAIN_HOOK, "WaitingForPreDrainHook")]
#[case::pre_terminate(names::PRE_TERMINATE_HOOK, "WaitingForPreTerminateHook")]
#[tokio::test(start_paused = true)]
async fn a_hook_holds_though_the_instance_is_ended_in_the_clouds_console(
    #[case] prefix: &str,
    #[case] step: &str,
) {
    let world = World::quickstart(3).await.unwrap();
    let victim = world.first("workers");
    let name = victim.name_any();
    world
        .annotate::<Machine>(&name, &hook(prefix), Some("x"))
        .await
        .unwrap();
    world.delete::<Machine>(&name).await.unwrap();
    world.deletion_at(&name, step).await.unwrap();
    world.terminate(&instance_of(&victim)).await.unwrap();
    tokio::time::sleep(LATER).await;
    let held = world.machine(&name).expect("the hook holds");
    assert_eq!(held.uid(), victim.uid());
    assert!(world.machine_says(&name, "Deleting").contains("backup"));
    // The pool has its three all the same.
    assert_eq!(world.live_instances().await.unwrap().len(), 3);
    world
        .annotate::<Machine>(&name, &hook(prefix), None)
        .await
        .unwrap();
    world.gone(&name).await.unwrap();
    world.settled("workers", 3).await.unwrap();
}

#[rstest]
#[case::pre_drain(names::PRE_DRAIN_HOOK, "WaitingForPreDrainHook")]
#[case::pre_terminate(names::PRE_TERMINATE_HOOK, "WaitingForPreTerminateHook")]
#[tokio::test(start_paused = true)]
async fn a_hook_that_is_added_while_another_holds_is_waited_for_too(
    #[case] prefix: &str,
    #[case] step: &str,
) {
    let world = World::quickstart(3).await.unwrap();
    let name = world.first("workers").name_any();
    let (first, second) = (format!("{prefix}/first"), format!("{prefix}/second"));
    world
        .annotate::<Machine>(&name, &first, Some(""))
        .await
        .unwrap();
    world.delete::<Machine>(&name).await.unwrap();
    world.deletion_at(&name, step).await.unwrap();
    world
        .annotate::<Machine>(&name, &second, Some(""))
        .await
        .unwrap();
    world
        .says(&name, "Deleting", "(hooks: first, second)")
        .await
        .ok();
    world
        .annotate::<Machine>(&name, &first, None)
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert!(world.machine_says(&name, "Deleting").contains("second"));
    world
        .annotate::<Machine>(&name, &second, None)
        .await
        .unwrap();
    world.gone(&name).await.unwrap();
    let times = world.events(&name).await.unwrap();
    assert!(times.contains(&step.to_owned()), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_deleted_waits_for_no_pre_drain_hook() {
    let world = World::quickstart(1).await.unwrap();
    let name = world.first("workers").name_any();
    let hook = hook(names::PRE_DRAIN_HOOK);
    world
        .annotate::<Machine>(&name, &hook, Some(""))
        .await
        .unwrap();
    let clusters = world.api::<Cluster>();
    clusters
        .delete("quickstart", &DeleteParams::default())
        .await
        .unwrap();
    world
        .until("the cluster's end", LATER, || async {
            world.caches.clusters.is_empty()
        })
        .await
        .unwrap();
}

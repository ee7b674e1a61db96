//! Deletion with each propagation policy ends, drains first, and leaves what it says it leaves.

use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use kube::{Api, Resource, ResourceExt};
use muster_api::{Cluster, Machine, MachinePool, SimCluster, SimMachine, SimMachinePool};
use muster_testkit::witness::Witness;
use muster_testkit::world::{LATER, World, instance_of, quickstart};
use rstest::rstest;

use super::support::{pool_gone, start_workload};

async fn count<K>(world: &World) -> usize
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let all = Api::<K>::all(world.client.clone());
    all.list(&ListParams::default()).await.unwrap().items.len()
}

#[rstest]
#[case::background(PropagationPolicy::Background)]
#[case::foreground(PropagationPolicy::Foreground)]
#[tokio::test(start_paused = true)]
async fn a_pool_ends_and_its_machines_are_drained_first(#[case] how: PropagationPolicy) {
    let world = World::quickstart(3).await.unwrap();
    let client = start_workload(&world).await;
    let witness = Witness::start(client, "web");
    let names = world.names("workers");
    world
        .delete_with::<MachinePool>("workers", how)
        .await
        .unwrap();
    pool_gone(&world, "workers").await;
    assert_eq!(count::<SimMachinePool>(&world).await, 0);
    for name in names {
        let events = world.events(&name).await.unwrap();
        let place = |reason: &str| events.iter().position(|event| event == reason);
        assert!(
            place("DrainingNode").is_some()
                && place("DrainingNode") < place("WaitingForInfrastructureDeletion"),
            "{name}: {events:?}"
        );
    }
    let leaving = witness.leaving();
    let evicted: Vec<_> = leaving.values().filter(|pod| !pod.daemon).collect();
    assert!(
        !evicted.is_empty() && evicted.iter().all(|pod| pod.cordoned),
        "{leaving:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_machines_of_an_orphaned_pool_stay_and_the_next_pool_of_its_name_adopts_them() {
    let world = World::quickstart(3).await.unwrap();
    start_workload(&world).await;
    let before: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    let instances = world.live_instances().await.unwrap();
    world
        .delete_with::<MachinePool>("workers", PropagationPolicy::Orphan)
        .await
        .unwrap();
    world
        .until("the pool's end", LATER, || async {
            world.pool("workers").is_none()
        })
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(world.live_instances().await.unwrap(), instances);
    let orphans = world.api::<Machine>().list(&ListParams::default()).await;
    let orphans = orphans.unwrap().items;
    assert!(orphans.len() == 3 && orphans.iter().all(|machine| !machine.is_deleting()));
    world.apply(&quickstart(3)).await.unwrap();
    world.settled("workers", 3).await.unwrap();
    let after: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    assert_eq!(after, before, "the same Machines");
    assert_eq!(world.live_instances().await.unwrap(), instances);
    let uid = world.pool("workers").unwrap().uid();
    for machine in world.machines("workers") {
        let owners = machine.owner_references();
        assert_eq!(owners[0].controller, Some(true));
        assert_eq!(Some(owners[0].uid.clone()), uid);
    }
    // It is a pool as any other: a Machine that is deleted is replaced.
    let gone = world.first("workers");
    world.delete::<Machine>(&gone.name_any()).await.unwrap();
    world.gone(&gone.name_any()).await.unwrap();
    world.settled("workers", 3).await.unwrap();
}

#[rstest]
#[case::background(PropagationPolicy::Background)]
#[case::foreground(PropagationPolicy::Foreground)]
#[case::orphan(PropagationPolicy::Orphan)]
#[tokio::test(start_paused = true)]
async fn a_machine_ends_with_its_instance(#[case] how: PropagationPolicy) {
    let world = World::quickstart(3).await.unwrap();
    let victim = world.first("workers");
    let name = victim.name_any();
    world.delete_with::<Machine>(&name, how).await.unwrap();
    world.gone(&name).await.unwrap();
    world.settled("workers", 3).await.unwrap();
    let instances = world.instances().await.unwrap();
    assert!(
        !instances
            .iter()
            .any(|i| i.name_any() == instance_of(&victim)),
        "its instance is gone: an instance without a Machine is nobody's"
    );
    assert_eq!(count::<SimMachine>(&world).await, 3);
}

#[rstest]
#[case::background(PropagationPolicy::Background)]
#[case::foreground(PropagationPolicy::Foreground)]
#[tokio::test(start_paused = true)]
async fn a_cluster_ends_with_everything_in_it(#[case] how: PropagationPolicy) {
    let world = World::quickstart(3).await.unwrap();
    start_workload(&world).await;
    world
        .delete_with::<Cluster>("quickstart", how)
        .await
        .unwrap();
    world
        .until("the cluster's end", LATER, || async {
            world.caches.clusters.is_empty()
        })
        .await
        .unwrap();
    assert_eq!(count::<MachinePool>(&world).await, 0);
    assert_eq!(count::<Machine>(&world).await, 0);
    assert_eq!(count::<SimMachine>(&world).await, 0);
    assert_eq!(count::<SimMachinePool>(&world).await, 0);
    assert_eq!(count::<SimCluster>(&world).await, 0);
    assert!(world.instances().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_pools_of_an_orphaned_cluster_stay_and_the_next_cluster_of_its_name_adopts_them() {
    let world = World::quickstart(3).await.unwrap();
    let before: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    let instances = world.live_instances().await.unwrap();
    world
        .delete_with::<Cluster>("quickstart", PropagationPolicy::Orphan)
        .await
        .unwrap();
    world
        .until("the cluster's end", LATER, || async {
            world.caches.clusters.is_empty()
        })
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(world.live_instances().await.unwrap(), instances);
    world.apply(&quickstart(3)).await.unwrap();
    world.settled("workers", 3).await.unwrap();
    let after: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    assert_eq!(after, before, "the same Machines");
    assert_eq!(world.live_instances().await.unwrap(), instances);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_ends_with_everything_in_it() {
    let world = World::start().await.unwrap();
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n---\n";
    let manifests = quickstart(3).replace("namespace: default", "namespace: team");
    world
        .apply(&format!("{namespace}{manifests}"))
        .await
        .unwrap();
    let machines: Api<Machine> = Api::namespaced(world.client.clone(), "team");
    world
        .until("three Machines that run", LATER, || async {
            let list = machines.list(&ListParams::default()).await.unwrap().items;
            list.len() == 3 && list.iter().all(|m| m.node_name().is_some())
        })
        .await
        .unwrap();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(world.client.clone());
    namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap();
    world
        .until("the namespace's end", LATER, || async {
            namespaces.get_opt("team").await.unwrap().is_none()
        })
        .await
        .unwrap();
    assert!(world.instances().await.unwrap().is_empty());
    assert_eq!(count::<SimMachine>(&world).await, 0);
}

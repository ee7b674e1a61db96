//! Deletions in every mode with Kubernetes' own garbage collector and namespace controller, on a real API server: what the
//! stories in virtual time say of the embedded ones holds for these too.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use kube::{Api, Resource, ResourceExt};
use muster_api::{Cluster, Machine, MachinePool, SimCluster, SimMachine, SimMachinePool, owners};
use muster_testkit::control_plane::ControlPlane;
use muster_testkit::world::{LATER, World, instance_of, quickstart};

async fn count<K>(world: &World) -> usize
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let all = Api::<K>::all(world.client.clone());
    all.list(&ListParams::default()).await.unwrap().items.len()
}

async fn pool_gone(world: &World) {
    world
        .until("the pool's end", LATER, || async {
            world.pool("workers").is_none()
        })
        .await
        .unwrap();
}

/// Nothing of pool and Machines is left, and the drains came before the instances' ends.
async fn taken_apart(world: &World, machines: &[String]) {
    assert_eq!(count::<Machine>(world).await, 0);
    assert_eq!(count::<SimMachine>(world).await, 0);
    assert_eq!(count::<SimMachinePool>(world).await, 0);
    assert!(world.instances().await.unwrap().is_empty());
    for name in machines {
        let events = world.events(name).await.unwrap();
        let place = |reason: &str| events.iter().position(|event| event == reason);
        assert!(
            place("DrainingNode").is_some()
                && place("DrainingNode") < place("WaitingForInfrastructureDeletion"),
            "{name}: {events:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mode_of_deletion_ends_with_kubernetes_own_collector() {
    let Some(mut plane) = ControlPlane::start(1).await.unwrap() else {
        return;
    };
    let world = World::on(plane.client().await.unwrap()).await.unwrap();
    if !plane.start_controllers().unwrap() {
        return;
    }
    let pool = quickstart(2).replace("bootDuration: 3s", "bootDuration: 200ms");

    for how in [PropagationPolicy::Background, PropagationPolicy::Foreground] {
        world.apply(&pool).await.unwrap();
        world.settled("workers", 2).await.unwrap();
        let machines = world.names("workers");
        world
            .delete_with::<MachinePool>("workers", how)
            .await
            .unwrap();
        pool_gone(&world).await;
        taken_apart(&world, &machines).await;
    }

    // Orphans stay, and are the next pool's.
    world.apply(&pool).await.unwrap();
    world.settled("workers", 2).await.unwrap();
    let before: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    let instances = world.live_instances().await.unwrap();
    world
        .delete_with::<MachinePool>("workers", PropagationPolicy::Orphan)
        .await
        .unwrap();
    pool_gone(&world).await;
    world.apply(&pool).await.unwrap();
    world
        .until("the Machines to be adopted", LATER, || async {
            let Some(pool) = world.pool("workers") else {
                return false;
            };
            let machines = world.machines("workers");
            machines.len() == 2
                && machines
                    .iter()
                    .all(|machine| owners::is_controlled_by(&**machine, &*pool))
        })
        .await
        .unwrap();
    world.settled("workers", 2).await.unwrap();
    let after: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    assert_eq!(after, before, "the same Machines");
    assert_eq!(world.live_instances().await.unwrap(), instances);

    for how in [
        PropagationPolicy::Background,
        PropagationPolicy::Foreground,
        PropagationPolicy::Orphan,
    ] {
        let victim = world.first("workers");
        world
            .delete_with::<Machine>(&victim.name_any(), how)
            .await
            .unwrap();
        world.gone(&victim.name_any()).await.unwrap();
        world.settled("workers", 2).await.unwrap();
        let left = world.live_instances().await.unwrap();
        assert!(!left.contains(&instance_of(&victim)));
        assert_eq!(count::<SimMachine>(&world).await, 2);
    }

    world
        .delete_with::<Cluster>("quickstart", PropagationPolicy::Foreground)
        .await
        .unwrap();
    world
        .until("the cluster's end", LATER, || async {
            world.caches.clusters.is_empty()
        })
        .await
        .unwrap();
    assert_eq!(count::<MachinePool>(&world).await, 0);
    assert_eq!(count::<SimCluster>(&world).await, 0);
    assert_eq!(count::<Machine>(&world).await, 0);
    assert!(world.instances().await.unwrap().is_empty());

    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n---\n";
    let manifests = pool.replace("namespace: default", "namespace: team");
    world
        .apply(&format!("{namespace}{manifests}"))
        .await
        .unwrap();
    let machines: Api<Machine> = Api::namespaced(world.client.clone(), "team");
    world
        .until("two Machines that run", LATER, || async {
            let list = machines.list(&ListParams::default()).await.unwrap().items;
            list.len() == 2 && list.iter().all(|m| m.node_name().is_some())
        })
        .await
        .unwrap();
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
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
}

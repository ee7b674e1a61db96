//! What is paused is left alone, deletion and all, and says whose will that is; unpaused, it goes on.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::ListParams;
use muster_api::reference::Conditioned as _;
use muster_api::{Cluster, Machine, MachinePool, SimMachine, SimMachinePool, names};
use muster_testkit::world::{LATER, World};
use serde_json::json;

const OWN: &str = "annotation";
const CLUSTERS: &str = "Cluster spec.paused is set to true";

/// Writes to the management cluster so far.
fn writes(world: &World) -> Vec<((String, String), u64)> {
    let requests = world.host.existing("management").unwrap().requests();
    let quiet = ["get", "list", "watch"];
    let writes = requests
        .iter()
        .filter(|((verb, _), _)| !quiet.contains(&verb.as_str()));
    writes.map(|(what, count)| (what.clone(), *count)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_paused_cluster_stands_still_and_all_of_it_says_so() {
    let world = World::quickstart(2).await.unwrap();
    let pause = |on: bool| json!({"spec": {"paused": on}});
    world
        .patch::<Cluster>("quickstart", pause(true))
        .await
        .unwrap();
    let name = world.first("workers").name_any();
    world
        .until("everything to say so", LATER, || async {
            let cluster = world.api::<Cluster>().get("quickstart").await.unwrap();
            let infra = world.api::<SimMachinePool>().get("workers").await.unwrap();
            let told =
                |said: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>| {
                    said.is_some_and(|said| said.status == "True" && said.message == CLUSTERS)
                };
            told(cluster.condition_of("Paused"))
                && told(infra.condition_of("Paused"))
                && world.pool_says("workers", "Paused") == CLUSTERS
                && world.machine_says(&name, "Paused") == CLUSTERS
        })
        .await
        .unwrap();
    // Whatever is asked for now is done later: a size, a deletion of a Machine, of the pool, of the Cluster.
    let instances = world.live_instances().await.unwrap();
    world.scale("workers", 4).await.unwrap();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .delete::<SimMachine>(&world.names("workers")[1])
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    let before = writes(&world);
    tokio::time::sleep(LATER).await;
    assert_eq!(writes(&world), before, "nothing is written");
    assert_eq!(world.live_instances().await.unwrap(), instances);
    world.delete::<MachinePool>("workers").await.unwrap();
    world.delete::<Cluster>("quickstart").await.unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(world.live_instances().await.unwrap(), instances);
    assert_eq!(world.machines("workers").len(), 2);
    world
        .patch::<Cluster>("quickstart", pause(false))
        .await
        .unwrap();
    world
        .until("the cluster's end", LATER, || async {
            world.caches.clusters.is_empty()
        })
        .await
        .unwrap();
    assert!(world.instances().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_paused_pool_is_not_taken_apart_and_goes_when_it_is_unpaused() {
    let world = World::quickstart(2).await.unwrap();
    let paused = names::PAUSED.key();
    world
        .annotate::<MachinePool>("workers", paused, Some(""))
        .await
        .unwrap();
    world.pool_tells("workers", "Paused", OWN).await.unwrap();
    let instances = world.live_instances().await.unwrap();
    world.delete::<MachinePool>("workers").await.unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(world.live_instances().await.unwrap(), instances);
    assert!(world.machines("workers").iter().all(|m| !m.is_deleting()));
    world
        .annotate::<MachinePool>("workers", paused, None)
        .await
        .unwrap();
    world
        .until("the pool's end", LATER, || async {
            world.pool("workers").is_none()
        })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_paused_machine_and_a_paused_infra_machine_keep_their_instance() {
    let world = World::quickstart(2).await.unwrap();
    let paused = names::PAUSED.key();
    let (first, second) = (
        world.names("workers")[0].clone(),
        world.names("workers")[1].clone(),
    );
    world
        .annotate::<Machine>(&first, paused, Some(""))
        .await
        .unwrap();
    world
        .annotate::<SimMachine>(&second, paused, Some(""))
        .await
        .unwrap();
    world.says(&first, "Paused", OWN).await.unwrap();
    world
        .until("the InfraMachine to say so", LATER, || async {
            let infra = world.api::<SimMachine>().get(&second).await.unwrap();
            infra
                .condition_of("Paused")
                .is_some_and(|said| said.status == "True")
        })
        .await
        .unwrap();
    let instances = world.live_instances().await.unwrap();
    world.delete::<Machine>(&first).await.unwrap();
    world.delete::<Machine>(&second).await.unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(world.live_instances().await.unwrap(), instances);
    let nodes: kube::Api<Node> = kube::Api::all(world.workload("quickstart").unwrap());
    let all = nodes.list(&ListParams::default()).await.unwrap().items;
    let open = all
        .iter()
        .filter(|node| node.spec.as_ref().unwrap().unschedulable != Some(true));
    assert!(open.count() >= 1, "the paused one is not cordoned");
    world
        .annotate::<Machine>(&first, paused, None)
        .await
        .unwrap();
    world
        .annotate::<SimMachine>(&second, paused, None)
        .await
        .unwrap();
    world.gone(&first).await.unwrap();
    world.gone(&second).await.unwrap();
    world.settled("workers", 2).await.unwrap();
}

//! Objects of somebody else's that stand in the way: they are not touched, they are named, and they disturb nothing else.

use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use muster_api::{Machine, MachinePool};
use muster_testkit::world::{LATER, SOON, World, instance_of};
use serde_json::{Value, json};

/// A Machine of that name that a Secret controls, which is nobody that Muster knows of.
fn foreign(name: &str, infra: &str, owner: &str) -> Machine {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {
            "name": name, "labels": {"cluster.x-k8s.io/pool-name": "workers", "mine": "yes"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "workers-bootstrap", "uid": owner, "controller": true}],
        },
        "spec": {
            "clusterName": "quickstart", "bootstrap": {"dataSecretName": ""},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "SimMachine", "name": infra},
        },
    }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_foreign_machine_of_an_infra_machines_name_is_named_and_stays_as_it_is() {
    let world = World::quickstart(2).await.unwrap();
    // It takes the name of a Machine that has gone, before the pool can.
    let victim = world.first("workers");
    let name = victim.name_any();
    let pause = |on: Option<&'static str>| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": on}}});
    world
        .patch::<MachinePool>("workers", pause(Some("")))
        .await
        .unwrap();
    world
        .pool_tells("workers", "Paused", "annotation")
        .await
        .unwrap();
    let strip = json!({"metadata": {"finalizers": null, "ownerReferences": null}});
    world
        .patch::<muster_api::SimMachine>(&name, json!({"metadata": {"ownerReferences": null}}))
        .await
        .unwrap();
    world.patch::<Machine>(&name, strip).await.unwrap();
    world.delete::<Machine>(&name).await.unwrap();
    let other = foreign(&name, "elsewhere", &secret_uid(&world).await);
    let created = world
        .api::<Machine>()
        .create(&PostParams::default(), &other)
        .await
        .unwrap();
    world
        .patch::<MachinePool>("workers", pause(None))
        .await
        .unwrap();
    world
        .pool_tells(
            "workers",
            "MachinesReady",
            &format!("Machine {name}: exists already and belongs to Secret workers-bootstrap"),
        )
        .await
        .unwrap();
    // Others go on: the pool grows, and the labels of its template reach its own.
    world.scale("workers", 4).await.unwrap();
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"tier": "gold"}}}}});
    world.patch::<MachinePool>("workers", labels).await.unwrap();
    world
        .until("three of its own with the label", LATER, || async {
            let gold =
                |m: &&std::sync::Arc<Machine>| m.labels().get("tier").is_some_and(|t| t == "gold");
            world.machines("workers").iter().filter(gold).count() == 3
        })
        .await
        .unwrap();
    let now = world.api::<Machine>().get(&name).await.unwrap();
    assert_eq!(now.uid(), created.uid());
    assert_eq!(now.spec, created.spec);
    assert_eq!(now.labels(), created.labels());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_machine_that_refers_to_an_infra_machine_holds_nothing_up() {
    let world = World::quickstart(2).await.unwrap();
    let name = world.first("workers").name_any();
    let other = foreign("stranger", &name, &secret_uid(&world).await);
    let machines = world.api::<Machine>();
    machines
        .create(&PostParams::default(), &other)
        .await
        .unwrap();
    tokio::time::sleep(SOON).await;
    world.delete::<Machine>(&name).await.unwrap();
    world.gone(&name).await.unwrap();
    assert!(machines.get_opt("stranger").await.unwrap().is_some());
}

async fn secret_uid(world: &World) -> String {
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(world.client.clone(), "default");
    secrets
        .get("workers-bootstrap")
        .await
        .unwrap()
        .uid()
        .unwrap()
}

/// A Node that claims an instance.
fn rogue(name: &str, provider_id: &str) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}}))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_second_node_that_claims_a_bound_instance_takes_nothing() {
    let world = World::quickstart(2).await.unwrap();
    let machine = world.first("workers");
    let name = machine.name_any();
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    let id = machine.spec.provider_id.clone().unwrap();
    nodes
        .create(&PostParams::default(), &rogue("rogue", &id))
        .await
        .unwrap();
    tokio::time::sleep(SOON).await;
    assert_eq!(
        world.machine(&name).unwrap().node_name(),
        machine.node_name()
    );
    world.says(&name, "NodeReady", "rogue").await.unwrap();
    let untouched = nodes.get("rogue").await.unwrap();
    assert!(
        untouched.annotations().is_empty(),
        "{:?}",
        untouched.annotations()
    );
    world.delete::<Machine>(&name).await.unwrap();
    world.gone(&name).await.unwrap();
    assert!(
        nodes
            .get_opt(machine.node_name().unwrap())
            .await
            .unwrap()
            .is_none()
    );
    assert_ne!(
        nodes
            .get("rogue")
            .await
            .unwrap()
            .spec
            .unwrap()
            .unschedulable,
        Some(true)
    );
    world.settled("workers", 2).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_claims_an_instance_before_the_true_one_loses_it_to_it() {
    let world = World::quickstart(1).await.unwrap();
    world.scale("workers", 2).await.unwrap();
    world
        .until("the second Machine", SOON, || async {
            world.machines("workers").len() == 2
        })
        .await
        .unwrap();
    let new = world
        .machines("workers")
        .into_iter()
        .find(|m| m.node_name().is_none())
        .unwrap();
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    let id = new.spec.provider_id.clone().unwrap();
    nodes
        .create(&PostParams::default(), &rogue("rogue", &id))
        .await
        .unwrap();
    let name = new.name_any();
    let true_node = instance_of(&new);
    world
        .until("the true Node's binding", LATER, || async {
            world
                .machine(&name)
                .is_some_and(|m| m.node_name() == Some(&true_node))
        })
        .await
        .unwrap();
    world.says(&name, "NodeReady", "rogue").await.unwrap();
    world.delete::<Machine>(&name).await.unwrap();
    world.gone(&name).await.unwrap();
    assert!(nodes.get_opt(&true_node).await.unwrap().is_none());
    let rogue: Value = json!(nodes.get("rogue").await.unwrap());
    assert_ne!(rogue["spec"]["unschedulable"], true);
}

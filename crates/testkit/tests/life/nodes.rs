//! Nodes and Machines find each other, whatever comes first, goes or comes again.

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::machine::MachinePhase;
use muster_api::reference::Conditioned as _;
use muster_api::{Machine, MachinePool, SimMachine, names, owners};
use muster_testkit::outage::Reach;
use muster_testkit::scripted::{Contract, Scripted, node};
use muster_testkit::world::{LATER, SOON, World, instance_of};
use rstest::rstest;
use serde_json::json;

use super::support::foreign_pool;

fn nodes(world: &World) -> Api<Node> {
    Api::all(world.workload("quickstart").unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_by_hand_leaves_its_machine_which_takes_it_when_it_is_back() {
    let (world, _) = foreign_pool(Contract::V1Beta2, "scripted:///one").await;
    let workload = world.workload("quickstart").unwrap();
    node(&workload, "node-one", "scripted:///one", true)
        .await
        .unwrap();
    world.settled("foreign", 1).await.unwrap();
    let uid = |world: &World| {
        let pool = world.pool("foreign").unwrap();
        let refs = pool.status.as_ref().unwrap().node_refs.clone();
        (
            refs.first().and_then(|r| r.name.clone()),
            refs.first().and_then(|r| r.uid.clone()),
        )
    };
    let before = uid(&world);
    // Gone and back at once: nothing of the Machine ends up different, but the Node is another.
    nodes(&world)
        .delete("node-one", &DeleteParams::default())
        .await
        .unwrap();
    node(&workload, "node-one", "scripted:///one", true)
        .await
        .unwrap();
    let wanted = nodes(&world).get("node-one").await.unwrap().uid();
    world
        .until("the uid of the new Node", SOON, || async {
            uid(&world).1 == wanted
        })
        .await
        .unwrap();
    assert_ne!(uid(&world).1, before.1);
    // Gone for a while: said, and nothing is deleted for it.
    nodes(&world)
        .delete("node-one", &DeleteParams::default())
        .await
        .unwrap();
    world
        .says("one", "NodeReady", "Node node-one has been deleted")
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert!(!world.machine("one").unwrap().is_deleting());
    // Back under another name.
    node(&workload, "node-two", "scripted:///one", true)
        .await
        .unwrap();
    world.settled("foreign", 1).await.unwrap();
    world
        .until("the new name", SOON, || async {
            uid(&world).0.as_deref() == Some("node-two")
        })
        .await
        .unwrap();
    assert_eq!(world.machine("one").unwrap().node_name(), Some("node-two"));
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_deleted_while_its_node_is_missing() {
    let world = World::quickstart(2).await.unwrap();
    let machine = world.first("workers");
    nodes(&world)
        .delete(machine.node_name().unwrap(), &DeleteParams::default())
        .await
        .unwrap();
    world
        .says(&machine.name_any(), "NodeReady", "has been deleted")
        .await
        .unwrap();
    world.delete::<Machine>(&machine.name_any()).await.unwrap();
    world.gone(&machine.name_any()).await.unwrap();
    world.settled("workers", 2).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_there_before_its_machine_is_bound_to_it() {
    let world = World::quickstart(0).await.unwrap();
    let workload = world.workload("quickstart").unwrap();
    node(&workload, "node-one", "scripted:///one", true)
        .await
        .unwrap();
    let provider = Scripted::define(&world, Contract::V1Beta2).await.unwrap();
    provider
        .create("ScriptedMachinePool", "foreign")
        .await
        .unwrap();
    world
        .apply(&Scripted::manifest("foreign", 1, &json!({})))
        .await
        .unwrap();
    provider
        .machine("foreign", "one", "scripted:///one")
        .await
        .unwrap();
    provider.has("foreign", &["scripted:///one"]).await.unwrap();
    world.settled("foreign", 1).await.unwrap();
    assert_eq!(world.machine("one").unwrap().node_name(), Some("node-one"));
}

/// Case C18.
#[tokio::test(start_paused = true)]
async fn an_instance_whose_id_has_no_zone_is_the_one_whose_node_names_it() {
    let (world, _) = foreign_pool(Contract::V1Beta2, "aws:////i-1").await;
    let workload = world.workload("quickstart").unwrap();
    node(&workload, "node-one", "aws:///eu-west-1a/i-1", true)
        .await
        .unwrap();
    world.settled("foreign", 1).await.unwrap();
    assert_eq!(world.machine("one").unwrap().node_name(), Some("node-one"));
    world.delete::<Machine>("one").await.unwrap();
    world.gone("one").await.unwrap();
    assert!(nodes(&world).get_opt("node-one").await.unwrap().is_none());
}

/// Case C19.
#[tokio::test(start_paused = true)]
async fn a_node_whose_id_is_nearly_the_machines_is_named() {
    let id = "azure:///subscriptions/s/resourceGroups/MyGroup/x/0";
    let (world, _) = foreign_pool(Contract::V1Beta2, id).await;
    let workload = world.workload("quickstart").unwrap();
    let other = "azure:///subscriptions/s/resourceGroups/mygroup/x/0";
    node(&workload, "node-one", other, true).await.unwrap();
    let near = world.says("one", "NodeReady", other);
    let bound = world.settled("foreign", 1);
    tokio::select! {
        told = near => told.unwrap(),
        bound = bound => bound.unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn owners_finalizers_and_names_tie_machines_to_pool_and_instance() {
    let world = World::quickstart(2).await.unwrap();
    let pool = world.pool("workers").unwrap();
    for machine in world.machines("workers") {
        let name = machine.name_any();
        assert!(owners::is_controlled_by(&*machine, &*pool));
        assert_eq!(machine.finalizers(), [names::MACHINE_FINALIZER]);
        assert_eq!(
            machine.spec.infrastructure_ref.name, name,
            "names are equal"
        );
        let infra = world.api::<SimMachine>().get(&name).await.unwrap();
        assert!(owners::is_controlled_by(&infra, &*machine));
        assert_eq!(infra.finalizers(), [names::INFRA_MACHINE_FINALIZER]);
        let node = nodes(&world)
            .get(machine.node_name().unwrap())
            .await
            .unwrap();
        assert_eq!(names::NODE_MACHINE.text(&node), Some(name.as_str()));
        assert_eq!(names::NODE_OWNER_KIND.text(&node), Some("MachinePool"));
        assert_eq!(names::NODE_OWNER_NAME.text(&node), Some("workers"));
    }
    // A Machine without its finalizer, and one without its owner, get them back.
    let name = world.first("workers").name_any();
    let strip = json!({"metadata": {"finalizers": null, "ownerReferences": null}});
    world.patch::<Machine>(&name, strip).await.unwrap();
    world
        .until("owner and finalizer", SOON, || async {
            let machine = world.machine(&name).unwrap();
            owners::is_controlled_by(&*machine, &*pool)
                && machine.finalizers() == [names::MACHINE_FINALIZER]
        })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_is_written_once_when_its_machine_finds_it() {
    let world = World::quickstart(3).await.unwrap();
    tokio::time::sleep(LATER).await;
    let requests = world
        .host
        .existing("default.quickstart")
        .unwrap()
        .requests();
    let patches = requests
        .get(&("patch".to_owned(), "nodes".to_owned()))
        .copied()
        .unwrap_or(0);
    assert_eq!(
        patches, 3,
        "one write for each of three Nodes: {requests:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_others_put_on_a_node_stays_and_what_came_from_the_template_goes_with_it() {
    let world = World::quickstart(1).await.unwrap();
    let name = world.first("workers").node_name().unwrap().to_owned();
    let theirs = json!({"metadata": {"labels": {"node.cluster.x-k8s.io/theirs": "yes"}, "annotations": {"note": "theirs"}},
        "spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}});
    nodes(&world)
        .patch(&name, &PatchParams::default(), &Patch::Merge(theirs))
        .await
        .unwrap();
    let taint = |propagation: &str| {
        json!({"spec": {"template": {
        "metadata": {"annotations": {"node.cluster.x-k8s.io/from-template": "x"}},
        "spec": {"taints": [{"key": "ours", "effect": "NoSchedule", "propagation": propagation}]}}}})
    };
    let keys = |node: &Node| -> Vec<String> {
        node.spec
            .as_ref()
            .unwrap()
            .taints
            .iter()
            .flatten()
            .map(|t| t.key.clone())
            .collect()
    };
    // One that is only for the beginning does not come late.
    world
        .patch::<MachinePool>("workers", taint("OnInitialization"))
        .await
        .unwrap();
    world
        .until("the annotation", SOON, || async {
            let node = nodes(&world).get(&name).await.unwrap();
            node.annotations()
                .contains_key("node.cluster.x-k8s.io/from-template")
        })
        .await
        .unwrap();
    assert_eq!(keys(&nodes(&world).get(&name).await.unwrap()), ["theirs"]);
    world
        .patch::<MachinePool>("workers", taint("Always"))
        .await
        .unwrap();
    world
        .until("the taint", SOON, || async {
            keys(&nodes(&world).get(&name).await.unwrap()).contains(&"ours".to_owned())
        })
        .await
        .unwrap();
    let none = json!({"spec": {"template": {"metadata": {"annotations": null}, "spec": {"taints": null}}}});
    world.patch::<MachinePool>("workers", none).await.unwrap();
    world
        .until("their end", SOON, || async {
            let node = nodes(&world).get(&name).await.unwrap();
            keys(&node) == ["theirs"]
                && !node
                    .annotations()
                    .contains_key("node.cluster.x-k8s.io/from-template")
        })
        .await
        .unwrap();
    let node = nodes(&world).get(&name).await.unwrap();
    assert_eq!(node.labels()["node.cluster.x-k8s.io/theirs"], "yes");
    assert_eq!(node.annotations()["note"], "theirs");
}

#[rstest]
#[case::at_v1beta1(Contract::V1Beta1)]
#[case::at_v1beta2(Contract::V1Beta2)]
#[tokio::test(start_paused = true)]
async fn a_pool_waits_for_its_bootstrap_object_and_follows_the_name_of_its_secret(
    #[case] contract: Contract,
) {
    let world = World::quickstart(0).await.unwrap();
    let provider = Scripted::define(&world, contract).await.unwrap();
    provider.create("ScriptedConfig", "boot").await.unwrap();
    provider
        .create("ScriptedMachinePool", "foreign")
        .await
        .unwrap();
    let config = json!({"bootstrap": {"configRef": {"apiGroup": muster_testkit::scripted::GROUP, "kind": "ScriptedConfig", "name": "boot"}}});
    world
        .apply(&Scripted::manifest("foreign", 1, &config))
        .await
        .unwrap();
    world
        .until("a bootstrap that is not ready", SOON, || async {
            world.pool("foreign").is_some_and(|pool| {
                pool.condition_of("BootstrapConfigReady")
                    .is_some_and(|said| said.status == "False")
            })
        })
        .await
        .unwrap();
    for secret in ["first", "second"] {
        provider
            .say("ScriptedConfig", "boot", contract.bootstrapped(secret))
            .await
            .unwrap();
        world
            .until("the Secret's name", SOON, || async {
                let pool = world.pool("foreign").unwrap();
                pool.spec
                    .template
                    .spec
                    .bootstrap
                    .data_secret_name
                    .as_deref()
                    == Some(secret)
            })
            .await
            .unwrap();
    }
    let pool = world.pool("foreign").unwrap();
    assert_eq!(
        pool.condition_of("BootstrapConfigReady").unwrap().status,
        "True"
    );
    let boot = provider.all("ScriptedConfig").get("boot").await.unwrap();
    assert!(owners::is_controlled_by(&boot, &*pool));
    // It goes with its pool.
    world.delete::<MachinePool>("foreign").await.unwrap();
    world
        .until("the pool's end", LATER, || async {
            world.pool("foreign").is_none()
        })
        .await
        .unwrap();
    assert!(
        provider
            .all("ScriptedConfig")
            .get_opt("boot")
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_secret_that_is_renewed_touches_no_machine() {
    let world = World::quickstart(2).await.unwrap();
    let before: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "default");
    let renewed = Patch::Merge(json!({"stringData": {"value": "#cloud-config of another token"}}));
    secrets
        .patch("workers-bootstrap", &PatchParams::default(), &renewed)
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    world.settled("workers", 2).await.unwrap();
    let after: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    assert_eq!(after, before);
    let status = world.pool("workers").unwrap().status.clone().unwrap();
    assert_eq!(status.up_to_date_replicas, Some(2));
    world.scale("workers", 3).await.unwrap();
    world.settled("workers", 3).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nodes_of_a_cluster_that_does_not_answer_are_unknown_and_come_back() {
    let world = World::quickstart(1).await.unwrap();
    let name = world.first("workers").name_any();
    let reason = |type_: &str| {
        let machine = world.machine(&name).unwrap();
        machine.condition_of(type_).unwrap().reason.clone()
    };
    world.reach("quickstart", Reach::Silent);
    for type_ in ["NodeReady", "NodeHealthy"] {
        world
            .until("a connection that is down", LATER, || async {
                reason(type_) == "ConnectionDown"
            })
            .await
            .unwrap();
    }
    world.reach("quickstart", Reach::Answers);
    world
        .until("a Node that is ready", LATER, || async {
            reason("NodeReady") == "NodeReady"
        })
        .await
        .unwrap();
    world.settled("workers", 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn fields_that_nobody_here_knows_of_stay_on_a_providers_objects() {
    let (world, provider) = foreign_pool(Contract::V1Beta2, "scripted:///one").await;
    let extra = Patch::Merge(json!({"spec": {"extra": {"deep": [1, 2]}}}));
    for (kind, name) in [
        ("ScriptedMachinePool", "foreign"),
        ("ScriptedMachine", "one"),
    ] {
        provider
            .all(kind)
            .patch(name, &PatchParams::default(), &extra)
            .await
            .unwrap();
    }
    // Owners and labels are written onto them now.
    let disowned = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    provider
        .all("ScriptedMachine")
        .patch("one", &PatchParams::default(), &disowned)
        .await
        .unwrap();
    world
        .until("its owner", LATER, || async {
            let infra = provider.all("ScriptedMachine").get("one").await.unwrap();
            owners::controller(&infra).is_some()
        })
        .await
        .unwrap();
    for (kind, name) in [
        ("ScriptedMachinePool", "foreign"),
        ("ScriptedMachine", "one"),
    ] {
        let object = provider.all(kind).get(name).await.unwrap();
        assert_eq!(object.data["spec"]["extra"], json!({"deep": [1, 2]}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_under_pressure_is_said_and_a_machine_that_is_not_ready_counts_nowhere() {
    let world = World::quickstart(2).await.unwrap();
    let machine = world.first("workers");
    let node = nodes(&world)
        .get(machine.node_name().unwrap())
        .await
        .unwrap();
    let mut conditions = json!(node.status.unwrap().conditions.unwrap());
    for condition in conditions.as_array_mut().unwrap() {
        if condition["type"] == "MemoryPressure" {
            condition["status"] = "True".into();
        }
    }
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    nodes(&world)
        .patch_status(
            machine.node_name().unwrap(),
            &PatchParams::default(),
            &patch,
        )
        .await
        .unwrap();
    let name = machine.name_any();
    world
        .says(
            &name,
            "NodeHealthy",
            "* Node.MemoryPressure: Condition is True",
        )
        .await
        .unwrap();
    world.says(&name, "Ready", "* NodeHealthy:").await.unwrap();
    world
        .until("the pool to count it", SOON, || async {
            let status = world.pool("workers").unwrap().status.clone().unwrap();
            status.ready_replicas == Some(1)
                && status.available_replicas == Some(1)
                && status.replicas == Some(2)
        })
        .await
        .unwrap();
    world
        .pool_tells("workers", "MachinesReady", &name)
        .await
        .unwrap();
    let machine = world.machine(&name).unwrap();
    assert_eq!(
        machine.status.as_ref().unwrap().phase,
        Some(MachinePhase::Running)
    );
    assert_eq!(instance_of(&machine), machine.node_name().unwrap());
}

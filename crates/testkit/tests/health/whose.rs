//! Machines of several checks, of other owners, and of a control plane.

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use muster_api::{Machine, MachineHealthCheck, names};
use muster_testkit::scripted::{Contract, GROUP, Scripted};
use muster_testkit::world::{LATER, SOON};
use serde_json::json;

use crate::support::{check, counts, fail, heal, is, said, with_check};

#[tokio::test(start_paused = true)]
async fn of_several_checks_each_has_its_word_and_counts_for_itself() {
    let world = with_check(3, "").await;
    // The strict one repairs nobody.
    let strict = check(
        "strict",
        "  remediation: {triggerIf: {unhealthyLessThanOrEqualTo: 0}}\n",
    );
    let strict = strict.replace("timeoutSeconds: 60", "timeoutSeconds: 5");
    world.apply(&strict).await.unwrap();
    let sick = world.first("workers");
    let name = sick.name_any();
    fail(&world, &sick).await;
    let told = |part: &'static str| {
        let (world, name) = (&world, &name);
        async move {
            let part = format!("(MachineHealthCheck {part})");
            world
                .until(&part, LATER, || async {
                    world
                        .machine_says(name, "HealthCheckSucceeded")
                        .ends_with(&part)
                })
                .await
                .unwrap();
        }
    };
    told("strict").await;
    assert_eq!(said(&world, &name, "OwnerRemediated"), None);
    counts(&world, 3, 2).await;
    // Back before the other's time: nobody finds fault, and nobody was repaired.
    heal(&world, &sick).await;
    world
        .until("nobody at fault", LATER, || async {
            said(&world, &name, "HealthCheckSucceeded") == is("True", "HealthCheckSucceeded")
        })
        .await
        .unwrap();
    fail(&world, &sick).await;
    told("nodes, strict").await;
    world.gone(&name).await.unwrap();
    world.settled("workers", 3).await.unwrap();
    world.delete::<MachineHealthCheck>("strict").await.unwrap();
    counts(&world, 3, 3).await;
}

#[tokio::test(start_paused = true)]
async fn machines_of_other_owners_are_only_marked_and_a_control_planes_not_even_that() {
    let world = with_check(2, "").await;
    let scripted = Scripted::define(&world, Contract::V1Beta2).await.unwrap();
    let all = json!({"spec": {"selector": {"matchLabels": {"cluster.x-k8s.io/pool-name": null}}}});
    world
        .patch::<MachineHealthCheck>("nodes", all)
        .await
        .unwrap();
    let set = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "metadata": {"name": "set", "namespace": "default"}, "spec": {}});
    world.apply(&set.to_string()).await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "cluster.x-k8s.io",
        "v1beta2",
        "MachineSet",
    ));
    let sets = Api::<DynamicObject>::namespaced_with(world.client.clone(), "default", &kind);
    let uid = sets.get("set").await.unwrap().uid();
    let owners = json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "set", "uid": uid, "controller": true}]);
    for (name, owners, labels) in [
        ("alone", json!([]), json!({})),
        ("of-a-set", owners.clone(), json!({})),
        (
            "of-the-control-plane",
            owners,
            json!({"cluster.x-k8s.io/control-plane": ""}),
        ),
    ] {
        scripted.create("ScriptedMachine", name).await.unwrap();
        let machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": name, "namespace": "default", "labels": labels, "ownerReferences": owners},
            "spec": {
                "clusterName": "quickstart",
                "bootstrap": {"dataSecretName": "workers-bootstrap"},
                "infrastructureRef": {"apiGroup": GROUP, "kind": "ScriptedMachine", "name": name},
            },
        });
        world.apply(&machine.to_string()).await.unwrap();
        world
            .annotate::<Machine>(name, names::REMEDIATE_MACHINE.key(), Some(""))
            .await
            .unwrap();
    }
    for name in ["alone", "of-a-set"] {
        world
            .until(name, SOON, || async {
                said(&world, name, "OwnerRemediated") == is("False", "WaitingForRemediation")
            })
            .await
            .unwrap();
        let found = said(&world, name, "HealthCheckSucceeded");
        assert_eq!(found, is("False", "HasRemediateAnnotation"));
    }
    tokio::time::sleep(LATER).await;
    for name in ["alone", "of-a-set", "of-the-control-plane"] {
        let machine = world.machine(name).unwrap();
        assert_eq!(machine.metadata.deletion_timestamp, None, "{name}");
    }
    let name = "of-the-control-plane";
    assert_eq!(said(&world, name, "HealthCheckSucceeded"), None);
    assert_eq!(said(&world, name, "OwnerRemediated"), None);
    counts(&world, 4, 2).await;
}

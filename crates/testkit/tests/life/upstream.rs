//! Where Cluster API's own controllers go wrong for pool machines, and what goes right here: D1 to D26 of the list of its
//! defects, each named after what goes right. D17 is in `volumes`, D20 in `rules`; D16 and D21 are about health checks.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use muster_api::machine::MachinePhase;
use muster_api::names::MACHINE_FINALIZER;
use muster_api::pool::MachinePoolPhase;
use muster_api::reference::Conditioned as _;
use muster_api::{Cluster, Machine, MachinePool, SimMachinePool};
use muster_provider_sim::console;
use muster_testkit::outage::Reach;
use muster_testkit::scripted::{Contract, Scripted, node};
use muster_testkit::world::{LATER, SOON, World, instance_of};
use rstest::rstest;
use serde_json::json;

use super::support::{foreign_pool, start_workload};

const POOL: &str = "ScriptedMachinePool";
const MACHINE: &str = "ScriptedMachine";

/// A pool on a foreign provider that has one instance with its InfraMachine and its Node.
async fn foreign(contract: Contract) -> (World, Scripted) {
    let (world, provider) = foreign_pool(contract, "scripted:///one").await;
    let workload = world.workload("quickstart").unwrap();
    node(&workload, "node-one", "scripted:///one", true)
        .await
        .unwrap();
    world.settled("foreign", 1).await.unwrap();
    (world, provider)
}

fn ready(world: &World, pool: &str) -> Option<i32> {
    world.pool(pool)?.status.as_ref()?.ready_replicas
}

#[rstest]
#[case::at_v1beta1(Contract::V1Beta1)]
#[case::at_v1beta2(Contract::V1Beta2)]
#[tokio::test(start_paused = true)]
async fn d1_a_provider_of_either_contract_is_provisioned(#[case] contract: Contract) {
    let (world, _) = foreign(contract).await;
    let status = world.pool("foreign").unwrap().status.clone().unwrap();
    assert_eq!(status.phase, Some(MachinePoolPhase::Running));
    assert_eq!(
        status.initialization.unwrap().infrastructure_provisioned,
        Some(true)
    );
    let machine = world.machine("one").unwrap();
    assert_eq!(
        machine.status.as_ref().unwrap().phase,
        Some(MachinePhase::Running)
    );
}

#[tokio::test(start_paused = true)]
async fn d2_failures_that_a_provider_reports_hurt_nothing() {
    let (world, provider) = foreign(Contract::V1Beta1).await;
    let failure = json!({"failureReason": "Broken", "failureMessage": "it is broken"});
    provider
        .say(POOL, "foreign", failure.clone())
        .await
        .unwrap();
    provider.say(MACHINE, "one", failure).await.unwrap();
    // Counters and Nodes go on as before.
    provider
        .machine("foreign", "two", "scripted:///two")
        .await
        .unwrap();
    provider
        .has("foreign", &["scripted:///one", "scripted:///two"])
        .await
        .unwrap();
    let workload = world.workload("quickstart").unwrap();
    node(&workload, "node-two", "scripted:///two", true)
        .await
        .unwrap();
    world.settled("foreign", 2).await.unwrap();
    assert_eq!(
        world
            .pool("foreign")
            .unwrap()
            .status
            .as_ref()
            .unwrap()
            .node_refs
            .len(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn d3_the_nodes_of_a_deleted_pool_are_deleted() {
    let (world, _) = foreign(Contract::V1Beta2).await;
    world.delete::<MachinePool>("foreign").await.unwrap();
    world
        .until("the pool's end", LATER, || async {
            world.pool("foreign").is_none()
        })
        .await
        .unwrap();
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    assert!(nodes.get_opt("node-one").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn d4_counters_follow_a_machine_that_changes_by_itself() {
    let world = World::quickstart(1).await.unwrap();
    let gates =
        json!({"spec": {"template": {"spec": {"readinessGates": [{"conditionType": "Warm"}]}}}});
    world.patch::<MachinePool>("workers", gates).await.unwrap();
    world
        .until("a pool that is not ready", SOON, || async {
            ready(&world, "workers") == Some(0)
        })
        .await
        .unwrap();
    // Nothing but the Machine changes: neither Node nor InfraMachine.
    let name = world.first("workers").name_any();
    let machines = world.api::<Machine>();
    let mut machine = machines.get(&name).await.unwrap();
    let status = machine.status.as_mut().unwrap();
    status.conditions.push(
        serde_json::from_value(
            json!({"type": "Warm", "status": "True", "reason": "Warm", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}),
        )
        .unwrap(),
    );
    machines
        .replace_status(&name, &Default::default(), &machine)
        .await
        .unwrap();
    world
        .until("a pool that is ready", SOON, || async {
            ready(&world, "workers") == Some(1)
        })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn d5_machines_are_made_while_the_workload_cluster_cannot_be_reached() {
    let world = World::quickstart(1).await.unwrap();
    world.reach("quickstart", Reach::Refuses);
    world.scale("workers", 3).await.unwrap();
    world
        .until("three Machines in the pool's list", LATER, || async {
            let pool = world.pool("workers").unwrap();
            world.machines("workers").len() == 3 && pool.spec.provider_id_list.len() == 3
        })
        .await
        .unwrap();
    assert_eq!(
        world
            .pool("workers")
            .unwrap()
            .status
            .as_ref()
            .unwrap()
            .replicas,
        Some(3)
    );
}

#[tokio::test(start_paused = true)]
async fn d6_a_node_that_is_not_ready_counts_at_once() {
    let (world, _) = foreign(Contract::V1Beta2).await;
    let workload = world.workload("quickstart").unwrap();
    node(&workload, "node-one", "scripted:///one", false)
        .await
        .unwrap();
    world
        .until("no ready machine", SOON, || async {
            ready(&world, "foreign") == Some(0)
        })
        .await
        .unwrap();
    let pool = world.pool("foreign").unwrap();
    assert_ne!(
        pool.status.as_ref().unwrap().phase,
        Some(MachinePoolPhase::Running)
    );
    let said = pool.condition_of("MachinesReady").unwrap();
    assert!(
        said.status == "False" && said.message.contains("one"),
        "{said:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn d7_a_machine_whose_infra_machine_vanished_goes() {
    let (world, provider) = foreign(Contract::V1Beta2).await;
    provider
        .has("foreign", &["scripted:///none"])
        .await
        .unwrap();
    let params = DeleteParams::default();
    provider.all(MACHINE).delete("one", &params).await.unwrap();
    world.gone("one").await.unwrap();
    let events = world.events("one").await.unwrap();
    assert!(
        events.contains(&"InfraMachineLost".to_owned()),
        "{events:?}"
    );
    // Its Node goes with it.
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    assert!(nodes.get_opt("node-one").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn d8_the_uninitialized_taint_goes_with_the_labels_and_no_other_taint_does() {
    let world = World::quickstart(0).await.unwrap();
    let taints = json!({"spec": {"template": {"taints": [
        {"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"},
        {"key": "dedicated", "value": "x", "effect": "NoSchedule"},
    ]}}});
    world
        .patch::<SimMachinePool>("workers", taints)
        .await
        .unwrap();
    world.scale("workers", 1).await.unwrap();
    world.settled("workers", 1).await.unwrap();
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    let all = nodes.list(&ListParams::default()).await.unwrap().items;
    let keys: Vec<String> = all[0]
        .spec
        .as_ref()
        .unwrap()
        .taints
        .iter()
        .flatten()
        .map(|t| t.key.clone())
        .collect();
    assert_eq!(keys, ["dedicated"]);
    assert!(all[0].labels().contains_key("node.cluster.x-k8s.io/team"));
}

#[tokio::test(start_paused = true)]
async fn d9_what_the_template_says_reaches_new_machines_and_those_that_are_there() {
    let world = World::quickstart(1).await.unwrap();
    let spec = json!({
        "minReadySeconds": 5,
        "failureDomain": "b",
        "readinessGates": [{"conditionType": "Frozen", "polarity": "Negative"}],
        "deletion": {"nodeDrainTimeoutSeconds": 7, "nodeVolumeDetachTimeoutSeconds": 8, "nodeDeletionTimeoutSeconds": 9},
        "taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule", "propagation": "Always"}],
    });
    world
        .patch::<MachinePool>("workers", json!({"spec": {"template": {"spec": spec}}}))
        .await
        .unwrap();
    world.scale("workers", 2).await.unwrap();
    world
        .until("both Machines to have it", LATER, || async {
            let machines = world.machines("workers");
            let has = |machine: &Machine| {
                let have = json!(machine.spec);
                spec.as_object()
                    .unwrap()
                    .iter()
                    .all(|(field, wanted)| have[field] == *wanted)
            };
            machines.len() == 2 && machines.iter().all(|machine| has(machine))
        })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn d10_an_outdated_machine_says_so_and_keeps_its_version() {
    let world = World::quickstart(1).await.unwrap();
    let version = json!({"spec": {"template": {"spec": {"version": "v1.37.1"}}}});
    world
        .patch::<MachinePool>("workers", version)
        .await
        .unwrap();
    let name = world.first("workers").name_any();
    world
        .until("an outdated machine", SOON, || async {
            let machine = world.machine(&name).unwrap();
            machine
                .condition_of("UpToDate")
                .is_some_and(|said| said.status == "False")
        })
        .await
        .unwrap();
    let machine = world.machine(&name).unwrap();
    assert_eq!(machine.spec.version.as_deref(), Some("v1.37.2"));
    let status = world.pool("workers").unwrap().status.clone().unwrap();
    assert_eq!(status.up_to_date_replicas, Some(0));
}

#[tokio::test(start_paused = true)]
async fn d11_flags_of_the_beginning_never_go_back() {
    let (world, provider) = foreign(Contract::V1Beta2).await;
    let unready = json!({"initialization": {"provisioned": false}});
    provider
        .say(POOL, "foreign", unready.clone())
        .await
        .unwrap();
    provider.say(MACHINE, "one", unready).await.unwrap();
    tokio::time::sleep(LATER).await;
    let pool = world.pool("foreign").unwrap().status.clone().unwrap();
    assert_eq!(
        pool.initialization.unwrap().infrastructure_provisioned,
        Some(true)
    );
    let machine = world.machine("one").unwrap().status.clone().unwrap();
    assert_eq!(
        machine.initialization.unwrap().infrastructure_provisioned,
        Some(true)
    );
}

#[tokio::test(start_paused = true)]
async fn d12_a_pool_ends_after_a_restart_and_without_its_cluster() {
    let mut world = World::quickstart(2).await.unwrap();
    let name = world.first("workers").name_any();
    let hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/wait";
    world
        .annotate::<Machine>(&name, hook, Some(""))
        .await
        .unwrap();
    world.delete::<MachinePool>("workers").await.unwrap();
    world
        .deletion_at(&name, "WaitingForPreTerminateHook")
        .await
        .unwrap();
    world.restart().await.unwrap();
    // The Cluster is torn away, as a hand that strips finalizers does it.
    let strip = json!({"metadata": {"finalizers": null}});
    world.delete::<Cluster>("quickstart").await.unwrap();
    world.patch::<Cluster>("quickstart", strip).await.unwrap();
    world.annotate::<Machine>(&name, hook, None).await.unwrap();
    world
        .until("the pool's end", LATER, || async {
            world.pool("workers").is_none()
        })
        .await
        .unwrap();
    assert!(world.instances().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn d13_an_empty_kind_of_machines_is_none() {
    let world = World::quickstart(0).await.unwrap();
    let provider = Scripted::define(&world, Contract::V1Beta2).await.unwrap();
    provider.create(POOL, "foreign").await.unwrap();
    world
        .apply(&Scripted::manifest("foreign", 1, &json!({})))
        .await
        .unwrap();
    provider.has("foreign", &["scripted:///one"]).await.unwrap();
    provider
        .say(POOL, "foreign", json!({"infrastructureMachineKind": ""}))
        .await
        .unwrap();
    world
        .until("the list", LATER, || async {
            world
                .pool("foreign")
                .is_some_and(|pool| pool.spec.provider_id_list.len() == 1)
        })
        .await
        .unwrap();
    tokio::time::sleep(SOON).await;
    assert!(world.machines("foreign").is_empty());
    let said = world.pool("foreign").unwrap();
    assert_eq!(
        said.condition_of("InfrastructureReady").unwrap().status,
        "True"
    );
}

#[tokio::test(start_paused = true)]
async fn d14_an_infra_machine_of_another_pool_with_this_ones_label_gets_no_machine_here() {
    let (world, provider) = foreign(Contract::V1Beta2).await;
    provider.create(POOL, "other").await.unwrap();
    provider
        .machine("other", "strange", "scripted:///strange")
        .await
        .unwrap();
    let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/pool-name": "foreign"}}});
    let patch = kube::api::Patch::Merge(label);
    provider
        .all(MACHINE)
        .patch("strange", &Default::default(), &patch)
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert!(world.machine("strange").is_none());
    world.settled("foreign", 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn d15_a_node_that_cannot_be_read_when_its_machine_goes_is_deleted_later() {
    let (world, provider) = foreign(Contract::V1Beta2).await;
    let forever = json!({"spec": {"template": {"spec": {"deletion": {"nodeDeletionTimeoutSeconds": 0, "nodeDrainTimeoutSeconds": 5}}}}});
    world
        .patch::<MachinePool>("foreign", forever)
        .await
        .unwrap();
    world
        .until("no limit", SOON, || async {
            let deletion = world.machine("one").unwrap().spec.deletion.clone().unwrap();
            deletion.node_deletion_timeout_seconds == Some(0)
        })
        .await
        .unwrap();
    world.reach("quickstart", Reach::Refuses);
    provider
        .has("foreign", &["scripted:///none"])
        .await
        .unwrap();
    provider
        .all(MACHINE)
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert!(world.machine("one").is_some(), "it waits for its Node");
    world.reach("quickstart", Reach::Answers);
    world.gone("one").await.unwrap();
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    assert!(nodes.get_opt("node-one").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn d18_an_instance_stays_in_the_list_until_it_is_gone() {
    let world = World::quickstart(1).await.unwrap();
    let machine = world.first("workers");
    let (name, id) = (
        machine.name_any(),
        machine.spec.provider_id.clone().unwrap(),
    );
    console::hang(&world.cloud().unwrap(), &instance_of(&machine))
        .await
        .unwrap();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .deletion_at(&name, "WaitingForInfrastructureDeletion")
        .await
        .unwrap();
    tokio::time::sleep(SOON).await;
    let listed = || {
        world
            .pool("workers")
            .unwrap()
            .spec
            .provider_id_list
            .contains(&id)
    };
    assert!(listed());
    console::heal(&world.cloud().unwrap(), &instance_of(&machine))
        .await
        .unwrap();
    world.gone(&name).await.unwrap();
    world
        .until("the end in the list", SOON, || async { !listed() })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn d19_a_daemons_pod_is_never_evicted() {
    let world = World::quickstart(1).await.unwrap();
    let client = start_workload(&world).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "kube-system");
    world
        .until("the daemon", LATER, || async {
            !pods
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .is_empty()
        })
        .await
        .unwrap();
    let before = pods.list(&ListParams::default()).await.unwrap().items;
    let name = world.first("workers").name_any();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .deletion_at(&name, "WaitingForInfrastructureDeletion")
        .await
        .unwrap();
    let after = pods.get(&before[0].name_any()).await.unwrap();
    assert_eq!(after.uid(), before[0].uid());
    assert!(after.metadata.deletion_timestamp.is_none());
}

#[tokio::test(start_paused = true)]
async fn d22_a_version_is_kept_while_the_node_is_unknown() {
    let (world, _) = foreign(Contract::V1Beta2).await;
    let version = json!({"spec": {"version": "v1.36.0"}});
    world.patch::<Machine>("one", version).await.unwrap();
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    nodes
        .delete("node-one", &DeleteParams::default())
        .await
        .unwrap();
    world
        .says("one", "NodeReady", "has been deleted")
        .await
        .unwrap();
    world.reach("quickstart", Reach::Refuses);
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"tier": "gold"}}}}});
    world.patch::<MachinePool>("foreign", labels).await.unwrap();
    world
        .until("the label", LATER, || async {
            world.machine("one").unwrap().labels().contains_key("tier")
        })
        .await
        .unwrap();
    assert_eq!(
        world.machine("one").unwrap().spec.version.as_deref(),
        Some("v1.36.0")
    );
}

#[tokio::test(start_paused = true)]
async fn d23_an_infra_machine_that_is_going_gets_no_machine() {
    let (world, provider) = foreign(Contract::V1Beta2).await;
    let pause = |on: Option<&'static str>| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": on}}});
    world
        .patch::<MachinePool>("foreign", pause(Some("")))
        .await
        .unwrap();
    world
        .pool_tells("foreign", "Paused", "annotation")
        .await
        .unwrap();
    provider
        .machine("foreign", "two", "scripted:///two")
        .await
        .unwrap();
    let hold = json!({"metadata": {"finalizers": ["example.com/slow"]}});
    let patch = kube::api::Patch::Merge(hold);
    provider
        .all(MACHINE)
        .patch("two", &Default::default(), &patch)
        .await
        .unwrap();
    provider
        .all(MACHINE)
        .delete("two", &DeleteParams::default())
        .await
        .unwrap();
    world
        .patch::<MachinePool>("foreign", pause(None))
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert!(world.machine("two").is_none());
}

#[tokio::test(start_paused = true)]
async fn d23_a_machine_whose_infra_machine_ended_before_it_was_made_goes() {
    let (world, _) = foreign(Contract::V1Beta2).await;
    let pool = world.pool("foreign").unwrap();
    let one = world.machine("one").unwrap();
    let mut late = Machine::new("late", one.spec.clone());
    late.spec.provider_id = Some("scripted:///late".to_owned());
    late.spec.infrastructure_ref.name = "late".to_owned();
    late.metadata.labels = one.metadata.labels.clone();
    late.metadata.finalizers = one.metadata.finalizers.clone();
    late.metadata.owner_references = one.metadata.owner_references.clone();
    let machines = world.api::<Machine>();
    machines.create(&Default::default(), &late).await.unwrap();
    world.gone("late").await.unwrap();
    assert_eq!(world.machine("one").unwrap().uid(), one.uid());
    assert_eq!(world.pool("foreign").unwrap().uid(), pool.uid());
}

#[tokio::test(start_paused = true)]
async fn d24_a_drain_ends_by_its_limit_while_the_workload_cluster_cannot_be_reached() {
    let world = World::quickstart(2).await.unwrap();
    let name = world.first("workers").name_any();
    let limits = json!({"nodeDrainTimeoutSeconds": 60, "nodeVolumeDetachTimeoutSeconds": 60});
    let limits = json!({"spec": {"template": {"spec": {"deletion": limits}}}});
    world.patch::<MachinePool>("workers", limits).await.unwrap();
    world.reach("quickstart", Reach::Silent);
    tokio::time::sleep(SOON).await;
    world.delete::<Machine>(&name).await.unwrap();
    world
        .says(&name, "Deleting", "does not answer")
        .await
        .unwrap();
    world.gone(&name).await.unwrap();
    let events = world.events(&name).await.unwrap();
    assert!(events.contains(&"FailedDrainNode".to_owned()), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn d25_a_machine_that_drains_for_a_smaller_size_lets_no_other_be_chosen() {
    let world = World::quickstart(4).await.unwrap();
    let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/wait";
    for name in world.names("workers") {
        world
            .annotate::<Machine>(&name, hook, Some(""))
            .await
            .unwrap();
    }
    world.scale("workers", 3).await.unwrap();
    let going = || {
        world
            .machines("workers")
            .iter()
            .filter(|m| m.is_deleting())
            .count()
    };
    world
        .until("a victim", SOON, || async { going() == 1 })
        .await
        .unwrap();
    for _ in 0..30 {
        // Whatever makes passes happen: a label that comes and goes.
        let label = json!({"metadata": {"labels": {"look": "again"}}});
        world.patch::<MachinePool>("workers", label).await.unwrap();
        let label = json!({"metadata": {"labels": {"look": null}}});
        world.patch::<MachinePool>("workers", label).await.unwrap();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(going(), 1);
    }
    for name in world.names("workers") {
        world.annotate::<Machine>(&name, hook, None).await.unwrap();
    }
    world.settled("workers", 3).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn d25_long_names_of_pools_work_to_the_end() {
    let world = World::start().await.unwrap();
    let long = "w".repeat(100);
    let manifests = muster_testkit::world::quickstart(2)
        .replace("name: workers,", &format!("name: {long},"))
        .replace("name: workers}", &format!("name: {long}}}"));
    world.apply(&manifests).await.unwrap();
    world.settled(&long, 2).await.unwrap();
    let label = muster_api::names::pool_label(&long).into_owned();
    assert!(label.starts_with("hash_"));
    let name = world.first(&long).name_any();
    assert_eq!(
        world.machine(&name).unwrap().labels()["cluster.x-k8s.io/pool-name"],
        label
    );
    world.delete::<Machine>(&name).await.unwrap();
    world.gone(&name).await.unwrap();
    world.settled(&long, 2).await.unwrap();
    world.scale(&long, 1).await.unwrap();
    world.settled(&long, 1).await.unwrap();
    world.delete::<MachinePool>(&long).await.unwrap();
    world
        .until("the pool's end", LATER, || async {
            world.pool(&long).is_none()
        })
        .await
        .unwrap();
    assert!(world.instances().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn d26_a_deleted_pool_is_drained_under_its_limit_of_drains_at_once() {
    let world = World::quickstart(24).await.unwrap();
    start_workload(&world).await;
    world.delete::<MachinePool>("workers").await.unwrap();
    let mut most = 0;
    let mut counted = std::collections::BTreeSet::new();
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    world
        .until("the pool's end", LATER, || {
            let draining = world
                .machines("workers")
                .iter()
                .filter(|m| {
                    m.status
                        .as_ref()
                        .and_then(|s| s.deletion.as_ref())
                        .is_some_and(|d| d.node_drain_start_time.is_some())
                        && m.condition_of("Deleting")
                            .is_some_and(|c| c.reason == "DrainingNode")
                })
                .count();
            most = most.max(draining);
            let status = world.pool("workers").and_then(|pool| pool.status.clone());
            counted.extend(status.and_then(|status| status.replicas));
            async { world.pool("workers").is_none() }
        })
        .await
        .unwrap();
    assert!((1..=20).contains(&most), "{most} drains at once");
    // The pool's counters follow those that go.
    assert!(counted.len() > 3, "{counted:?}");
    assert!(
        nodes
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let held = world
        .api::<Machine>()
        .list(&ListParams::default())
        .await
        .unwrap();
    assert!(
        !held
            .items
            .iter()
            .any(|m| m.finalizers().iter().any(|f| f == MACHINE_FINALIZER))
    );
}

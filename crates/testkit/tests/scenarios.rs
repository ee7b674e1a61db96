//! Stories of pools and machines, in virtual time: what a user does, and what must come of it.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::{Cluster, Machine, MachinePool, SimMachine, SimMachinePool};
use muster_provider_sim::console;
use muster_testkit::witness::Witness;
use muster_testkit::world::{self, World};
use serde_json::json;

const MINUTE: Duration = Duration::from_secs(60);

async fn start_workload(world: &World) -> kube::Client {
    let client = world.workload("quickstart").unwrap();
    world::apply(&client, world::workload()).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), "default");
    world
        .until("the workload", 5 * MINUTE, || async {
            let ready = deployments
                .get("web")
                .await
                .unwrap()
                .status
                .and_then(|s| s.available_replicas);
            let room = budgets
                .get("web")
                .await
                .unwrap()
                .status
                .and_then(|s| s.disruptions_allowed);
            ready == Some(6) && room == Some(1)
        })
        .await
        .unwrap();
    client
}

async fn delete(world: &World, name: &str) {
    let machines: Api<Machine> = Api::namespaced(world.client.clone(), "default");
    machines
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn six_machines_come_up_two_in_each_zone_and_each_is_a_node() {
    let world = World::quickstart(6).await.unwrap();
    assert_eq!(world.spread("workers"), "a2 b2 c2");
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    for machine in world.machines("workers") {
        let node = nodes.get(machine.node_name().unwrap()).await.unwrap();
        assert_eq!(node.spec.unwrap().provider_id, machine.spec.provider_id);
        // Labels of managed domains have come through.
        let node = nodes.get(machine.node_name().unwrap()).await.unwrap();
        assert_eq!(
            node.labels()
                .get("node.cluster.x-k8s.io/team")
                .map(String::as_str),
            Some("payments")
        );
        assert!(node.labels().contains_key("node-role.kubernetes.io/worker"));
    }
    let pool = world.pool("workers").unwrap();
    assert_eq!(pool.spec.provider_id_list.len(), 6);
    assert_eq!(pool.status.as_ref().unwrap().node_refs.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_machine_is_drained_within_its_budget_and_replaced_where_it_was() {
    let world = World::quickstart(6).await.unwrap();
    let client = start_workload(&world).await;
    let witness = Witness::start(client.clone(), "web");
    let victim = world.machines("workers")[0].clone();
    let node = victim.node_name().unwrap().to_owned();
    delete(&world, &victim.name_any()).await;
    world
        .until("its end", 10 * MINUTE, || async {
            !world
                .machines("workers")
                .iter()
                .any(|m| m.uid() == victim.uid())
        })
        .await
        .unwrap();
    world.settled("workers", 6).await.unwrap();
    assert_eq!(world.spread("workers"), "a2 b2 c2");
    assert!(witness.fewest_ready().unwrap() >= 5);
    let leaving = witness.leaving();
    let evicted: Vec<_> = leaving
        .values()
        .filter(|l| l.node == node && !l.daemon)
        .collect();
    assert!(
        !evicted.is_empty() && evicted.iter().all(|l| l.cordoned),
        "{leaving:?}"
    );
    assert!(
        Api::<Node>::all(client)
            .get_opt(&node)
            .await
            .unwrap()
            .is_none(),
        "its Node is gone too"
    );
    let events = world.events(&victim.name_any()).await.unwrap();
    assert_eq!(
        events,
        [
            "Launched",
            "NodeJoined",
            "Available",
            "DrainingNode",
            "SuccessfulDrainNode",
            "WaitingForInfrastructureDeletion",
            "DeletingNode"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn scaling_down_drains_each_victim_and_never_breaks_the_budget() {
    let world = World::quickstart(9).await.unwrap();
    let client = start_workload(&world).await;
    let witness = Witness::start(client, "web");
    world.scale("workers", 3).await.unwrap();
    world.settled("workers", 3).await.unwrap();
    assert_eq!(world.spread("workers"), "a1 b1 c1");
    assert!(witness.fewest_ready().unwrap() >= 5);
    assert_eq!(world.instances().await.unwrap().len(), 3);
    // Down to nothing the last Pods have no place to go: their drains end by their limit, one after the other's turn.
    world.scale("workers", 0).await.unwrap();
    world.settled("workers", 0).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_none_grows_and_shrinks_again() {
    let world = World::quickstart(0).await.unwrap();
    world.scale("workers", 4).await.unwrap();
    world.settled("workers", 4).await.unwrap();
    world.scale("workers", 0).await.unwrap();
    world.settled("workers", 0).await.unwrap();
    assert!(world.instances().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_budget_without_room_is_named_and_the_limit_is_passed_loudly() {
    let world = World::quickstart(3).await.unwrap();
    let client = start_workload(&world).await;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, "default");
    let patch = json!({"spec": {"maxUnavailable": 0}});
    budgets
        .patch("web", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    world
        .until("no room", MINUTE, || async {
            budgets
                .get("web")
                .await
                .unwrap()
                .status
                .and_then(|s| s.disruptions_allowed)
                == Some(0)
        })
        .await
        .unwrap();
    let victim = world.machines("workers")[0].name_any();
    delete(&world, &victim).await;
    world
        .until("the budget's name", MINUTE, || async {
            world
                .machine_says(&victim, "Deleting")
                .contains("The disruption budget web needs 6 healthy pods")
        })
        .await
        .unwrap();
    let said = world.machine_says(&victim, "Deleting");
    assert!(
        said.starts_with("Drain not completed yet (started at 2026-01-01T"),
        "{said}"
    );
    assert!(said.contains("the drain timeout passes"), "{said}");
    // Another machine of the pool is not held up: it has no Pods of that budget any more once it is new.
    world
        .until("its end", 10 * MINUTE, || async {
            !world
                .machines("workers")
                .iter()
                .any(|m| m.name_any() == victim)
        })
        .await
        .unwrap();
    assert!(
        world
            .events(&victim)
            .await
            .unwrap()
            .contains(&"FailedDrainNode".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_the_cloud_ends_is_replaced_and_its_machine_does_not_stay() {
    let world = World::quickstart(3).await.unwrap();
    let gone = world.machines("workers")[0].clone();
    let id = gone
        .spec
        .provider_id
        .clone()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    console::terminate(&world.cloud().unwrap(), &id, world.clock.now())
        .await
        .unwrap();
    world
        .until("its end", 10 * MINUTE, || async {
            !world
                .machines("workers")
                .iter()
                .any(|m| m.uid() == gone.uid())
        })
        .await
        .unwrap();
    world.settled("workers", 3).await.unwrap();
    assert_eq!(world.spread("workers"), "a1 b1 c1");
}

#[tokio::test(start_paused = true)]
async fn a_notice_of_the_cloud_starts_the_drain_at_once() {
    let world = World::quickstart(3).await.unwrap();
    start_workload(&world).await;
    let gone = world.machines("workers")[0].clone();
    let id = gone
        .spec
        .provider_id
        .clone()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    console::interrupt(
        &world.cloud().unwrap(),
        &id,
        jiff::SignedDuration::from_mins(2),
        world.clock.now(),
    )
    .await
    .unwrap();
    world
        .until("its drain", Duration::from_secs(10), || async {
            world
                .machines("workers")
                .iter()
                .any(|m| m.uid() == gone.uid() && m.is_deleting())
        })
        .await
        .unwrap();
    world.settled("workers", 3).await.unwrap();
    let events = world.events(&gone.name_any()).await.unwrap();
    assert!(
        events.contains(&"InstanceTerminationNotice".to_owned())
            && events.contains(&"SuccessfulDrainNode".to_owned()),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_never_joined_has_nothing_to_drain() {
    let world = World::quickstart(3).await.unwrap();
    let before: Vec<String> = world
        .machines("workers")
        .iter()
        .map(|m| m.name_any())
        .collect();
    world.scale("workers", 4).await.unwrap();
    world
        .until("the fourth", MINUTE, || async {
            world.machines("workers").len() == 4
        })
        .await
        .unwrap();
    let new = world
        .machines("workers")
        .into_iter()
        .find(|m| !before.contains(&m.name_any()))
        .unwrap();
    let id = new
        .spec
        .provider_id
        .clone()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    console::hang(&world.cloud().unwrap(), &id).await.unwrap();
    tokio::time::sleep(5 * MINUTE).await;
    assert!(
        world
            .machines("workers")
            .iter()
            .any(|m| m.uid() == new.uid() && m.node_name().is_none())
    );
    delete(&world, &new.name_any()).await;
    console::heal(&world.cloud().unwrap(), &id).await.unwrap();
    world.settled("workers", 4).await.unwrap();
    assert!(
        !world
            .machines("workers")
            .iter()
            .any(|m| m.uid() == new.uid())
    );
}

#[tokio::test(start_paused = true)]
async fn hooks_hold_a_deletion_until_they_are_taken_away() {
    let world = World::quickstart(3).await.unwrap();
    let victim = world.machines("workers")[0].name_any();
    let machines: Api<Machine> = Api::namespaced(world.client.clone(), "default");
    let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup";
    let set = |value: serde_json::Value| json!({"metadata": {"annotations": {hook: value}}});
    machines
        .patch(
            &victim,
            &PatchParams::default(),
            &Patch::Merge(set(json!(""))),
        )
        .await
        .unwrap();
    delete(&world, &victim).await;
    world
        .until("the hook's name", MINUTE, || async {
            world.machine_says(&victim, "Deleting").contains("backup")
        })
        .await
        .unwrap();
    tokio::time::sleep(60 * MINUTE).await;
    assert!(machines.get_opt(&victim).await.unwrap().is_some());
    machines
        .patch(
            &victim,
            &PatchParams::default(),
            &Patch::Merge(set(json!(null))),
        )
        .await
        .unwrap();
    world
        .until("its end", 10 * MINUTE, || async {
            !world
                .machines("workers")
                .iter()
                .any(|m| m.name_any() == victim)
        })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pool_and_a_deleted_cluster_leave_nothing_behind() {
    let world = World::quickstart(4).await.unwrap();
    start_workload(&world).await;
    let pools: Api<MachinePool> = Api::namespaced(world.client.clone(), "default");
    pools
        .delete("workers", &DeleteParams::default())
        .await
        .unwrap();
    world
        .until("the pool's end", 60 * MINUTE, || async {
            world.pool("workers").is_none()
        })
        .await
        .unwrap();
    assert!(world.instances().await.unwrap().is_empty());
    assert!(world.machines("workers").is_empty());
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    assert!(
        nodes
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );

    world.apply(&world::quickstart(3)).await.unwrap();
    world.settled("workers", 3).await.unwrap();
    let clusters: Api<Cluster> = Api::namespaced(world.client.clone(), "default");
    clusters
        .delete("quickstart", &DeleteParams::default())
        .await
        .unwrap();
    world
        .until("the cluster's end", 30 * MINUTE, || async {
            world.caches.clusters.is_empty()
        })
        .await
        .unwrap();
    assert!(world.instances().await.unwrap().is_empty());
    for (kind, left) in [
        ("machines", world.caches.machines.len()),
        ("pools", world.caches.pools.len()),
        (
            "simmachines",
            Api::<SimMachine>::all(world.client.clone())
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .len(),
        ),
        (
            "simmachinepools",
            Api::<SimMachinePool>::all(world.client.clone())
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .len(),
        ),
    ] {
        assert_eq!(left, 0, "{kind} are left");
    }
    assert!(
        world.workload("quickstart").is_err(),
        "the workload cluster is gone"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_or_wrong_is_said_with_the_remedy_and_disturbs_nothing_else() {
    let world = World::quickstart(2).await.unwrap();
    let pool = |name: &str, secret: &str, infra: &str, zones: &str| {
        format!(
            "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachinePool\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  clusterName: quickstart\n  replicas: 1\n  failureDomains: [{zones}]\n  template:\n    spec:\n      clusterName: quickstart\n      bootstrap: {{dataSecretName: {secret}}}\n      infrastructureRef: {{apiGroup: infrastructure.cluster.x-k8s.io, kind: SimMachinePool, name: {infra}}}"
        )
    };
    let sim = |name: &str| {
        format!(
            "apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1\nkind: SimMachinePool\nmetadata: {{name: {name}, namespace: default}}\nspec: {{template: {{bootDuration: 1s}}}}"
        )
    };
    let says = |name: &'static str, expected: &'static [&'static str]| {
        let world = &world;
        async move {
            world
                .until(&format!("{name}: {expected:?}"), MINUTE, || async {
                    let said = world.pool_says(name, "InfrastructureReady");
                    expected.iter().all(|part| said.contains(part))
                })
                .await
                .unwrap();
        }
    };
    world
        .apply(&pool("no-secret", "nothing", "no-secret", "a"))
        .await
        .unwrap();
    says(
        "no-secret",
        &[
            "SimMachinePool default/no-secret",
            "does not exist",
            "create it",
        ],
    )
    .await;
    world.apply(&sim("no-secret")).await.unwrap();
    says(
        "no-secret",
        &["Secret default/nothing", "dataSecretName", "create it"],
    )
    .await;
    world.apply(&sim("no-zone")).await.unwrap();
    world
        .apply(&pool("no-zone", "workers-bootstrap", "no-zone", "a, x"))
        .await
        .unwrap();
    says("no-zone", &["\"x\"", "it has: a, b, c"]).await;
    world
        .apply(&pool("second", "workers-bootstrap", "workers", "a"))
        .await
        .unwrap();
    says(
        "second",
        &["SimMachinePool default/workers belongs to MachinePool workers already"],
    )
    .await;
    assert_eq!(world.machines("workers").len(), 2);
    // The remedy works.
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: nothing, namespace: default}\ntype: cluster.x-k8s.io/secret\nstringData: {value: x}";
    world.apply(secret).await.unwrap();
    world.settled("no-secret", 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_size_below_zero_is_refused_by_a_condition_and_no_machine_goes() {
    let world = World::quickstart(2).await.unwrap();
    let pools: Api<MachinePool> = Api::namespaced(world.client.clone(), "default");
    let patch = json!({"spec": {"replicas": -1}});
    pools
        .patch("workers", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    world
        .until("the refusal", MINUTE, || async {
            let said = world.pool_says("workers", "InfrastructureReady");
            said.contains("spec.replicas of MachinePool workers is -1")
                && said.contains("must be 0 or more")
        })
        .await
        .unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(world.machines("workers").len(), 2);
    world.scale("workers", 3).await.unwrap();
    world.settled("workers", 3).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn changed_labels_taints_and_timeouts_reach_machines_and_nodes_in_place() {
    let world = World::quickstart(2).await.unwrap();
    let pools: Api<MachinePool> = Api::namespaced(world.client.clone(), "default");
    let patch = json!({"spec": {"template": {
        "metadata": {"labels": {"node.cluster.x-k8s.io/team": null, "node.cluster.x-k8s.io/tier": "gold"}},
        "spec": {
            "deletion": {"nodeDrainTimeoutSeconds": 77},
            "taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule", "propagation": "Always"}],
        },
    }}});
    pools
        .patch("workers", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    world
        .until("labels and taints on every Node", MINUTE, || async {
            let list = nodes.list(&ListParams::default()).await.unwrap().items;
            list.len() == 2
                && list.iter().all(|node| {
                    let taints = node
                        .spec
                        .as_ref()
                        .and_then(|s| s.taints.clone())
                        .unwrap_or_default();
                    node.labels()
                        .get("node.cluster.x-k8s.io/tier")
                        .is_some_and(|v| v == "gold")
                        && !node.labels().contains_key("node.cluster.x-k8s.io/team")
                        && taints.iter().any(|taint| taint.key == "dedicated")
                })
        })
        .await
        .unwrap();
    for machine in world.machines("workers") {
        assert_eq!(
            machine
                .spec
                .deletion
                .as_ref()
                .unwrap()
                .node_drain_timeout_seconds,
            Some(77)
        );
        assert_eq!(
            machine
                .spec
                .deletion
                .as_ref()
                .unwrap()
                .node_deletion_timeout_seconds,
            Some(10)
        );
    }
    assert_eq!(
        world.instances().await.unwrap().len(),
        2,
        "nothing was rolled"
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_world_writes_nothing_in_the_management_cluster() {
    let world = World::quickstart(5).await.unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    let management = world.host.existing("management").unwrap();
    let writes = |counts: &muster_apiserver::RequestCounts| -> Vec<_> {
        let quiet = ["get", "list", "watch"];
        counts
            .iter()
            .filter(|((verb, _), _)| !quiet.contains(&verb.as_str()))
            .map(|(k, v)| (k.clone(), *v))
            .collect()
    };
    let before = writes(&management.requests());
    tokio::time::sleep(60 * MINUTE).await;
    assert_eq!(writes(&management.requests()), before);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_machines_come_up_and_one_of_them_can_be_deleted() {
    let world = World::quickstart(1000).await.unwrap();
    let victim = world.machines("workers")[500].clone();
    delete(&world, &victim.name_any()).await;
    world
        .until("its end", 10 * MINUTE, || async {
            !world
                .machines("workers")
                .iter()
                .any(|m| m.uid() == victim.uid())
        })
        .await
        .unwrap();
    world.settled("workers", 1000).await.unwrap();
    let requests = world.host.existing("management").unwrap().requests();
    let of = |verb: &str, resource: &str| {
        requests
            .get(&(verb.to_owned(), resource.to_owned()))
            .copied()
            .unwrap_or(0)
    };
    let core =
        of("patch", "machines.cluster.x-k8s.io") + of("patch", "machines.cluster.x-k8s.io/status");
    println!(
        "core writes per created machine: {:.2}",
        core as f64 / 1001.0
    );
    assert!(
        core <= 4 * 1001,
        "{core} writes of Machines for 1001 machines"
    );
}

#[tokio::test(start_paused = true)]
async fn a_daemon_runs_once_on_each_node() {
    let world = World::quickstart(3).await.unwrap();
    let client = start_workload(&world).await;
    let pods: Api<Pod> = Api::namespaced(client, "kube-system");
    world
        .until("a daemon on each Node", 5 * MINUTE, || async {
            let list = pods.list(&ListParams::default()).await.unwrap().items;
            let nodes: std::collections::BTreeSet<_> = list
                .iter()
                .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
                .collect();
            list.len() == 3 && nodes.len() == 3
        })
        .await
        .unwrap();
}

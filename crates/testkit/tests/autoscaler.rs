//! Stories of pools whose size Cluster Autoscaler decides: what it asks of the APIs, in its order, and what comes of it.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::{Machine, MachinePool, SimMachinePool, names};
use muster_provider_sim::console;
use muster_testkit::autoscaler::{Autoscaler, Dialect, NodeGroup, Template};
use muster_testkit::world::World;
use serde_json::json;

const MINUTE: Duration = Duration::from_secs(60);

async fn annotate(world: &World, annotations: serde_json::Value) {
    let pools: Api<MachinePool> = Api::namespaced(world.client.clone(), "default");
    let patch = json!({"metadata": {"annotations": annotations}});
    pools
        .patch("workers", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

/// A world whose pool the autoscaler may make as small as 1 and as large as 9.
async fn world(replicas: u32) -> World {
    let world = World::quickstart(replicas).await.unwrap();
    bound(&world).await;
    world
}

async fn bound(world: &World) {
    annotate(
        world,
        json!({names::AUTOSCALER_MIN_SIZE.key(): "1", names::AUTOSCALER_MAX_SIZE.key(): "9"}),
    )
    .await;
}

async fn autoscaler(world: &World, dialect: Dialect) -> Autoscaler {
    let workload = world.workload("quickstart").unwrap();
    Autoscaler::start(world.client.clone(), workload, dialect)
        .await
        .unwrap()
}

async fn workers(autoscaler: &Autoscaler) -> NodeGroup {
    autoscaler.group("workers").await.unwrap()
}

fn ids(world: &World) -> BTreeSet<String> {
    let machines = world.machines("workers");
    machines
        .iter()
        .filter_map(|machine| machine.spec.provider_id.clone())
        .collect()
}

/// Which of these instances are no longer there.
fn missing(world: &World, before: &BTreeSet<String>) -> BTreeSet<String> {
    before.difference(&ids(world)).cloned().collect()
}

fn last_part(id: &str) -> String {
    id.rsplit('/').next().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn it_starts_and_finds_the_pool_its_nodes_and_a_machine_for_each() {
    let world = world(4).await;
    let autoscaler = autoscaler(&world, Dialect::Patch).await;
    let group = workers(&autoscaler).await;
    assert_eq!((group.min, group.max, group.target), (1, 9, 4));
    let nodes = autoscaler.nodes().await.unwrap();
    assert_eq!(nodes.len(), 4);
    for node in nodes {
        let id = node.spec.unwrap().provider_id.unwrap();
        assert!(group.provider_ids.contains(&id));
        let machine = autoscaler.machine_of(&id).await.unwrap().unwrap();
        assert_eq!(
            machine["status"]["nodeRef"]["name"],
            node.metadata.name.unwrap()
        );
    }
    // A pool without both bounds is not its own.
    annotate(&world, json!({names::AUTOSCALER_MAX_SIZE.key(): null})).await;
    assert!(autoscaler.node_groups().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_node_that_it_picks_goes_and_no_other_in_both_dialects() {
    for dialect in [Dialect::Put, Dialect::Patch] {
        let world = world(5).await;
        let autoscaler = autoscaler(&world, dialect).await;
        let before = ids(&world);
        // One that no rule of the pool's would choose: of a zone that has the fewest.
        let machines = world.machines("workers");
        let c = machines.iter().find(|machine| {
            let status = machine.status.as_ref().unwrap();
            status.failure_domain.as_deref() == Some("c")
        });
        let picked = c.unwrap().spec.provider_id.clone().unwrap();
        let group = workers(&autoscaler).await;
        autoscaler
            .delete_nodes(&group, std::slice::from_ref(&picked))
            .await
            .unwrap();
        world.settled("workers", 4).await.unwrap();
        assert_eq!(missing(&world, &before), BTreeSet::from([picked]));
        world
            .until("a list of four", MINUTE, || async {
                let group = workers(&autoscaler).await;
                (group.target, group.provider_ids.len()) == (4, 4)
            })
            .await
            .unwrap();
    }
}

// C21: the mark decides over what a change of the template makes of the others.
#[tokio::test(start_paused = true)]
async fn a_marked_machine_goes_before_those_that_are_out_of_date() {
    let world = world(4).await;
    let autoscaler = autoscaler(&world, Dialect::Patch).await;
    let before = ids(&world);
    let infra: Api<SimMachinePool> = Api::namespaced(world.client.clone(), "default");
    let group = workers(&autoscaler).await;
    let patch = json!({"spec": {"template": {"nodeLabels": {"generation": "two"}}}});
    infra
        .patch("workers", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    world.scale("workers", 5).await.unwrap();
    world.settled("workers", 5).await.unwrap();
    // The newest is the only one that is up to date, and it is the one that is marked.
    let new: Vec<String> = ids(&world).difference(&before).cloned().collect();
    autoscaler.delete_nodes(&group, &new).await.unwrap();
    world.settled("workers", 4).await.unwrap();
    assert_eq!(ids(&world), before);
}

// C24: equal sizes repeated are one step, leftover marks go first when the size goes down further.
#[tokio::test(start_paused = true)]
async fn sizes_that_say_the_same_are_one_step_and_leftover_marks_are_first_next_time() {
    let world = world(5).await;
    let autoscaler = autoscaler(&world, Dialect::Patch).await;
    let before = ids(&world);
    let group = workers(&autoscaler).await;
    let marked: BTreeSet<String> = before.iter().take(3).cloned().collect();
    for id in &marked {
        let machine = autoscaler.machine_of(id).await.unwrap().unwrap();
        autoscaler.mark(&machine, Some("now")).await.unwrap();
    }
    for _ in 0..3 {
        autoscaler.set_size(&group, 4).await.unwrap();
    }
    world.settled("workers", 4).await.unwrap();
    let gone = missing(&world, &before);
    assert!(gone.len() == 1 && gone.is_subset(&marked), "{gone:?}");
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(missing(&world, &before), gone);
    autoscaler.set_size(&group, 2).await.unwrap();
    world.settled("workers", 2).await.unwrap();
    assert_eq!(missing(&world, &before), marked);
}

// C24: many marks with a size each cost one choice per wake-up, not one each.
#[tokio::test(start_paused = true)]
async fn a_burst_of_marks_and_sizes_is_few_choices_and_just_those_go() {
    let world = World::quickstart(40).await.unwrap();
    annotate(
        &world,
        json!({names::AUTOSCALER_MIN_SIZE.key(): "1", names::AUTOSCALER_MAX_SIZE.key(): "99"}),
    )
    .await;
    let autoscaler = autoscaler(&world, Dialect::Put).await;
    let before = ids(&world);
    let picked: Vec<String> = before.iter().step_by(2).cloned().collect();
    let group = workers(&autoscaler).await;
    let lists = || {
        let management = world.host.existing("management").unwrap();
        let key = ("list".to_owned(), "machines.cluster.x-k8s.io".to_owned());
        management.requests().get(&key).copied().unwrap_or(0)
    };
    autoscaler.delete_nodes(&group, &picked).await.unwrap();
    let asked = lists();
    world.settled("workers", 20).await.unwrap();
    assert_eq!(missing(&world, &before), picked.into_iter().collect());
    assert!(
        lists() <= asked + 1,
        "marks were read {} times",
        lists() - asked
    );
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_comes_after_the_size_still_says_who_goes() {
    let world = world(5).await;
    let autoscaler = autoscaler(&world, Dialect::Patch).await;
    let before = ids(&world);
    let group = workers(&autoscaler).await;
    let machines = world.machines("workers");
    let c = machines.iter().find(|machine| {
        let status = machine.status.as_ref().unwrap();
        status.failure_domain.as_deref() == Some("c")
    });
    let picked = c.unwrap().spec.provider_id.clone().unwrap();
    autoscaler.set_size(&group, 4).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let machine = autoscaler.machine_of(&picked).await.unwrap().unwrap();
    autoscaler.mark(&machine, Some("now")).await.unwrap();
    world.settled("workers", 4).await.unwrap();
    assert_eq!(missing(&world, &before), BTreeSet::from([picked]));
    // Without any mark somebody goes too, a moment later.
    autoscaler.set_size(&group, 3).await.unwrap();
    world
        .until("a victim", Duration::from_secs(10), || async {
            world
                .machines("workers")
                .iter()
                .any(|machine| machine.is_deleting())
        })
        .await
        .unwrap();
    world.settled("workers", 3).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_is_taken_back_since_the_size_could_not_be_written_changes_nothing() {
    let world = world(3).await;
    let autoscaler = autoscaler(&world, Dialect::Patch).await;
    let before = ids(&world);
    annotate(&world, json!({names::AUTOSCALER_MIN_SIZE.key(): "3"})).await;
    let group = workers(&autoscaler).await;
    let id = before.first().unwrap();
    let refused = autoscaler
        .delete_nodes(&group, std::slice::from_ref(id))
        .await;
    assert!(refused.is_err());
    let machine = autoscaler.machine_of(id).await.unwrap().unwrap();
    autoscaler.mark(&machine, Some("now")).await.unwrap();
    let machine = autoscaler.machine_of(id).await.unwrap().unwrap();
    autoscaler.mark(&machine, None).await.unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    world.settled("workers", 3).await.unwrap();
    assert_eq!(ids(&world), before);
}

#[tokio::test(start_paused = true)]
async fn what_did_not_come_for_want_of_capacity_is_taken_back_and_nobody_goes() {
    let world = world(3).await;
    let autoscaler = autoscaler(&world, Dialect::Patch).await;
    let cloud = world.cloud().unwrap();
    for zone in ["a", "b", "c"] {
        console::capacity(&cloud, "default", "workers", zone, 1)
            .await
            .unwrap();
    }
    let before = ids(&world);
    let group = workers(&autoscaler).await;
    autoscaler.increase(&group, 2).await.unwrap();
    world
        .until("trouble", MINUTE, || async {
            world
                .pool_says("workers", "InfrastructureReady")
                .contains("2 instances cannot be launched: no capacity")
        })
        .await
        .unwrap();
    let group = workers(&autoscaler).await;
    assert!(autoscaler.decrease_target(&group, 3).await.is_err());
    autoscaler.decrease_target(&group, 2).await.unwrap();
    world
        .until("no trouble", MINUTE, || async {
            world.pool_says("workers", "InfrastructureReady").is_empty()
        })
        .await
        .unwrap();
    world.settled("workers", 3).await.unwrap();
    assert_eq!(ids(&world), before);
}

// C23: a machine that never joins can be deleted without a lower size; and when the size goes down it is the first.
#[tokio::test(start_paused = true)]
async fn an_instance_that_never_joins_is_replaced_or_removed_and_the_others_stay() {
    let world = world(3).await;
    let autoscaler = autoscaler(&world, Dialect::Patch).await;
    let cloud = world.cloud().unwrap();
    let before = ids(&world);
    let hung = async || -> String {
        let known = ids(&world);
        autoscaler
            .increase(&workers(&autoscaler).await, 1)
            .await
            .unwrap();
        world
            .until("another", MINUTE, || async {
                ids(&world).len() > known.len()
            })
            .await
            .unwrap();
        let new = ids(&world).difference(&known).next().unwrap().clone();
        console::hang(&cloud, &last_part(&new)).await.unwrap();
        new
    };
    let machines: Api<Machine> = Api::namespaced(world.client.clone(), "default");
    let first = hung().await;
    let machine = autoscaler.machine_of(&first).await.unwrap().unwrap();
    machines
        .delete(
            machine["metadata"]["name"].as_str().unwrap(),
            &DeleteParams::default(),
        )
        .await
        .unwrap();
    console::heal(&cloud, &last_part(&first)).await.unwrap();
    world.settled("workers", 4).await.unwrap();
    assert!(before.is_subset(&ids(&world)) && !ids(&world).contains(&first));
    let before = ids(&world);
    // The autoscaler's own way: it gives the instance a mark and lowers the size by that one.
    let second = hung().await;
    let group = workers(&autoscaler).await;
    assert!(group.provider_ids.contains(&second));
    autoscaler
        .delete_nodes(&group, std::slice::from_ref(&second))
        .await
        .unwrap();
    console::heal(&cloud, &last_part(&second)).await.unwrap();
    world.settled("workers", 4).await.unwrap();
    assert_eq!(ids(&world), before);
    // A lower size without any mark takes it first too.
    let third = hung().await;
    let group = workers(&autoscaler).await;
    autoscaler.set_size(&group, 4).await.unwrap();
    world
        .until("its end", MINUTE, || async {
            let machines = world.machines("workers");
            machines.iter().any(|machine| {
                machine.is_deleting() && machine.spec.provider_id.as_ref() == Some(&third)
            })
        })
        .await
        .unwrap();
    console::heal(&cloud, &last_part(&third)).await.unwrap();
    world.settled("workers", 4).await.unwrap();
    assert_eq!(ids(&world), before);
}

#[tokio::test(start_paused = true)]
async fn a_pool_of_none_says_what_its_nodes_will_be_like_and_they_are_like_that() {
    let world = World::quickstart(0).await.unwrap();
    bound(&world).await;
    annotate(&world, json!({names::AUTOSCALER_MIN_SIZE.key(): "0"})).await;
    let infra: Api<SimMachinePool> = Api::namespaced(world.client.clone(), "default");
    // A number among the amounts is told as text all the same: one that is not makes the autoscaler drop all.
    let patch = json!({"spec": {"template": {"capacity": {"cpu": 8, "memory": "32Gi"}}}});
    infra
        .patch("workers", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    let pools: Api<MachinePool> = Api::namespaced(world.client.clone(), "default");
    let patch = json!({"spec": {"template": {
        "metadata": {"labels": {"node.cluster.x-k8s.io/team": "payments", "not/synced": "x"}},
        "spec": {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule", "propagation": "Always"}]},
    }}});
    pools
        .patch("workers", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    let autoscaler = autoscaler(&world, Dialect::Patch).await;
    world
        .until("the capacity", MINUTE, || async {
            let pool = infra.get("workers").await.unwrap();
            pool.status
                .is_some_and(|s| s.capacity.get("cpu").is_some_and(|c| c.0 == "8"))
        })
        .await
        .unwrap();
    let group = workers(&autoscaler).await;
    let template = autoscaler.template(&group).await.unwrap().unwrap();
    let expected = Template {
        capacity: [("cpu", "8"), ("memory", "32Gi"), ("pods", "110")]
            .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
            .into(),
        labels: template.labels.clone(),
        taints: vec!["dedicated=db:NoSchedule".to_owned()],
        architecture: "amd64".to_owned(),
        operating_system: "linux".to_owned(),
    };
    assert_eq!(template, expected);
    assert_eq!(
        template
            .labels
            .get("node.cluster.x-k8s.io/team")
            .map(String::as_str),
        Some("payments")
    );
    assert!(!template.labels.contains_key("not/synced"));
    autoscaler.increase(&group, 2).await.unwrap();
    world.settled("workers", 2).await.unwrap();
    let nodes: Api<Node> = Api::all(world.workload("quickstart").unwrap());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let status = node.status.clone().unwrap();
        let capacity = status.capacity.unwrap();
        for (resource, amount) in &template.capacity {
            assert_eq!(capacity[resource].0, *amount);
        }
        let info = status.node_info.unwrap();
        assert_eq!(info.architecture, template.architecture);
        assert_eq!(info.operating_system, template.operating_system);
        for (key, value) in &template.labels {
            assert_eq!(node.labels().get(key), Some(value));
        }
        let taints = node.spec.unwrap().taints.unwrap_or_default();
        assert!(taints.iter().any(|taint| taint.key == "dedicated"));
    }
    // And back to none.
    let group = workers(&autoscaler).await;
    let all = group.provider_ids.clone();
    autoscaler.delete_nodes(&group, &all).await.unwrap();
    world.settled("workers", 0).await.unwrap();
    assert_eq!(workers(&autoscaler).await.target, 0);
}

#[tokio::test(start_paused = true)]
async fn annotations_say_what_the_provider_cannot_know() {
    let world = World::quickstart(0).await.unwrap();
    bound(&world).await;
    annotate(
        &world,
        json!({
            "capacity.cluster-autoscaler.kubernetes.io/memory": "64Gi",
            "capacity.cluster-autoscaler.kubernetes.io/gpu-type": "nvidia.com/gpu",
            "capacity.cluster-autoscaler.kubernetes.io/gpu-count": "2",
            "capacity.cluster-autoscaler.kubernetes.io/labels": "zone=a",
            "capacity.cluster-autoscaler.kubernetes.io/taints": "gpu=yes:NoSchedule",
        }),
    )
    .await;
    let autoscaler = autoscaler(&world, Dialect::Patch).await;
    let group = workers(&autoscaler).await;
    let template = autoscaler.template(&group).await.unwrap().unwrap();
    assert_eq!(template.capacity["memory"], "64Gi");
    assert_eq!(template.capacity["cpu"], "4");
    assert_eq!(template.capacity["nvidia.com/gpu"], "2");
    assert_eq!(template.labels["zone"], "a");
    assert!(template.taints.contains(&"gpu=yes:NoSchedule".to_owned()));
}

// C20: the autoscaler of some releases compares only the last part of an ID.
#[tokio::test(start_paused = true)]
async fn the_last_parts_of_ids_are_unique_over_the_pools_of_a_cluster() {
    let world = World::quickstart(100).await.unwrap();
    let more = muster_testkit::world::quickstart(100).replace("name: workers", "name: others");
    world.apply(&more).await.unwrap();
    world.settled("others", 100).await.unwrap();
    let machines = [world.machines("workers"), world.machines("others")].concat();
    let parts: BTreeSet<String> = machines
        .iter()
        .map(|machine| last_part(machine.spec.provider_id.as_deref().unwrap()))
        .collect();
    assert_eq!(parts.len(), 200);
    assert_eq!(
        machines
            .iter()
            .map(|m| m.name_any())
            .collect::<BTreeSet<_>>()
            .len(),
        200
    );
}

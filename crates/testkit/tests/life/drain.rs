//! Drains: refusals that are told and not hammered on, Nodes that do not answer, limits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::{Machine, MachinePool};
use muster_provider_sim::console;
use muster_testkit::world::{self, LATER, SOON, World, instance_of};
use serde_json::json;

use super::support::start_workload;

/// One replica with a budget that wants it there.
fn lonely(policy: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: db, namespace: default}}\nspec:\n  replicas: 1\n  selector: {{matchLabels: {{app: db}}}}\n  template:\n    metadata: {{labels: {{app: db}}}}\n    spec: {{containers: [{{name: db, image: db}}]}}\n---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: db, namespace: default}}\nspec:\n  minAvailable: 1\n  {policy}\n  selector: {{matchLabels: {{app: db}}}}\n"
    )
}

async fn pod_ready(client: &kube::Client, ready: bool) -> bool {
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "default");
    let list = pods.list(&Default::default()).await.unwrap().items;
    let is = |pod: &k8s_openapi::api::core::v1::Pod| {
        let conditions = pod
            .status
            .as_ref()
            .and_then(|s| s.conditions.clone())
            .unwrap_or_default();
        conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True")
            == ready
    };
    list.len() == 1 && list.iter().all(is)
}

/// A pool of one whose Node runs the lonely replica and has lost its kubelet; the Machine, and the workload's client.
async fn dead_kubelet(world: &World, policy: &str) -> (Arc<Machine>, kube::Client) {
    let client = world.workload("quickstart").unwrap();
    world::apply(&client, &lonely(policy)).await.unwrap();
    world
        .until("the replica", LATER, || pod_ready(&client, true))
        .await
        .unwrap();
    let machine = world.first("workers");
    console::fail_node(&world.cloud().unwrap(), &instance_of(&machine))
        .await
        .unwrap();
    world
        .until("its end", LATER, || pod_ready(&client, false))
        .await
        .unwrap();
    world
        .says(&machine.name_any(), "NodeReady", "NodeStatusUnknown")
        .await
        .unwrap();
    (machine, client)
}

#[tokio::test(start_paused = true)]
async fn an_unready_pod_on_a_dead_node_is_evicted_at_once_where_its_budget_lets_it_go() {
    let world = World::quickstart(1).await.unwrap();
    let (machine, _) = dead_kubelet(&world, "unhealthyPodEvictionPolicy: AlwaysAllow").await;
    let name = machine.name_any();
    let start = world.clock.now();
    world.delete::<Machine>(&name).await.unwrap();
    world.gone(&name).await.unwrap();
    let took = world.clock.now().duration_since(start);
    assert!(took.as_secs() < 30, "it took {took}");
    let events = world.events(&name).await.unwrap();
    assert!(
        events.contains(&"SuccessfulDrainNode".to_owned()),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn without_that_policy_the_refusal_names_budget_policy_and_remedy_until_the_limit() {
    let world = World::quickstart(1).await.unwrap();
    let (machine, client) =
        dead_kubelet(&world, "unhealthyPodEvictionPolicy: IfHealthyBudget").await;
    let name = machine.name_any();
    world.delete::<Machine>(&name).await.unwrap();
    for part in ["default/db", "IfHealthyBudget", "AlwaysAllow"] {
        world.says(&name, "Deleting", part).await.unwrap();
    }
    assert!(pod_ready(&client, false).await, "it is not deleted plainly");
    world.gone(&name).await.unwrap();
    let events = world.events(&name).await.unwrap();
    assert!(events.contains(&"FailedDrainNode".to_owned()), "{events:?}");
}

async fn set_budget(client: &kube::Client, most: u32) {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), "default");
    let patch = json!({"spec": {"maxUnavailable": most}});
    budgets
        .patch("web", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

fn evictions(world: &World) -> u64 {
    let requests = world
        .host
        .existing("default.quickstart")
        .unwrap()
        .requests();
    let of = requests.get(&("create".to_owned(), "pods/eviction".to_owned()));
    of.copied().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn refused_evictions_are_asked_again_seldom_and_at_once_when_the_budget_opens() {
    let world = World::quickstart(3).await.unwrap();
    let client = start_workload(&world).await;
    set_budget(&client, 0).await;
    no_timeout(&world).await;
    let name = world.first("workers").name_any();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .says(&name, "Deleting", "disruption budget")
        .await
        .unwrap();
    let pods = refused_pods(&world, &name);
    let before = evictions(&world);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked = evictions(&world) - before;
    assert!(
        asked <= 30 * pods,
        "{asked} evictions of {pods} Pods in ten minutes"
    );
    assert!(asked >= 5, "it is still asked: {asked}");
    set_budget(&client, 6).await;
    world
        .until("the drain's end", Duration::from_secs(5), || async {
            !world
                .machine_says(&name, "Deleting")
                .contains("disruption budget")
        })
        .await
        .unwrap();
    world.gone(&name).await.unwrap();
}

/// Takes the drain's limit away.
async fn no_timeout(world: &World) {
    let patch =
        json!({"spec": {"template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 0}}}}});
    world.patch::<MachinePool>("workers", patch).await.unwrap();
    world
        .until("no limit", SOON, || async {
            world.machines("workers").iter().all(|m| {
                m.spec
                    .deletion
                    .as_ref()
                    .and_then(|d| d.node_drain_timeout_seconds)
                    == Some(0)
            })
        })
        .await
        .unwrap();
}

fn refused_pods(world: &World, name: &str) -> u64 {
    let said = world.machine_says(name, "Deleting");
    let line = said
        .lines()
        .find(|line| line.contains("cannot evict"))
        .unwrap();
    u64::try_from(line.split(':').next().unwrap().matches("default/").count()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_pod_that_changes_lets_no_other_be_asked_again() {
    let world = World::quickstart(1).await.unwrap();
    let client = start_workload(&world).await;
    set_budget(&client, 0).await;
    no_timeout(&world).await;
    let name = world.first("workers").name_any();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .says(&name, "Deleting", "disruption budget")
        .await
        .unwrap();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "default");
    let all = pods.list(&Default::default()).await.unwrap().items;
    let one = all[0].name_any();
    let before = evictions(&world);
    for round in 0..10 {
        let patch = json!({"metadata": {"annotations": {"round": round.to_string()}}});
        pods.patch(&one, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let asked = evictions(&world) - before;
    assert!(asked <= 6 + 1, "{asked} evictions in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn since_when_a_budget_refuses_survives_a_restart() {
    let mut world = World::quickstart(1).await.unwrap();
    let client = start_workload(&world).await;
    set_budget(&client, 0).await;
    no_timeout(&world).await;
    let name = world.first("workers").name_any();
    world.delete::<Machine>(&name).await.unwrap();
    world.says(&name, "Deleting", "(since ").await.unwrap();
    let since = |text: &str| text.split("(since ").nth(1).unwrap()[..20].to_owned();
    let before = since(&world.machine_says(&name, "Deleting"));
    tokio::time::sleep(Duration::from_secs(600)).await;
    world.restart().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(since(&world.machine_says(&name, "Deleting")), before);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_passed_can_be_read_to_the_end() {
    let world = World::quickstart(1).await.unwrap();
    let client = start_workload(&world).await;
    set_budget(&client, 0).await;
    let name = world.first("workers").name_any();
    let seen: Mutex<BTreeMap<String, String>> = Mutex::default();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .until("its end", LATER, || async {
            use muster_api::reference::Conditioned as _;
            let machine = world.machine(&name);
            if let Some(said) = machine.as_ref().and_then(|m| m.condition_of("Deleting")) {
                let mut seen = seen.lock().unwrap();
                seen.insert(said.reason.clone(), said.message.clone());
            }
            machine.is_none()
        })
        .await
        .unwrap();
    let seen = seen.into_inner().unwrap();
    let text = &seen["WaitingForInfrastructureDeletion"];
    assert!(text.contains("has not ended within its limit"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_given_to_a_pool_that_is_going_reaches_its_machines() {
    let world = World::quickstart(1).await.unwrap();
    let client = start_workload(&world).await;
    set_budget(&client, 0).await;
    no_timeout(&world).await;
    let name = world.first("workers").name_any();
    world.delete::<MachinePool>("workers").await.unwrap();
    world
        .says(&name, "Deleting", "disruption budget")
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert!(world.machine(&name).is_some(), "there is no limit");
    let patch =
        json!({"spec": {"template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 60}}}}});
    world.patch::<MachinePool>("workers", patch).await.unwrap();
    world
        .until("the pool's end", LATER, || async {
            world.pool("workers").is_none()
        })
        .await
        .unwrap();
}

//! How Pods are treated by a drain: rules, labels, budgets that cannot be met, grace that is long.

use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use muster_api::{Machine, MachineDrainRule};
use muster_provider_sim::console;
use muster_testkit::world::{self, LATER, World, instance_of};

/// A bare Pod with these labels and annotations.
fn pod(name: &str, labels: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default, labels: {{name: {name}{labels}}}, annotations: {{{annotations}}}}}\nspec: {{containers: [{{name: c, image: i}}]}}\n"
    )
}

/// A world of one machine with these Pods running on it; the Machine's name and the workload's client.
async fn with_pods(pods: &[String]) -> (World, String, Client) {
    let world = World::quickstart(1).await.unwrap();
    let client = world.workload("quickstart").unwrap();
    for pod in pods {
        world::apply(&client, pod).await.unwrap();
    }
    let all: Api<Pod> = Api::namespaced(client.clone(), "default");
    world
        .until("the Pods", LATER, || async {
            let list = all.list(&ListParams::default()).await.unwrap().items;
            list.iter()
                .filter(|p| {
                    p.spec.as_ref().unwrap().node_name.is_some()
                        && p.status.as_ref().unwrap().phase.as_deref() == Some("Running")
                })
                .count()
                == pods.len()
        })
        .await
        .unwrap();
    let name = world.first("workers").name_any();
    (world, name, client)
}

async fn present(client: &Client) -> Vec<String> {
    let all: Api<Pod> = Api::namespaced(client.clone(), "default");
    let list = all.list(&ListParams::default()).await.unwrap().items;
    let staying = list
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    staying.map(|pod| pod.name_any()).collect()
}

fn rule(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDrainRule\nmetadata: {{name: {name}, namespace: default}}\nspec: {spec}\n"
    )
}

#[tokio::test(start_paused = true)]
async fn drain_rules_order_skip_and_wait_and_are_for_the_machines_that_they_name() {
    let slow = "sim.muster.dev/stop-delay: 20s";
    let pods = [
        pod("first", ", tier: front", slow),
        pod("second", ", tier: back", slow),
        pod("kept", ", keep: me", ""),
        pod("job", ", job: one", "sim.muster.dev/completes-after: 90s"),
    ];
    let (world, name, client) = with_pods(&pods).await;
    world.apply(&rule("a-front", "{drain: {behavior: Drain, order: -5}, pods: [{selector: {matchLabels: {tier: front}}}]}")).await.unwrap();
    world
        .apply(&rule(
            "b-back",
            "{drain: {behavior: Drain, order: 7}, pods: [{selector: {matchLabels: {tier: back}}}]}",
        ))
        .await
        .unwrap();
    world
        .apply(&rule(
            "c-keep",
            "{drain: {behavior: Skip}, pods: [{selector: {matchLabels: {keep: me}}}]}",
        ))
        .await
        .unwrap();
    world.apply(&rule("d-job", "{drain: {behavior: WaitCompleted}, pods: [{selector: {matchLabels: {job: one}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}}]}")).await.unwrap();
    // Not for this Machine: its labels are others.
    world
        .apply(&rule(
            "0-none",
            "{drain: {behavior: Skip}, machines: [{selector: {matchLabels: {no: machine}}}]}",
        ))
        .await
        .unwrap();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .says(
            &name,
            "Deleting",
            "evicted after the Pods of lower order have gone",
        )
        .await
        .unwrap();
    let staying = present(&client).await;
    assert!(
        !staying.contains(&"first".to_owned()) && staying.contains(&"second".to_owned()),
        "{staying:?}"
    );
    world
        .says(&name, "Deleting", "Pod default/job: waiting for completion")
        .await
        .unwrap();
    assert!(present(&client).await.contains(&"second".to_owned()));
    world
        .deletion_at(&name, "WaitingForInfrastructureDeletion")
        .await
        .unwrap();
    let staying = present(&client).await;
    assert!(
        staying.contains(&"kept".to_owned()) && !staying.contains(&"second".to_owned()),
        "{staying:?}"
    );
    world.gone(&name).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_rule_that_cannot_be_read_stops_the_drain_and_is_named_until_it_is_corrected() {
    let (world, name, client) = with_pods(&[pod("one", "", "")]).await;
    let broken = "{drain: {behavior: Skip}, pods: [{selector: {matchExpressions: [{key: a, operator: Sometimes}]}}]}";
    world.apply(&rule("broken", broken)).await.unwrap();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .says(&name, "Deleting", "MachineDrainRule broken")
        .await
        .unwrap();
    assert_eq!(present(&client).await, ["one"]);
    world.delete::<MachineDrainRule>("broken").await.unwrap();
    world.gone(&name).await.unwrap();
}

/// Case C8 and D20.
#[tokio::test(start_paused = true)]
async fn d20_what_has_completed_is_waited_for_no_longer_and_finished_daemons_are_left() {
    let pods = [pod(
        "job",
        ", cluster.x-k8s.io/drain: wait-completed",
        "sim.muster.dev/completes-after: 300s",
    )];
    let (world, name, client) = with_pods(&pods).await;
    world.delete::<Machine>(&name).await.unwrap();
    world
        .says(&name, "Deleting", "Pod default/job: waiting for completion")
        .await
        .unwrap();
    let start = world.clock.now();
    world
        .deletion_at(&name, "WaitingForInfrastructureDeletion")
        .await
        .unwrap();
    assert!(world.clock.now().duration_since(start).as_secs() <= 301);
    assert_eq!(
        present(&client).await,
        ["job"],
        "it completed and was not evicted"
    );
}

/// Case C7.
#[tokio::test(start_paused = true)]
async fn two_budgets_that_select_one_pod_are_both_named() {
    let (world, name, client) = with_pods(&[pod("one", "", "")]).await;
    for budget in ["left", "right"] {
        let yaml = format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {budget}, namespace: default}}\nspec: {{maxUnavailable: 1, selector: {{matchLabels: {{name: one}}}}}}"
        );
        world::apply(&client, &yaml).await.unwrap();
    }
    world.delete::<Machine>(&name).await.unwrap();
    world
        .says(&name, "Deleting", "default/left and default/right")
        .await
        .unwrap();
    world
        .says(&name, "Deleting", "let only one of them select it")
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_never_allows_anything_is_called_so() {
    let (world, name, client) = with_pods(&[pod("one", "", "")]).await;
    let yaml = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: x, namespace: default}\nspec: {maxUnavailable: 0, selector: {matchLabels: {name: one}}}";
    world::apply(&client, yaml).await.unwrap();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .says(
            &name,
            "Deleting",
            "this budget never allows a disruption, for its maxUnavailable 0",
        )
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_long_grace_is_waited_for_and_shown() {
    let long = "apiVersion: v1\nkind: Pod\nmetadata: {name: slow, namespace: default, annotations: {sim.muster.dev/stop-delay: 200s}}\nspec: {terminationGracePeriodSeconds: 240, containers: [{name: c, image: i}]}\n";
    let (world, name, _) = with_pods(&[long.to_owned()]).await;
    let start = world.clock.now();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .says(
            &name,
            "Deleting",
            "the last grace period ends at 2026-01-01T00:0",
        )
        .await
        .unwrap();
    world
        .deletion_at(&name, "WaitingForInfrastructureDeletion")
        .await
        .unwrap();
    assert!((200..230).contains(&world.clock.now().duration_since(start).as_secs()));
}

/// Case C4.
#[tokio::test(start_paused = true)]
async fn a_pod_that_never_stops_is_named_with_how_long_it_is_late_and_others_go_on() {
    let world = World::quickstart(3).await.unwrap();
    let client = world.workload("quickstart").unwrap();
    let stuck = pod("stuck", "", r#"sim.muster.dev/never-stops: "true""#);
    world::apply(&client, &stuck).await.unwrap();
    let all: Api<Pod> = Api::namespaced(client, "default");
    world
        .until("the Pod", LATER, || async {
            all.get("stuck")
                .await
                .unwrap()
                .spec
                .unwrap()
                .node_name
                .is_some()
        })
        .await
        .unwrap();
    let node = all.get("stuck").await.unwrap().spec.unwrap().node_name;
    let names = world.names("workers");
    for name in &names {
        world.delete::<Machine>(name).await.unwrap();
    }
    let held = world
        .machines("workers")
        .into_iter()
        .find(|m| m.node_name() == node.as_deref())
        .unwrap()
        .name_any();
    world
        .says(&held, "Deleting", "past the end of the grace period")
        .await
        .unwrap();
    for name in names.iter().filter(|name| **name != held) {
        world.gone(name).await.unwrap();
    }
    assert!(world.machine(&held).is_some());
    // A scale-up is not held up either.
    world.scale("workers", 5).await.unwrap();
    world
        .until("two more", LATER, || async {
            world
                .machines("workers")
                .iter()
                .filter(|m| !m.is_deleting() && m.node_name().is_some())
                .count()
                >= 4
        })
        .await
        .unwrap();
    world.gone(&held).await.unwrap();
    world.settled("workers", 5).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_namespace_that_is_going_hold_nothing_up() {
    let world = World::quickstart(1).await.unwrap();
    let client = world.workload("quickstart").unwrap();
    world::apply(
        &client,
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: gone}",
    )
    .await
    .unwrap();
    let slow = pod("slow", "", "sim.muster.dev/stop-delay: 25s")
        .replace("namespace: default", "namespace: gone");
    world::apply(&client, &slow).await.unwrap();
    let all: Api<Pod> = Api::namespaced(client.clone(), "gone");
    world
        .until("the Pod", LATER, || async {
            all.get("slow")
                .await
                .unwrap()
                .status
                .unwrap()
                .phase
                .as_deref()
                == Some("Running")
        })
        .await
        .unwrap();
    Api::<Namespace>::all(client)
        .delete("gone", &DeleteParams::default())
        .await
        .unwrap();
    let name = world.first("workers").name_any();
    let start = world.clock.now();
    world.delete::<Machine>(&name).await.unwrap();
    world.gone(&name).await.unwrap();
    assert!(world.clock.now().duration_since(start).as_secs() < 60);
}

#[tokio::test(start_paused = true)]
async fn pods_that_were_not_waited_for_on_a_dead_node_are_named_in_an_event() {
    let (world, name, _) = with_pods(&[pod("one", "", "")]).await;
    console::fail_node(
        &world.cloud().unwrap(),
        &instance_of(&world.machine(&name).unwrap()),
    )
    .await
    .unwrap();
    world
        .says(&name, "NodeReady", "NodeStatusUnknown")
        .await
        .unwrap();
    world.delete::<Machine>(&name).await.unwrap();
    world.gone(&name).await.unwrap();
    let events: Api<Event> = Api::namespaced(world.client.clone(), "default");
    let list = events.list(&ListParams::default()).await.unwrap().items;
    let told = list
        .iter()
        .filter(|e| e.reason.as_deref() == Some("SuccessfulDrainNode"))
        .filter_map(|e| e.message.clone());
    let told: Vec<String> = told.collect();
    assert!(
        told.iter().any(
            |note| note.contains("Pod default/one: not waited for, as the Node is unreachable")
        ),
        "{told:?}"
    );
}

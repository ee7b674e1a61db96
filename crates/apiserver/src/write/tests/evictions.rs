//! Evictions under disruption budgets.

use serde_json::{Value, json};

use super::{World, options, pod};
use crate::write::Options;

/// A running, ready, bound pod.
async fn running(world: &World, name: &str) {
    world.create("pods", pod(name)).await.unwrap();
    world.bind(name, "n").await.unwrap();
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    world
        .merge("pods", name, Some("status"), status)
        .await
        .unwrap();
}

async fn budget(world: &World, name: &str, status: Value) {
    let body = json!({
        "metadata": {"name": name},
        "spec": {"minAvailable": 5, "selector": {"matchLabels": {"app": "web"}}},
    });
    world.create("poddisruptionbudgets", body).await.unwrap();
    world
        .merge(
            "poddisruptionbudgets",
            name,
            Some("status"),
            json!({"status": status}),
        )
        .await
        .unwrap();
}

fn allowing(disruptions: i64) -> Value {
    json!({
        "observedGeneration": 1, "disruptionsAllowed": disruptions,
        "currentHealthy": 5 + disruptions, "desiredHealthy": 5, "expectedPods": 6,
    })
}

#[tokio::test(start_paused = true)]
async fn without_a_budget_a_pod_is_evicted() {
    let world = World::new().await;
    running(&world, "p").await;
    assert_eq!(world.evict("p").await.unwrap()["status"], "Success");
    let going = world.get("pods", "p").unwrap();
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let conditions = going["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions
            .iter()
            .any(|c| c["type"] == "DisruptionTarget" && c["reason"] == "EvictionByEvictionAPI")
    );
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_spent_once_per_pod_and_then_refuses() {
    let world = World::new().await;
    running(&world, "p").await;
    running(&world, "q").await;
    budget(&world, "web", allowing(1)).await;
    world.evict("p").await.unwrap();
    let spent = world.get("poddisruptionbudgets", "web").unwrap();
    assert_eq!(spent["status"]["disruptionsAllowed"], 0);
    assert_eq!(
        spent["status"]["disruptedPods"],
        json!({"p": "1970-01-01T00:00:00Z"})
    );
    let failure = world.evict("q").await.unwrap_err();
    assert_eq!((failure.code(), failure.reason()), (429, "TooManyRequests"));
    assert_eq!(
        failure.message(),
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    assert_eq!(failure.causes()[0].reason, "DisruptionBudget");
    assert_eq!(
        failure.causes()[0].message,
        "The disruption budget web needs 5 healthy pods and has 6 currently"
    );
    assert!(
        world.get("pods", "q").unwrap()["metadata"]
            .get("deletionTimestamp")
            .is_none()
    );
    // The pod that is going already may be evicted again.
    world.evict("p").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn concurrent_evictions_never_overspend() {
    let world = World::new().await;
    let names: Vec<String> = (0..10).map(|i| format!("p{i}")).collect();
    for name in &names {
        running(&world, name).await;
    }
    budget(&world, "web", allowing(3)).await;
    let done = futures::future::join_all(names.iter().map(|name| world.evict(name))).await;
    assert_eq!(done.iter().filter(|outcome| outcome.is_ok()).count(), 3);
    let going = names.iter().filter(|name| {
        world.get("pods", name).unwrap()["metadata"]["deletionTimestamp"].is_string()
    });
    assert_eq!(going.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_was_not_looked_at_yet_asks_for_patience() {
    let world = World::new().await;
    running(&world, "p").await;
    let mut status = allowing(1);
    status["observedGeneration"] = json!(0);
    budget(&world, "web", status).await;
    let failure = world.evict("p").await.unwrap_err();
    assert_eq!((failure.code(), failure.retry_after()), (429, Some(10)));
    assert_eq!(
        failure.causes()[0].message,
        "The disruption budget web is still being processed by the server."
    );
}

#[tokio::test(start_paused = true)]
async fn two_budgets_are_one_too_many() {
    let world = World::new().await;
    running(&world, "p").await;
    budget(&world, "web", allowing(1)).await;
    budget(&world, "web2", allowing(1)).await;
    let failure = world.evict("p").await.unwrap_err();
    assert_eq!(failure.code(), 500);
    assert_eq!(
        failure.message(),
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
}

#[tokio::test(start_paused = true)]
async fn pods_that_do_not_count_go_freely() {
    let world = World::new().await;
    world.create("pods", pod("pending")).await.unwrap();
    running(&world, "done").await;
    world
        .merge(
            "pods",
            "done",
            Some("status"),
            json!({"status": {"phase": "Succeeded"}}),
        )
        .await
        .unwrap();
    budget(&world, "web", allowing(0)).await;
    world.evict("pending").await.unwrap();
    world.evict("done").await.unwrap();
    assert!(world.get("pods", "pending").is_none() && world.get("pods", "done").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_unready_pod_goes_when_the_budget_is_healthy_without_it() {
    let world = World::new().await;
    for name in ["p", "q"] {
        running(&world, name).await;
        let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        world
            .merge("pods", name, Some("status"), unready)
            .await
            .unwrap();
    }
    budget(&world, "web", allowing(0)).await;
    world.evict("p").await.unwrap();
    assert_eq!(
        world.get("poddisruptionbudgets", "web").unwrap()["status"]["disruptionsAllowed"],
        0
    );
    // Too few healthy pods: only a budget that always allows the unhealthy to go lets it.
    let few = json!({"status": {"currentHealthy": 3}});
    world
        .merge("poddisruptionbudgets", "web", Some("status"), few)
        .await
        .unwrap();
    assert_eq!(world.evict("q").await.unwrap_err().code(), 429);
    let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    world
        .merge("poddisruptionbudgets", "web", None, always)
        .await
        .unwrap();
    world.evict("q").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dry_eviction_judges_and_changes_nothing() {
    let world = World::new().await;
    running(&world, "p").await;
    budget(&world, "web", allowing(1)).await;
    let revision = world.0.storage.revision();
    let kind = world.kind("pods");
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let dry = Options {
        dry_run: true,
        ..options()
    };
    world
        .0
        .sub_create(&kind, "default", "p", "eviction", body, &dry)
        .await
        .unwrap();
    assert_eq!(world.0.storage.revision(), revision);
}

//! MachinePoolPolicies as their users meet them: what is filled in, what is refused, which one counts.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster_api::reference::Conditioned;
use muster_api::{Cluster, MachinePoolPolicy};
use muster_testkit::world::{self, World};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

fn policies(world: &World) -> Api<MachinePoolPolicy> {
    Api::namespaced(world.client.clone(), "default")
}

fn policy(name: &str, pool: &str, spec: &Value) -> MachinePoolPolicy {
    let mut spec = spec.clone();
    spec["machinePoolName"] = pool.into();
    serde_json::from_value(json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "MachinePoolPolicy",
        "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

async fn create(world: &World, name: &str, pool: &str) {
    let all = policies(world);
    let made = policy(name, pool, &json!({}));
    all.create(&PostParams::default(), &made).await.unwrap();
}

/// Waits for a word on a policy; its status, reason and message.
async fn said(world: &World, name: &str, reason: &str) -> String {
    let all = policies(world);
    world
        .until(&format!("{name} to be {reason}"), MINUTE, || async {
            let policy = all.get(name).await.unwrap();
            policy
                .condition_of("Accepted")
                .is_some_and(|c| c.reason == reason)
        })
        .await
        .unwrap();
    let policy = all.get(name).await.unwrap();
    let condition = policy.condition_of("Accepted").unwrap();
    assert_eq!(condition.observed_generation, policy.metadata.generation);
    format!("{} {}", condition.status, condition.message)
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_does_not_say_is_written_out() {
    let world = World::start().await.unwrap();
    create(&world, "plain", "workers").await;
    let plain = serde_json::to_value(policies(&world).get("plain").await.unwrap().spec).unwrap();
    assert_eq!(
        plain,
        json!({
            "machinePoolName": "workers",
            "machineDeletion": {"replacement": "Replace"},
            "scaleDown": {"order": "LeastDisruption", "zoneBalance": "Preferred"},
            "rollout": {"type": "OnDelete", "maxSurge": 1, "maxUnavailable": 0},
            "disruption": {"maxUnavailable": "10%"},
        })
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_may_not_say_is_refused_with_field_and_value() {
    let world = World::start().await.unwrap();
    let all: Api<kube::core::DynamicObject> = Api::namespaced_with(
        world.client.clone(),
        "default",
        &kube::api::ApiResource::erase::<MachinePoolPolicy>(&()),
    );
    let rolling = |surge: Value, unavailable: Value| json!({"machinePoolName": "w", "rollout": {"type": "RollingUpdate", "maxSurge": surge, "maxUnavailable": unavailable}});
    let balance = json!({"machinePoolName": "w", "scaleDown": {"zoneBalance": "Sometimes"}});
    for (spec, field, word) in [
        (json!({}), "spec.machinePoolName", "Required"),
        (
            json!({"machinePoolName": "Not A Name"}),
            "spec.machinePoolName",
            "should match",
        ),
        (
            balance,
            "spec.scaleDown.zoneBalance",
            "\"Required\", \"Preferred\", \"Ignored\"",
        ),
        (rolling(json!(-1), json!(0)), "spec.rollout.maxSurge", "-1"),
        (
            rolling(json!("101%"), json!(0)),
            "spec.rollout.maxSurge",
            "101%",
        ),
        (
            rolling(json!("some"), json!(0)),
            "spec.rollout.maxSurge",
            "some",
        ),
        (
            rolling(json!(0), json!(0)),
            "spec.rollout",
            "no machine could ever be replaced",
        ),
        (
            rolling(json!("0%"), json!(0)),
            "spec.rollout",
            "no machine could ever be replaced",
        ),
        (
            json!({"machinePoolName": "w", "disruption": {"maxUnavailable": "-5%"}}),
            "spec.disruption.maxUnavailable",
            "-5%",
        ),
    ] {
        let object = serde_json::from_value(json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "MachinePoolPolicy",
            "metadata": {"name": "wrong"}, "spec": spec,
        }))
        .unwrap();
        let refused = all.create(&PostParams::default(), &object).await;
        let told = refused.unwrap_err().to_string();
        assert!(
            told.contains(field) && told.contains(word),
            "{spec}: {told}"
        );
    }
    // What may be 0 is each of the two alone, and both where nobody rolls.
    for rollout in [
        json!({"type": "RollingUpdate", "maxSurge": 0, "maxUnavailable": 1}),
        json!({"type": "RollingUpdate", "maxSurge": "25%"}),
        json!({"type": "OnDelete", "maxSurge": 0, "maxUnavailable": 0}),
    ] {
        let right = policy("right", "w", &json!({"rollout": rollout}));
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        policies(&world).create(&params, &right).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_policy_of_a_pool_counts_and_a_second_is_told_its_name_until_the_first_goes() {
    let world = World::quickstart(1).await.unwrap();
    create(&world, "zeta", "workers").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    create(&world, "alpha", "workers").await;
    assert_eq!(said(&world, "zeta", "Accepted").await, "True ");
    let told = said(&world, "alpha", "Conflicting").await;
    assert_eq!(
        told,
        "False MachinePool workers has the older MachinePoolPolicy zeta, which counts; delete one of the two"
    );
    assert_eq!(
        world
            .caches
            .policy("default", "workers")
            .unwrap()
            .name_any(),
        "zeta"
    );
    policies(&world)
        .delete("zeta", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(said(&world, "alpha", "Accepted").await, "True ");
    // A policy that turns to another pool leaves the first to the next in line.
    create(&world, "beta", "workers").await;
    said(&world, "beta", "Conflicting").await;
    let patch = json!({"spec": {"machinePoolName": "others"}});
    policies(&world)
        .patch("alpha", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    said(&world, "beta", "Accepted").await;
    said(&world, "alpha", "NoSuchPool").await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_may_come_before_its_pool_and_a_paused_cluster_leaves_it_alone() {
    let world = World::start().await.unwrap();
    create(&world, "early", "workers").await;
    let told = said(&world, "early", "NoSuchPool").await;
    assert!(
        told.contains("there is no MachinePool workers in this namespace"),
        "{told}"
    );
    world.apply(&world::quickstart(1)).await.unwrap();
    said(&world, "early", "Accepted").await;
    world.settled("workers", 1).await.unwrap();
    let clusters: Api<Cluster> = Api::namespaced(world.client.clone(), "default");
    let pause = async |paused: Value| {
        let patch = json!({"spec": {"paused": paused}});
        clusters
            .patch("quickstart", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        tokio::time::sleep(MINUTE).await;
    };
    pause(json!(true)).await;
    create(&world, "late", "workers").await;
    tokio::time::sleep(MINUTE).await;
    assert!(policies(&world).get("late").await.unwrap().status.is_none());
    pause(Value::Null).await;
    said(&world, "late", "Conflicting").await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_settled_is_not_written_again() {
    let world = World::quickstart(3).await.unwrap();
    create(&world, "calm", "workers").await;
    said(&world, "calm", "Accepted").await;
    let version = async || {
        policies(&world)
            .get("calm")
            .await
            .unwrap()
            .resource_version()
    };
    let before = version().await;
    world.scale("workers", 5).await.unwrap();
    world.settled("workers", 5).await.unwrap();
    assert_eq!(version().await, before);
}

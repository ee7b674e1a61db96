//! Deletion: finalizers, grace, preconditions.

use serde_json::json;

use super::{World, pod};
use crate::write::{DeleteOptions, Propagation};

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let world = World::new().await;
    let body =
        json!({"metadata": {"name": "a", "finalizers": ["example.com/one", "example.com/two"]}});
    world.create("configmaps", body).await.unwrap();
    let deleted = world
        .delete("configmaps", "a", DeleteOptions::default())
        .await
        .unwrap();
    assert!(!deleted.gone);
    let going = world.get("configmaps", "a").unwrap();
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    let failure = world
        .merge(
            "configmaps",
            "a",
            None,
            json!({"metadata": {"finalizers": ["example.com/one", "example.com/new"]}}),
        )
        .await
        .unwrap_err();
    assert_eq!(
        failure.message(),
        "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/new\"}"
    );
    world
        .merge(
            "configmaps",
            "a",
            None,
            json!({"metadata": {"finalizers": ["example.com/one"]}}),
        )
        .await
        .unwrap();
    assert!(world.get("configmaps", "a").is_some());
    world
        .merge(
            "configmaps",
            "a",
            None,
            json!({"metadata": {"finalizers": null}}),
        )
        .await
        .unwrap();
    assert!(world.get("configmaps", "a").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_answers_with_a_status() {
    let world = World::new().await;
    world
        .create("configmaps", json!({"metadata": {"name": "a"}}))
        .await
        .unwrap();
    let deleted = world
        .delete("configmaps", "a", DeleteOptions::default())
        .await
        .unwrap();
    let status = deleted.response.to_value();
    assert_eq!(
        (&status["kind"], &status["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(status["details"]["kind"], "configmaps");
    let failure = world
        .delete("configmaps", "a", DeleteOptions::default())
        .await
        .unwrap_err();
    assert_eq!(
        (failure.code(), failure.message()),
        (404, "configmaps \"a\" not found")
    );
}

#[tokio::test(start_paused = true)]
async fn preconditions_hold() {
    let world = World::new().await;
    world
        .create("configmaps", json!({"metadata": {"name": "a"}}))
        .await
        .unwrap();
    let other = DeleteOptions {
        uid: Some("other".to_owned()),
        ..DeleteOptions::default()
    };
    let failure = world.delete("configmaps", "a", other).await.unwrap_err();
    assert!(
        failure.is_conflict()
            && failure
                .message()
                .contains("the UID in the precondition (other)"),
        "{failure}"
    );
    let older = DeleteOptions {
        resource_version: Some("1".to_owned()),
        ..DeleteOptions::default()
    };
    assert!(
        world
            .delete("configmaps", "a", older)
            .await
            .unwrap_err()
            .is_conflict()
    );
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_gets_time_and_its_kubelet_ends_it() {
    let world = World::new().await;
    world.create("pods", pod("p")).await.unwrap();
    world.bind("p", "n").await.unwrap();
    let deleted = world
        .delete("pods", "p", DeleteOptions::default())
        .await
        .unwrap();
    assert!(!deleted.gone);
    let going = world.get("pods", "p").unwrap();
    assert_eq!(
        going["metadata"]["deletionTimestamp"],
        "1970-01-01T00:00:30Z"
    );
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let shorter = |seconds| DeleteOptions {
        grace_period_seconds: Some(seconds),
        ..DeleteOptions::default()
    };
    world.delete("pods", "p", shorter(60)).await.unwrap();
    assert_eq!(world.get("pods", "p").unwrap(), going);
    world.delete("pods", "p", shorter(5)).await.unwrap();
    assert_eq!(
        world.get("pods", "p").unwrap()["metadata"]["deletionTimestamp"],
        "1970-01-01T00:00:05Z"
    );
    assert!(world.delete("pods", "p", shorter(0)).await.unwrap().gone);
    assert!(world.get("pods", "p").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_goes_at_once() {
    let world = World::new().await;
    world.create("pods", pod("p")).await.unwrap();
    let deleted = world
        .delete("pods", "p", DeleteOptions::default())
        .await
        .unwrap();
    assert!(deleted.gone);
    assert_eq!(deleted.response.to_value()["kind"], "Pod");
}

#[tokio::test(start_paused = true)]
async fn propagation_leaves_its_finalizer() {
    let world = World::new().await;
    for (name, propagation, finalizer) in [
        ("f", Propagation::Foreground, "foregroundDeletion"),
        ("o", Propagation::Orphan, "orphan"),
    ] {
        world
            .create("configmaps", json!({"metadata": {"name": name}}))
            .await
            .unwrap();
        let options = DeleteOptions {
            propagation: Some(propagation),
            ..DeleteOptions::default()
        };
        assert!(
            !world
                .delete("configmaps", name, options)
                .await
                .unwrap()
                .gone
        );
        assert_eq!(
            world.get("configmaps", name).unwrap()["metadata"]["finalizers"],
            json!([finalizer])
        );
    }
}

#[tokio::test(start_paused = true)]
async fn namespaces_of_the_system_stay() {
    let world = World::new().await;
    let failure = world
        .delete("namespaces", "default", DeleteOptions::default())
        .await
        .unwrap_err();
    assert_eq!(
        failure.message(),
        "namespaces \"default\" is forbidden: this namespace may not be deleted"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_new_enters_a_namespace_that_goes() {
    let world = World::new().await;
    world
        .create("namespaces", json!({"metadata": {"name": "n"}}))
        .await
        .unwrap();
    world
        .delete("namespaces", "n", DeleteOptions::default())
        .await
        .unwrap();
    assert_eq!(
        world.get("namespaces", "n").unwrap()["status"]["phase"],
        "Terminating"
    );
    let failure = world
        .create(
            "configmaps",
            json!({"metadata": {"name": "a", "namespace": "n"}}),
        )
        .await
        .unwrap_err();
    assert_eq!(failure.code(), 403);
    assert_eq!(
        failure.message(),
        "configmaps \"a\" is forbidden: unable to create new content in namespace n because it is being terminated"
    );
    assert_eq!(failure.causes()[0].reason, "NamespaceTerminating");
}

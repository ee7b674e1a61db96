//! Creating, updating and patching.

use serde_json::json;

use super::{World, options, pod};
use crate::write::{Options, PatchKind};

#[tokio::test(start_paused = true)]
async fn a_new_object_gets_an_identity() {
    let world = World::new().await;
    let made = world
        .create(
            "configmaps",
            json!({"metadata": {"name": "a"}, "data": {"k": "v"}}),
        )
        .await
        .unwrap();
    let metadata = &made["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["creationTimestamp"], "1970-01-01T00:00:00Z");
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert!(
        metadata["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
            > 0
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_object_of_that_name_is_refused() {
    let world = World::new().await;
    let body = json!({"metadata": {"name": "a"}});
    world.create("configmaps", body.clone()).await.unwrap();
    let failure = world.create("configmaps", body).await.unwrap_err();
    assert_eq!(
        (failure.code(), failure.message()),
        (409, "configmaps \"a\" already exists")
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_namespace_is_named() {
    let world = World::new().await;
    let failure = world
        .create(
            "configmaps",
            json!({"metadata": {"name": "a", "namespace": "nowhere"}}),
        )
        .await
        .unwrap_err();
    assert_eq!(
        (failure.code(), failure.message()),
        (404, "namespaces \"nowhere\" not found")
    );
}

#[tokio::test(start_paused = true)]
async fn generated_names_differ() {
    let world = World::new().await;
    let body = json!({"metadata": {"generateName": "a-"}});
    let one = world.create("configmaps", body.clone()).await.unwrap();
    let two = world.create("configmaps", body).await.unwrap();
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
    assert!(one["metadata"]["name"].as_str().unwrap().starts_with("a-"));
}

#[tokio::test(start_paused = true)]
async fn a_stale_update_conflicts_and_an_unconditional_one_wins() {
    let world = World::new().await;
    let old = world
        .create(
            "configmaps",
            json!({"metadata": {"name": "a"}, "data": {"k": "1"}}),
        )
        .await
        .unwrap();
    world
        .merge("configmaps", "a", None, json!({"data": {"k": "2"}}))
        .await
        .unwrap();
    let failure = world
        .update("configmaps", None, old.clone())
        .await
        .unwrap_err();
    assert_eq!(
        failure.message(),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    let mut unconditional = old;
    unconditional["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let written = world
        .update("configmaps", None, unconditional)
        .await
        .unwrap();
    assert_eq!(written["data"]["k"], "1");
}

#[tokio::test(start_paused = true)]
async fn what_changes_nothing_is_not_written() {
    let world = World::new().await;
    let made = world
        .create(
            "configmaps",
            json!({"metadata": {"name": "a"}, "data": {"k": "v"}}),
        )
        .await
        .unwrap();
    let revision = world.0.storage.revision();
    let same = world
        .merge("configmaps", "a", None, json!({"data": {"k": "v"}}))
        .await
        .unwrap();
    assert_eq!(
        same["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    world.update("configmaps", None, made).await.unwrap();
    assert_eq!(world.0.storage.revision(), revision);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_leaves_no_trace() {
    let world = World::new().await;
    let revision = world.0.storage.revision();
    let dry = Options {
        dry_run: true,
        ..options()
    };
    let written = world
        .write("configmaps", json!({"metadata": {"name": "a"}}), &dry)
        .await
        .unwrap();
    assert!(written.created);
    assert!(world.get("configmaps", "a").is_none());
    assert_eq!(world.0.storage.revision(), revision);
}

#[tokio::test(start_paused = true)]
async fn concurrent_unconditional_patches_all_arrive() {
    let world = World::new().await;
    world
        .create("configmaps", json!({"metadata": {"name": "a"}, "data": {}}))
        .await
        .unwrap();
    let patches = (0..20).map(|i| {
        world.merge(
            "configmaps",
            "a",
            None,
            json!({"data": {(format!("k{i}")): "v"}}),
        )
    });
    for done in futures::future::join_all(patches).await {
        done.unwrap();
    }
    assert_eq!(
        world.get("configmaps", "a").unwrap()["data"]
            .as_object()
            .unwrap()
            .len(),
        20
    );
}

#[tokio::test(start_paused = true)]
async fn secrets_take_plain_text_and_can_be_sealed() {
    let world = World::new().await;
    let made = world
        .create("secrets", json!({"metadata": {"name": "s"}, "stringData": {"password": "geheim"}, "immutable": true}))
        .await
        .unwrap();
    assert_eq!(made["data"]["password"], "Z2VoZWlt");
    assert_eq!(made["type"], "Opaque");
    assert!(made.get("stringData").is_none());
    let failure = world
        .merge(
            "secrets",
            "s",
            None,
            json!({"stringData": {"password": "x"}}),
        )
        .await
        .unwrap_err();
    assert_eq!(
        failure.message(),
        "Secret \"s\" is invalid: data: Forbidden: field is immutable when `immutable` is set"
    );
}

#[tokio::test(start_paused = true)]
async fn apply_creates_and_then_changes() {
    let world = World::new().await;
    let kind = world.kind("configmaps");
    let apply = |body, manager: &str| {
        let options = Options {
            field_manager: Some(manager.to_owned()),
            ..options()
        };
        let (cluster, kind) = (world.0.clone(), kind.clone());
        async move {
            cluster
                .patch(
                    &kind,
                    "default",
                    "a",
                    None,
                    PatchKind::Apply,
                    body,
                    &options,
                )
                .await
        }
    };
    let body = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
    assert!(apply(body("1"), "one").await.unwrap().created);
    let again = apply(body("2"), "one").await.unwrap();
    assert!(!again.created);
    assert_eq!(again.object.to_value()["data"]["k"], "2");
    let failure = apply(body("3"), "two").await.unwrap_err();
    assert_eq!(
        failure.message(),
        "Apply failed with 1 conflict: conflict with \"one\": .data.k"
    );
    let mut odd = body("2");
    odd["dato"] = json!({});
    assert_eq!(
        apply(odd, "one").await.unwrap_err().message(),
        "failed to create typed patch object (default/a; /v1, Kind=ConfigMap): .dato: field not declared in schema"
    );
    let failure = apply(body("3"), "").await.unwrap_err();
    assert_eq!(
        failure.message(),
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_refused_when_strict() {
    let world = World::new().await;
    let failure = world
        .create("configmaps", json!({"metadata": {"name": "a"}, "dato": {}}))
        .await
        .unwrap_err();
    assert_eq!(
        failure.message(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"dato\""
    );
}

#[tokio::test(start_paused = true)]
async fn leases_are_created_by_an_update() {
    let world = World::new().await;
    let made = world
        .update(
            "leases",
            None,
            json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}),
        )
        .await
        .unwrap();
    assert_eq!(made["spec"]["holderIdentity"], "me");
    let failure = world
        .update(
            "leases",
            None,
            json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "you"}}),
        )
        .await
        .unwrap_err();
    assert!(
        failure
            .message()
            .ends_with("must be specified for an update"),
        "{failure}"
    );
}

#[tokio::test(start_paused = true)]
async fn events_are_the_same_in_both_groups() {
    let world = World::new().await;
    let kind = world
        .0
        .registry
        .resolve("events.k8s.io", "v1", "events")
        .unwrap();
    let body = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}, "note": "hello", "reason": "Greeted",
        "type": "Normal", "eventTime": "1970-01-01T00:00:00.000000Z", "action": "Greet",
        "reportingController": "greeter", "reportingInstance": "greeter-0",
    });
    let made = world
        .0
        .create(&kind, "default", None, body, &options())
        .await
        .unwrap();
    assert_eq!(made.object.to_value()["note"], "hello");
    let stored = world.get("events", "e").unwrap();
    assert_eq!(stored["message"], "hello");
    assert_eq!(stored["involvedObject"]["name"], "p");
    assert_eq!(stored["apiVersion"], "v1");
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_its_defaults_and_keeps_its_spec() {
    let world = World::new().await;
    let made = world.create("pods", pod("p")).await.unwrap();
    assert_eq!(
        made["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
    assert_eq!(made["spec"]["restartPolicy"], "Always");
    assert_eq!(made["spec"]["terminationGracePeriodSeconds"], 30);
    assert_eq!(made["spec"]["priority"], 0);
    let failure = world
        .merge("pods", "p", None, json!({"spec": {"nodeName": "n"}}))
        .await
        .unwrap_err();
    assert!(
        failure.message().starts_with(
            "Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_once() {
    let world = World::new().await;
    world.create("pods", pod("p")).await.unwrap();
    world.bind("p", "n1").await.unwrap();
    assert_eq!(world.get("pods", "p").unwrap()["spec"]["nodeName"], "n1");
    let failure = world.bind("p", "n2").await.unwrap_err();
    assert_eq!(
        failure.message(),
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\""
    );
}

//! Status, generation and scale, on Deployments.

use serde_json::{Value, json};

use super::World;

fn deployment(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "web:1"}]},
            },
        },
    })
}

#[tokio::test(start_paused = true)]
async fn only_what_is_wanted_counts_as_a_generation() {
    let world = World::new().await;
    let made = world.create("deployments", deployment("d")).await.unwrap();
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
    let labelled = world
        .merge(
            "deployments",
            "d",
            None,
            json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await
        .unwrap();
    assert_eq!(labelled["metadata"]["generation"], 1);
    let scaled = world
        .merge("deployments", "d", None, json!({"spec": {"replicas": 3}}))
        .await
        .unwrap();
    assert_eq!(scaled["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart() {
    let world = World::new().await;
    world.create("deployments", deployment("d")).await.unwrap();
    let both = json!({"spec": {"replicas": 7}, "status": {"replicas": 5}});
    let by_status = world
        .merge("deployments", "d", Some("status"), both.clone())
        .await
        .unwrap();
    assert_eq!(
        (
            &by_status["spec"]["replicas"],
            &by_status["status"]["replicas"]
        ),
        (&json!(1), &json!(5))
    );
    assert_eq!(by_status["metadata"]["generation"], 1);
    let by_spec = world
        .merge(
            "deployments",
            "d",
            None,
            json!({"spec": {"replicas": 7}, "status": {"replicas": 9}}),
        )
        .await
        .unwrap();
    assert_eq!(
        (&by_spec["spec"]["replicas"], &by_spec["status"]["replicas"]),
        (&json!(7), &json!(5))
    );
}

#[tokio::test(start_paused = true)]
async fn a_selector_that_misses_its_template_is_refused() {
    let world = World::new().await;
    let mut body = deployment("d");
    body["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    let failure = world.create("deployments", body).await.unwrap_err();
    assert!(
        failure
            .message()
            .starts_with("Deployment.apps \"d\" is invalid: spec.template.metadata.labels: ")
    );
    assert!(
        failure
            .message()
            .ends_with("`selector` does not match template `labels`")
    );
}

#[tokio::test(start_paused = true)]
async fn a_selector_never_changes() {
    let world = World::new().await;
    let mut made = world.create("deployments", deployment("d")).await.unwrap();
    made["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    made["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    let failure = world.update("deployments", None, made).await.unwrap_err();
    assert!(
        failure.message().ends_with("field is immutable"),
        "{failure}"
    );
}

#[tokio::test(start_paused = true)]
async fn negative_replicas_are_refused() {
    let world = World::new().await;
    world.create("deployments", deployment("d")).await.unwrap();
    let failure = world
        .merge("deployments", "d", None, json!({"spec": {"replicas": -1}}))
        .await
        .unwrap_err();
    assert_eq!(
        failure.message(),
        "Deployment.apps \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
    let failure = world
        .merge(
            "deployments",
            "d",
            Some("scale"),
            json!({"spec": {"replicas": -1}}),
        )
        .await
        .unwrap_err();
    assert_eq!(failure.code(), 422);
}

#[tokio::test(start_paused = true)]
async fn a_scale_is_read_and_written() {
    let world = World::new().await;
    world.create("deployments", deployment("d")).await.unwrap();
    let scale = world
        .merge(
            "deployments",
            "d",
            Some("scale"),
            json!({"spec": {"replicas": 4}}),
        )
        .await
        .unwrap();
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["spec"]["replicas"], 4);
    assert_eq!(scale["status"]["selector"], "app=web");
    assert_eq!(
        world.get("deployments", "d").unwrap()["spec"]["replicas"],
        4
    );
    let read = world
        .0
        .scale(&world.kind("deployments"), "default", "d")
        .unwrap();
    assert_eq!(read["metadata"]["name"], "d");
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_cannot_run_is_refused_field_by_field() {
    let world = World::new().await;
    let body = json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{
            "name": "main", "image": "web:1",
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
        }, {"name": "main"}]},
    });
    let failure = world.create("pods", body).await.unwrap_err();
    let causes: Vec<String> = failure
        .causes()
        .iter()
        .map(|c| format!("{}: {}", c.field, c.message))
        .collect();
    assert_eq!(
        causes,
        [
            "spec.containers[0].volumeMounts[0].name: Not found: \"data\"",
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            "spec.containers[1].name: Duplicate value: \"main\"",
            "spec.containers[1].image: Required value",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_wrong_type_is_a_body_that_cannot_be_read() {
    let world = World::new().await;
    let mut body = deployment("d");
    body["spec"]["replicas"] = json!("three");
    let failure = world.create("deployments", body).await.unwrap_err();
    assert_eq!(failure.code(), 400);
    assert_eq!(
        failure.message(),
        "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct field Deployment.spec.replicas of type integer"
    );
}

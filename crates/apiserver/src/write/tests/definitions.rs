//! Custom kinds.

use muster_clock::Clock;
use serde_json::json;

use super::{World, options, widgets};
use crate::write::{Cluster, FieldValidation, Options};

#[tokio::test(start_paused = true)]
async fn a_definition_is_established_and_served() {
    let world = World::new().await;
    let made = world
        .create("customresourcedefinitions", widgets())
        .await
        .unwrap();
    let conditions = made["status"]["conditions"].as_array().unwrap();
    for name in ["NamesAccepted", "Established"] {
        assert!(
            conditions
                .iter()
                .any(|c| c["type"] == name && c["status"] == "True"),
            "{name}"
        );
    }
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(made["status"]["acceptedNames"]["singular"], "widget");
    assert!(
        world
            .0
            .registry
            .resolve("example.com", "v1", "widgets")
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn custom_objects_are_defaulted_pruned_and_validated() {
    let world = World::new().await;
    world
        .create("customresourcedefinitions", widgets())
        .await
        .unwrap();
    let warn = Options {
        validation: FieldValidation::Warn,
        ..options()
    };
    let body = json!({"metadata": {"name": "w"}, "spec": {"replicas": 1, "shape": "round"}, "status": {"replicas": 9}});
    let written = world.write("widgets", body, &warn).await.unwrap();
    assert_eq!(written.warnings, ["unknown field \"spec.shape\""]);
    let made = written.object.to_value();
    assert_eq!(made["spec"], json!({"replicas": 1, "colour": "red"}));
    assert!(made.get("status").is_none());
    let failure = world
        .create(
            "widgets",
            json!({"metadata": {"name": "x"}, "spec": {"replicas": -1}}),
        )
        .await
        .unwrap_err();
    assert_eq!(
        failure.message(),
        "Widget.example.com \"x\" is invalid: spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0"
    );
}

#[tokio::test(start_paused = true)]
async fn custom_objects_count_generations_and_scale() {
    let world = World::new().await;
    world
        .create("customresourcedefinitions", widgets())
        .await
        .unwrap();
    world
        .create(
            "widgets",
            json!({"metadata": {"name": "w"}, "spec": {"replicas": 1}}),
        )
        .await
        .unwrap();
    let status = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 5}, "status": {"replicas": 1}});
    let by_status = world
        .merge("widgets", "w", Some("status"), status)
        .await
        .unwrap();
    assert_eq!(by_status["metadata"]["generation"], 1);
    assert_eq!(by_status["spec"]["replicas"], 1);
    assert!(by_status["metadata"].get("labels").is_none());
    let scale = world
        .merge(
            "widgets",
            "w",
            Some("scale"),
            json!({"spec": {"replicas": 3}}),
        )
        .await
        .unwrap();
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 3}), &json!({"replicas": 1}))
    );
    assert_eq!(
        world.get("widgets", "w").unwrap()["metadata"]["generation"],
        2
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_under_the_wrong_name_is_refused() {
    let world = World::new().await;
    let mut body = widgets();
    body["metadata"]["name"] = json!("gadgets.example.com");
    let failure = world
        .create("customresourcedefinitions", body)
        .await
        .unwrap_err();
    assert!(
        failure
            .message()
            .contains("must be spec.names.plural+\".\"+spec.group"),
        "{failure}"
    );
}

#[tokio::test(start_paused = true)]
async fn taken_names_are_not_accepted() {
    let world = World::new().await;
    world
        .create("customresourcedefinitions", widgets())
        .await
        .unwrap();
    let mut rival = widgets();
    rival["metadata"]["name"] = json!("widgetz.example.com");
    rival["spec"]["names"]["plural"] = json!("widgetz");
    let made = world
        .create("customresourcedefinitions", rival)
        .await
        .unwrap();
    let conditions = made["status"]["conditions"].as_array().unwrap();
    assert!(
        conditions
            .iter()
            .any(|c| c["type"] == "Established" && c["status"] == "False")
    );
    assert!(
        world
            .0
            .registry
            .resolve("example.com", "v1", "widgetz")
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn versions_share_their_objects() {
    let world = World::new().await;
    let mut body = widgets();
    let mut older = body["spec"]["versions"][0].clone();
    older["name"] = json!("v1beta1");
    older["storage"] = json!(false);
    body["spec"]["versions"].as_array_mut().unwrap().push(older);
    world
        .create("customresourcedefinitions", body)
        .await
        .unwrap();
    let beta = world
        .0
        .registry
        .resolve("example.com", "v1beta1", "widgets")
        .unwrap();
    let object = json!({
        "apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"replicas": 1},
    });
    let written = world
        .0
        .create(&beta, "default", None, object, &options())
        .await
        .unwrap();
    assert_eq!(
        written.object.to_value()["apiVersion"],
        "example.com/v1beta1"
    );
    assert_eq!(
        world.get("widgets", "w").unwrap()["apiVersion"],
        "example.com/v1"
    );
}

#[tokio::test(start_paused = true)]
async fn stored_definitions_are_served_after_a_restart() {
    let world = World::new().await;
    world
        .create("customresourcedefinitions", widgets())
        .await
        .unwrap();
    let again = Cluster::open(
        world.0.name.clone(),
        world.0.storage.clone(),
        Clock::system(),
    );
    assert!(
        again
            .registry
            .resolve("example.com", "v1", "widgets")
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn what_became_invalid_does_not_hinder_other_changes() {
    let world = World::new().await;
    world
        .create("customresourcedefinitions", widgets())
        .await
        .unwrap();
    world
        .create(
            "widgets",
            json!({"metadata": {"name": "w"}, "spec": {"replicas": 1}}),
        )
        .await
        .unwrap();
    let mut stricter = world
        .get("customresourcedefinitions", "widgets.example.com")
        .unwrap();
    let schema = &mut stricter["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["replicas"]["minimum"] = json!(3);
    world
        .update("customresourcedefinitions", None, stricter)
        .await
        .unwrap();
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"colour": "blue"}});
    world.merge("widgets", "w", None, patch).await.unwrap();
    let failure = world
        .merge("widgets", "w", None, json!({"spec": {"replicas": 2}}))
        .await
        .unwrap_err();
    assert_eq!(failure.code(), 422);
}

//! The collectors at work on a cluster in memory.

use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::write::tests::{World, widgets};
use crate::write::{DeleteOptions, Propagation};

struct Collected {
    world: World,
    _running: DropGuard,
}

async fn collected() -> Collected {
    let world = World::new().await;
    let cancel = CancellationToken::new();
    super::spawn(world.0.clone(), cancel.clone());
    Collected {
        world,
        _running: cancel.drop_guard(),
    }
}

/// Lets the collectors finish what they have to do; in virtual time this is at once.
async fn settled() {
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
}

fn owned(name: &str, owners: &[&Value], blocks: bool) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .map(|owner| {
            json!({
                "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks,
            })
        })
        .collect();
    json!({"metadata": {"name": name, "ownerReferences": references}})
}

fn with(propagation: Propagation) -> DeleteOptions {
    DeleteOptions {
        propagation: Some(propagation),
        ..DeleteOptions::default()
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_owner() {
    let Collected { world, _running } = collected().await;
    let owner = world
        .create("configmaps", json!({"metadata": {"name": "owner"}}))
        .await
        .unwrap();
    let child = world
        .create("configmaps", owned("child", &[&owner], false))
        .await
        .unwrap();
    world
        .create("secrets", owned("grandchild", &[&child], false))
        .await
        .unwrap();
    settled().await;
    assert!(world.get("secrets", "grandchild").is_some());
    assert!(
        world
            .delete("configmaps", "owner", DeleteOptions::default())
            .await
            .unwrap()
            .gone
    );
    settled().await;
    assert!(world.get("configmaps", "child").is_none());
    assert!(world.get("secrets", "grandchild").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_dependent_of_two_owners_lets_go_of_the_one_that_went() {
    let Collected { world, _running } = collected().await;
    let one = world
        .create("configmaps", json!({"metadata": {"name": "one"}}))
        .await
        .unwrap();
    let two = world
        .create("configmaps", json!({"metadata": {"name": "two"}}))
        .await
        .unwrap();
    world
        .create("configmaps", owned("child", &[&one, &two], false))
        .await
        .unwrap();
    world
        .delete("configmaps", "one", DeleteOptions::default())
        .await
        .unwrap();
    settled().await;
    let child = world.get("configmaps", "child").unwrap();
    let names: Vec<&Value> = child["metadata"]["ownerReferences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| &o["name"])
        .collect();
    assert_eq!(names, ["two"]);
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_goes_last() {
    let Collected { world, _running } = collected().await;
    let owner = world
        .create("configmaps", json!({"metadata": {"name": "owner"}}))
        .await
        .unwrap();
    let mut child = owned("child", &[&owner], true);
    child["metadata"]["finalizers"] = json!(["example.com/slow"]);
    world.create("configmaps", child).await.unwrap();
    world
        .delete("configmaps", "owner", with(Propagation::Foreground))
        .await
        .unwrap();
    settled().await;
    assert!(
        world.get("configmaps", "owner").is_some(),
        "the owner waits for its dependent"
    );
    assert!(world.get("configmaps", "child").unwrap()["metadata"]["deletionTimestamp"].is_string());
    world
        .merge(
            "configmaps",
            "child",
            None,
            json!({"metadata": {"finalizers": null}}),
        )
        .await
        .unwrap();
    settled().await;
    assert!(world.get("configmaps", "child").is_none());
    assert!(world.get("configmaps", "owner").is_none());
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_forget() {
    let Collected { world, _running } = collected().await;
    let owner = world
        .create("configmaps", json!({"metadata": {"name": "owner"}}))
        .await
        .unwrap();
    world
        .create("configmaps", owned("child", &[&owner], true))
        .await
        .unwrap();
    world
        .delete("configmaps", "owner", with(Propagation::Orphan))
        .await
        .unwrap();
    settled().await;
    assert!(world.get("configmaps", "owner").is_none());
    let child = world.get("configmaps", "child").unwrap();
    assert!(child["metadata"].get("ownerReferences").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_object_of_an_owner_that_never_was_is_collected() {
    let Collected { world, _running } = collected().await;
    let nobody = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nobody", "uid": "none"}});
    world
        .create("configmaps", owned("child", &[&nobody], false))
        .await
        .unwrap();
    let stranger = json!({"apiVersion": "example.com/v1", "kind": "Stranger", "metadata": {"name": "x", "uid": "unknown"}});
    world
        .create("configmaps", owned("kept", &[&stranger], false))
        .await
        .unwrap();
    settled().await;
    assert!(world.get("configmaps", "child").is_none());
    assert!(
        world.get("configmaps", "kept").is_some(),
        "an owner of an unknown kind may exist elsewhere"
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_its_content() {
    let Collected { world, _running } = collected().await;
    world
        .create("namespaces", json!({"metadata": {"name": "n"}}))
        .await
        .unwrap();
    for name in ["a", "b"] {
        world
            .create(
                "configmaps",
                json!({"metadata": {"name": name, "namespace": "n"}}),
            )
            .await
            .unwrap();
    }
    let held =
        json!({"metadata": {"name": "held", "namespace": "n", "finalizers": ["example.com/slow"]}});
    world.create("secrets", held).await.unwrap();
    world
        .delete("namespaces", "n", DeleteOptions::default())
        .await
        .unwrap();
    settled().await;
    let (maps, secrets) = (world.kind("configmaps"), world.kind("secrets"));
    let count = |kind: &crate::registry::Kind| {
        world
            .0
            .storage
            .list(&world.0.name, &kind.stored_as, Some("n"))
            .items
            .len()
    };
    assert_eq!((count(&maps), count(&secrets)), (0, 1));
    assert!(world.get("namespaces", "n").is_some());
    let release = json!({"metadata": {"finalizers": null}});
    world
        .0
        .patch(
            &secrets,
            "n",
            "held",
            None,
            crate::write::PatchKind::Merge,
            release,
            &crate::write::tests::options(),
        )
        .await
        .unwrap();
    settled().await;
    assert!(world.get("namespaces", "n").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_empty_namespace_goes_at_once() {
    let Collected { world, _running } = collected().await;
    world
        .create("namespaces", json!({"metadata": {"name": "n"}}))
        .await
        .unwrap();
    world
        .delete("namespaces", "n", DeleteOptions::default())
        .await
        .unwrap();
    settled().await;
    assert!(world.get("namespaces", "n").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_definition_goes_with_its_objects() {
    let Collected { world, _running } = collected().await;
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
    let widget = world.kind("widgets");
    let deleted = world
        .delete(
            "customresourcedefinitions",
            "widgets.example.com",
            DeleteOptions::default(),
        )
        .await
        .unwrap();
    assert!(!deleted.gone);
    settled().await;
    assert!(
        world
            .get("customresourcedefinitions", "widgets.example.com")
            .is_none()
    );
    assert_eq!(world.0.storage.count(&world.0.name, &widget.stored_as), 0);
    assert!(
        world
            .0
            .registry
            .resolve("example.com", "v1", "widgets")
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_left_undone_is_done_after_a_restart() {
    let world = World::new().await;
    let owner = world
        .create("configmaps", json!({"metadata": {"name": "owner"}}))
        .await
        .unwrap();
    world
        .create("configmaps", owned("child", &[&owner], false))
        .await
        .unwrap();
    world
        .delete("configmaps", "owner", DeleteOptions::default())
        .await
        .unwrap();
    world
        .create("namespaces", json!({"metadata": {"name": "n"}}))
        .await
        .unwrap();
    world
        .delete("namespaces", "n", DeleteOptions::default())
        .await
        .unwrap();
    let cancel = CancellationToken::new();
    super::spawn(world.0.clone(), cancel.clone());
    let _running = cancel.drop_guard();
    settled().await;
    assert!(world.get("configmaps", "child").is_none());
    assert!(world.get("namespaces", "n").is_none());
}

#[tokio::test(start_paused = true)]
async fn events_are_kept_for_an_hour_after_their_last_change() {
    let Collected { world, _running } = collected().await;
    for name in ["once", "again"] {
        let event = json!({
            "metadata": {"name": name}, "reason": "Seen", "type": "Normal",
            "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "a"},
        });
        world.create("events", event).await.unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_secs(1800)).await;
    world
        .merge("events", "again", None, json!({"count": 2}))
        .await
        .unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(1801)).await;
    assert!(world.get("events", "once").is_none());
    assert!(world.get("events", "again").is_some());
    tokio::time::sleep(std::time::Duration::from_secs(1801)).await;
    assert!(world.get("events", "again").is_none());
}

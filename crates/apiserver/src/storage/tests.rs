//! What the storage promises: order, expectations, history, durability.

use serde_json::json;

use super::*;

fn cluster() -> ClusterName {
    ClusterName::management()
}

fn resource() -> ResourceName {
    ResourceName::new("example.com", "things")
}

fn put(name: &str, expect: Expect, color: &str) -> Write {
    Write {
        cluster: cluster(),
        resource: resource(),
        key: ObjectKey::new("default", name),
        expect,
        content: Content::Put {
            object: json!({"metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}"),
                "labels": {"color": color}}, "spec": {"color": color}}),
            fields: vec![("spec.color".into(), color.into())],
        },
    }
}

fn delete(name: &str, revision: u64) -> Write {
    Write {
        content: Content::Delete,
        ..put(name, Expect::Revision(revision), "")
    }
}

#[tokio::test]
async fn a_commit_is_all_or_nothing_and_names_the_write_that_does_not_fit() {
    let storage = Storage::in_memory();
    let a = storage
        .commit(vec![put("a", Expect::Absent, "red")])
        .await
        .unwrap();
    let refused = storage
        .commit(vec![
            put("b", Expect::Absent, "red"),
            put("a", Expect::Revision(99), "red"),
        ])
        .await;
    let Err(CommitError::Conflict {
        index: 1,
        current: Some(current),
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(current.revision, a[0].revision);
    assert_eq!(storage.list(&cluster(), &resource(), None).items.len(), 1);
}

#[tokio::test]
async fn the_revision_is_the_resource_version_of_the_stored_object() {
    let storage = Storage::in_memory();
    let made = storage
        .commit(vec![put("a", Expect::Absent, "red")])
        .await
        .unwrap();
    let stored = storage
        .get(&cluster(), &resource(), &ObjectKey::new("default", "a"))
        .unwrap();
    assert_eq!(
        stored.value()["metadata"]["resourceVersion"],
        made[0].revision.to_string()
    );
    assert_eq!(stored.label("color"), Some("red"));
    assert_eq!(stored.field("spec.color"), Some("red"));
}

#[tokio::test]
async fn a_watch_gets_every_change_after_its_revision_in_order() {
    let storage = Storage::in_memory();
    let a = storage
        .commit(vec![put("a", Expect::Absent, "red")])
        .await
        .unwrap();
    let mut events = storage
        .watch(&cluster(), &resource(), a[0].revision)
        .unwrap();
    let b = storage
        .commit(vec![put("b", Expect::Absent, "red")])
        .await
        .unwrap();
    storage
        .commit(vec![put("a", Expect::Revision(a[0].revision), "blue")])
        .await
        .unwrap();
    storage
        .commit(vec![delete("b", b[0].revision)])
        .await
        .unwrap();
    let batch = events.next().await.unwrap();
    let told: Vec<_> = batch
        .events
        .iter()
        .map(|e| (e.kind, e.object.key.name.to_string()))
        .collect();
    assert_eq!(
        told,
        [
            (EventKind::Added, "b".to_owned()),
            (EventKind::Modified, "a".into()),
            (EventKind::Deleted, "b".into())
        ]
    );
    let gone = &batch.events[2];
    assert_eq!(
        gone.object.value()["metadata"]["resourceVersion"],
        gone.revision.to_string()
    );
    assert_eq!(batch.revision, storage.revision());
}

#[tokio::test]
async fn a_watcher_that_is_too_far_behind_is_told_to_list_anew() {
    let storage = Storage::in_memory();
    let mut last = storage
        .commit(vec![put("a", Expect::Absent, "red")])
        .await
        .unwrap()[0]
        .revision;
    let first = last;
    let mut events = storage.watch(&cluster(), &resource(), first).unwrap();
    for _ in 0..5000 {
        last = storage
            .commit(vec![put("a", Expect::Revision(last), "red")])
            .await
            .unwrap()[0]
            .revision;
    }
    assert!(events.ready().is_err());
    assert!(storage.watch(&cluster(), &resource(), first).is_err());
    assert!(storage.watch(&cluster(), &resource(), last).is_ok());
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path()).unwrap();
    let a = storage
        .commit(vec![put("a", Expect::Absent, "red")])
        .await
        .unwrap();
    let b = storage
        .commit(vec![put("b", Expect::Absent, "red")])
        .await
        .unwrap();
    storage
        .commit(vec![put("a", Expect::Revision(a[0].revision), "blue")])
        .await
        .unwrap();
    storage
        .commit(vec![delete("b", b[0].revision)])
        .await
        .unwrap();
    let revision = storage.revision();
    assert!(matches!(
        Storage::open(dir.path()),
        Err(OpenError::InUse { .. })
    ));
    storage.close().await;
    drop(storage);

    let storage = reopen(dir.path()).await;
    assert_eq!(storage.revision(), revision);
    let list = storage.list(&cluster(), &resource(), Some("default"));
    assert_eq!(list.items.len(), 1);
    assert_eq!(list.items[0].field("spec.color"), Some("blue"));
    assert!(
        storage
            .watch(&cluster(), &resource(), revision - 1)
            .is_err()
    );
}

/// The lock goes with the writer thread, a moment after the answer to `close`.
async fn reopen(path: &Path) -> Storage {
    loop {
        match Storage::open(path) {
            Ok(storage) => return storage,
            Err(OpenError::InUse { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_dropped_cluster_leaves_nothing_and_no_other_cluster_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path()).unwrap();
    let other = ClusterName::new("management2");
    storage
        .commit(vec![put("a", Expect::Absent, "red")])
        .await
        .unwrap();
    storage
        .commit(vec![Write {
            cluster: other.clone(),
            ..put("a", Expect::Absent, "red")
        }])
        .await
        .unwrap();
    storage.drop_cluster(&cluster()).await.unwrap();
    storage.close().await;
    drop(storage);
    let storage = reopen(dir.path()).await;
    assert_eq!(storage.clusters(), [other]);
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("store.redb"), "not a database").unwrap();
    let error = Storage::open(dir.path()).err().unwrap().to_string();
    assert!(
        error.contains("store.redb") && error.contains("backup"),
        "{error}"
    );
}

#[tokio::test]
async fn concurrent_commits_on_one_object_let_exactly_one_through() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path()).unwrap();
    let attempts = (0..64).map(|_| storage.commit(vec![put("a", Expect::Absent, "red")]));
    let done = futures::future::join_all(attempts).await;
    assert_eq!(done.iter().filter(|result| result.is_ok()).count(), 1);
}

#[tokio::test]
async fn a_watch_from_an_empty_list_is_served_though_other_resources_changed_meanwhile() {
    let storage = Storage::in_memory();
    storage
        .commit(vec![put("a", Expect::Absent, "red")])
        .await
        .unwrap();
    let other = ResourceName::new("example.com", "others");
    let empty = storage.list(&cluster(), &other, None).revision;
    storage
        .commit(vec![put("b", Expect::Absent, "red")])
        .await
        .unwrap();
    let mut events = storage.watch(&cluster(), &other, empty).unwrap();
    assert!(events.ready().unwrap().events.is_empty());
}

#[tokio::test]
async fn nobody_else_can_look_into_the_store() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let _storage = Storage::open(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

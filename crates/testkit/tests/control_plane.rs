//! The control plane for tests is what it says: a real API server, whose users may do what RBAC says, gone when it is
//! dropped.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use muster_testkit::control_plane::ControlPlane;
use muster_testkit::process;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_serves_knows_its_users_and_keeps_what_it_was_told() {
    let Some(mut plane) = ControlPlane::start(1).await.unwrap() else {
        return;
    };
    let client = plane.client().await.unwrap();
    let version = client.apiserver_version().await.unwrap();
    assert_eq!(version.major, "1");

    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let map: ConfigMap =
        serde_json::from_value(serde_json::json!({"metadata": {"name": "kept"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();

    let stranger = process::client(&plane.user("stranger", None).unwrap())
        .await
        .unwrap();
    let refused = Api::<ConfigMap>::namespaced(stranger, "default")
        .get("kept")
        .await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403),
        "{refused:?}"
    );

    plane.stop_api();
    assert!(maps.get("kept").await.is_err(), "nobody answers");
    plane.start_api().await.unwrap();
    maps.get("kept").await.unwrap();

    let directory = plane.directory().to_owned();
    drop(plane);
    assert!(maps.get("kept").await.is_err(), "nobody answers");
    assert!(!directory.exists());
}

//! `kube`'s client in process: what controllers call must work as against any cluster.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{
    Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy,
};
use kube::runtime::events::{Event as Told, EventType, Recorder, Reporter};
use kube::{Client, Resource as _, ResourceExt as _};
use muster_apiserver::{Host, Persistence};
use muster_clock::Clock;
use serde_json::json;

async fn client() -> (Host, Client) {
    let host = Host::open(Persistence::Memory, Clock::system())
        .await
        .unwrap();
    let client = host.cluster("management").await.unwrap().client();
    (host, client)
}

fn typed<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

async fn running(pods: &Api<Pod>, name: &str) {
    let pod = typed(json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "web:1"}]},
    }));
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(status))
        .await
        .unwrap();
}

#[tokio::test]
async fn evictions_respect_budgets() {
    let (_host, client) = client().await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client);
    running(&pods, "a").await;
    running(&pods, "b").await;
    let budget = typed(json!({
        "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }));
    budgets
        .create(&PostParams::default(), &budget)
        .await
        .unwrap();
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
    }});
    budgets
        .patch_status("web", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    pods.evict("a", &EvictParams::default()).await.unwrap();
    assert!(
        pods.get("a")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    let refused = pods.evict("b", &EvictParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}");
    };
    assert_eq!(status.code, 429);
    assert_eq!(
        status.details.unwrap().causes[0].message,
        "The disruption budget web needs 1 healthy pods and has 2 currently"
    );
}

#[tokio::test]
async fn typed_objects_survive_the_round_trip() {
    let (_host, client) = client().await;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = typed(json!({
        "metadata": {"name": "n"}, "spec": {"providerID": "sim:///a/i-1"},
        "status": {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }));
    let node = nodes.create(&PostParams::default(), &node).await.unwrap();
    assert_eq!(node.status.unwrap().allocatable.unwrap()["cpu"].0, "4");
    nodes
        .patch(
            "n",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"unschedulable": true}})),
        )
        .await
        .unwrap();
    let cordoned = ListParams::default().fields("spec.unschedulable=true");
    assert_eq!(nodes.list(&cordoned).await.unwrap().items.len(), 1);

    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let lease = typed(json!({
        "metadata": {"name": "n"},
        "spec": {"holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
    }));
    let mut lease = leases.create(&PostParams::default(), &lease).await.unwrap();
    lease.spec.as_mut().unwrap().lease_transitions = Some(1);
    let renewed = leases
        .replace("n", &PostParams::default(), &lease)
        .await
        .unwrap();
    assert_ne!(renewed.resource_version(), lease.resource_version());
    let stale = leases
        .replace("n", &PostParams::default(), &lease)
        .await
        .unwrap_err();
    assert!(matches!(stale, kube::Error::Api(status) if status.is_conflict()));

    let deployments: Api<Deployment> = Api::default_namespaced(client);
    let deployment = typed(json!({
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "web:1"}]},
            },
        },
    }));
    deployments
        .create(&PostParams::default(), &deployment)
        .await
        .unwrap();
    let scale = deployments
        .patch_scale(
            "web",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"replicas": 4}})),
        )
        .await
        .unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(4));
    assert_eq!(
        deployments
            .get_scale("web")
            .await
            .unwrap()
            .status
            .unwrap()
            .selector
            .unwrap(),
        "app=web"
    );
    let deleted = deployments
        .delete(
            "web",
            &DeleteParams {
                propagation_policy: Some(PropagationPolicy::Foreground),
                ..DeleteParams::default()
            },
        )
        .await
        .unwrap();
    assert!(
        deleted.is_left(),
        "the object stays until its dependents are gone"
    );
}

#[tokio::test]
async fn server_side_apply_creates_and_refuses_what_others_manage() {
    let (_host, client) = client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let wanted = |value: &str| {
        Patch::Apply(ConfigMap {
            metadata: kube::api::ObjectMeta {
                name: Some("a".to_owned()),
                ..Default::default()
            },
            data: Some(BTreeMap::from([("k".to_owned(), value.to_owned())])),
            ..Default::default()
        })
    };
    let made = maps
        .patch("a", &PatchParams::apply("one"), &wanted("1"))
        .await
        .unwrap();
    let same = maps
        .patch("a", &PatchParams::apply("one"), &wanted("1"))
        .await
        .unwrap();
    assert_eq!(made.resource_version(), same.resource_version());
    let refused = maps
        .patch("a", &PatchParams::apply("two"), &wanted("2"))
        .await
        .unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}");
    };
    assert_eq!(
        status.message,
        "Apply failed with 1 conflict: conflict with \"one\": .data.k"
    );
    maps.patch("a", &PatchParams::apply("two").force(), &wanted("2"))
        .await
        .unwrap();
}

#[tokio::test]
async fn recorded_events_are_read_as_core_events() {
    let (_host, client) = client().await;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret = typed(json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}}));
    let secret = secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    let recorder = Recorder::new(client.clone(), Reporter::from("muster"));
    let told = Told {
        type_: EventType::Normal,
        reason: "Seen".to_owned(),
        note: Some("it is there".to_owned()),
        action: "Look".to_owned(),
        secondary: None,
    };
    for _ in 0..2 {
        recorder
            .publish(&told, &secret.object_ref(&()))
            .await
            .unwrap();
    }
    let events: Api<Event> = Api::default_namespaced(client);
    let about = ListParams::default()
        .fields("involvedObject.kind=Secret,involvedObject.name=s,reason=Seen");
    let found = events.list(&about).await.unwrap().items;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].message.as_deref(), Some("it is there"));
}

#[tokio::test]
async fn a_deleted_namespace_is_gone_soon_with_its_content() {
    let (_host, client) = client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let team = typed(json!({"metadata": {"name": "team"}}));
    let team = namespaces
        .create(&PostParams::default(), &team)
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "team");
    for index in 0..50 {
        let map = typed(json!({"metadata": {"name": format!("m{index}")}}));
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    namespaces
        .delete("team", &DeleteParams::default())
        .await
        .unwrap();
    let uid = team.uid().unwrap();
    let gone = kube::runtime::wait::conditions::is_deleted(&uid);
    tokio::time::timeout(
        std::time::Duration::from_secs(10),
        kube::runtime::wait::await_condition(namespaces, "team", gone),
    )
    .await
    .unwrap()
    .unwrap();
    assert!(
        maps.list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

//! Volumes of a Node whose Machine goes: those that a drain frees are waited for, and no others.

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use muster_api::{Machine, MachinePool};
use muster_provider_sim::console;
use muster_testkit::world::{self, LATER, SOON, World, instance_of};
use serde_json::json;

/// A volume with its claim, and a StatefulSet of one that uses it, with this on volume and Pod.
fn database(volume: &str, pod_labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: disk-1, annotations: {{{volume}}}}}\nspec:\n  capacity: {{storage: 1Gi}}\n  accessModes: [ReadWriteOnce]\n  csi: {{driver: sim.example.com, volumeHandle: h-1}}\n  claimRef: {{namespace: default, name: data-db-0}}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: data-db-0, namespace: default}}\nspec:\n  accessModes: [ReadWriteOnce]\n  volumeName: disk-1\n  resources: {{requests: {{storage: 1Gi}}}}\n---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: db, namespace: default}}\nspec:\n  replicas: 1\n  serviceName: db\n  selector: {{matchLabels: {{app: db}}}}\n  template:\n    metadata: {{labels: {{app: db{pod_labels}}}}}\n    spec:\n      containers: [{{name: db, image: db}}]\n      volumes: [{{name: data, persistentVolumeClaim: {{claimName: data-db-0}}}}]\n"
    )
}

/// Two machines, the database on one of them; that Machine, and the workload's client.
async fn with_database(
    volume: &str,
    pod_labels: &str,
) -> (World, std::sync::Arc<Machine>, kube::Client) {
    let world = World::quickstart(2).await.unwrap();
    let client = world.workload("quickstart").unwrap();
    world::apply(&client, &database(volume, pod_labels))
        .await
        .unwrap();
    let attachments: Api<VolumeAttachment> = Api::all(client.clone());
    world
        .until("the database", LATER, || async {
            let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
            let pod = pods.get_opt("db-0").await.unwrap();
            let running = pod.is_some_and(|p| {
                p.status
                    .is_some_and(|s| s.phase.as_deref() == Some("Running"))
            });
            running
                && attachments
                    .list(&ListParams::default())
                    .await
                    .unwrap()
                    .items
                    .len()
                    == 1
        })
        .await
        .unwrap();
    let node = attachments
        .list(&ListParams::default())
        .await
        .unwrap()
        .items[0]
        .spec
        .node_name
        .clone();
    let machine = world
        .machines("workers")
        .into_iter()
        .find(|m| m.node_name() == Some(&node))
        .unwrap();
    (world, machine, client)
}

async fn attached_to(client: &kube::Client) -> Vec<String> {
    let all: Api<VolumeAttachment> = Api::all(client.clone());
    let list = all.list(&ListParams::default()).await.unwrap().items;
    list.into_iter().map(|a| a.spec.node_name).collect()
}

#[tokio::test(start_paused = true)]
async fn an_instance_ends_only_after_its_volume_is_detached_and_the_next_pod_has_it_then() {
    let (world, machine, client) = with_database("sim.muster.dev/detach-delay: 40s", "").await;
    let name = machine.name_any();
    let node: Node = Api::<Node>::all(client.clone())
        .get(machine.node_name().unwrap())
        .await
        .unwrap();
    let listed = node.status.unwrap().volumes_attached.unwrap();
    assert_eq!(listed[0].name, "kubernetes.io/csi/sim.example.com^h-1");
    world.delete::<Machine>(&name).await.unwrap();
    world
        .deletion_at(&name, "WaitingForVolumeDetach")
        .await
        .unwrap();
    world.says(&name, "Deleting", "disk-1").await.unwrap();
    let instances = world.live_instances().await.unwrap();
    assert!(instances.contains(&instance_of(&machine)));
    world
        .deletion_at(&name, "WaitingForInfrastructureDeletion")
        .await
        .unwrap();
    let now = attached_to(&client).await;
    assert!(
        !now.contains(&machine.node_name().unwrap().to_owned()),
        "{now:?}"
    );
    world.gone(&name).await.unwrap();
    let events = world.events(&name).await.unwrap();
    assert!(
        events.contains(&"NodeVolumesDetached".to_owned()),
        "{events:?}"
    );
    world
        .until("the database elsewhere", LATER, || async {
            let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
            let pod = pods.get_opt("db-0").await.unwrap();
            pod.is_some_and(|p| {
                p.status
                    .is_some_and(|s| s.phase.as_deref() == Some("Running"))
            })
        })
        .await
        .unwrap();
    assert_eq!(attached_to(&client).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_never_comes_loose_is_waited_for_as_long_as_its_limit_says() {
    let (world, machine, _) = with_database(r#"sim.muster.dev/never-detaches: "true""#, "").await;
    let name = machine.name_any();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .deletion_at(&name, "WaitingForVolumeDetach")
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    world
        .deletion_at(&name, "WaitingForVolumeDetach")
        .await
        .unwrap();
    let status = world
        .machine(&name)
        .unwrap()
        .status
        .clone()
        .unwrap()
        .deletion
        .unwrap();
    assert!(status.node_drain_start_time.is_some());
    assert!(status.wait_for_node_volume_detach_start_time.is_some());
    // A limit that is given to the pool reaches it, and has passed already.
    let limit = json!({"spec": {"template": {"spec": {"deletion": {"nodeVolumeDetachTimeoutSeconds": 60}}}}});
    world.patch::<MachinePool>("workers", limit).await.unwrap();
    world.gone(&name).await.unwrap();
    let events = world.events(&name).await.unwrap();
    assert!(
        events.contains(&"FailedWaitForVolumeDetach".to_owned()),
        "{events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_pods_that_are_not_drained_is_not_waited_for() {
    let (world, machine, _) = with_database("", r#", cluster.x-k8s.io/drain: skip"#).await;
    let name = machine.name_any();
    let start = world.clock.now();
    world.delete::<Machine>(&name).await.unwrap();
    world.gone(&name).await.unwrap();
    assert!(world.clock.now().duration_since(start).as_secs() < 60);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_volumes_and_the_drain_can_be_left_out_by_annotation() {
    let (world, machine, client) =
        with_database(r#"sim.muster.dev/never-detaches: "true""#, "").await;
    let name = machine.name_any();
    for what in [
        "exclude-node-draining",
        "exclude-wait-for-node-volume-detach",
    ] {
        let key = format!("machine.cluster.x-k8s.io/{what}");
        world
            .annotate::<Machine>(&name, &key, Some(""))
            .await
            .unwrap();
    }
    let before = Api::<Pod>::namespaced(client.clone(), "default")
        .get("db-0")
        .await
        .unwrap();
    world.delete::<Machine>(&name).await.unwrap();
    world
        .deletion_at(&name, "WaitingForInfrastructureDeletion")
        .await
        .unwrap();
    let after = Api::<Pod>::namespaced(client, "default")
        .get("db-0")
        .await
        .unwrap();
    assert_eq!(
        (after.uid(), after.metadata.deletion_timestamp),
        (before.uid(), None)
    );
    world.gone(&name).await.unwrap();
}

/// Case C10.
#[tokio::test(start_paused = true)]
async fn a_volume_on_a_node_that_does_not_answer_is_not_waited_for() {
    let (world, machine, client) = with_database("", "").await;
    let name = machine.name_any();
    console::fail_node(&world.cloud().unwrap(), &instance_of(&machine))
        .await
        .unwrap();
    world
        .says(&name, "NodeReady", "NodeStatusUnknown")
        .await
        .unwrap();
    let start = world.clock.now();
    world.delete::<Machine>(&name).await.unwrap();
    world.gone(&name).await.unwrap();
    assert!(world.clock.now().duration_since(start).as_secs() < 60);
    // Node and attachment are gone, so the volume is free for the next Pod at once.
    world
        .until("the database elsewhere", SOON, || async {
            let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
            let pod = pods.get_opt("db-0").await.unwrap();
            pod.is_some_and(|p| {
                p.status
                    .is_some_and(|s| s.phase.as_deref() == Some("Running"))
                    && p.spec.unwrap().node_name != machine.node_name().map(str::to_owned)
            })
        })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn d17_an_attachment_without_a_volume_holds_nothing() {
    let world = World::quickstart(1).await.unwrap();
    let machine = world.first("workers");
    let client = world.workload("quickstart").unwrap();
    let all: Api<VolumeAttachment> = Api::all(client.clone());
    for (name, source) in [
        ("lost", json!({"persistentVolumeName": "gone"})),
        (
            "inline",
            json!({"inlineVolumeSpec": {"csi": {"driver": "other.example.com", "volumeHandle": "x"}}}),
        ),
    ] {
        let attachment: VolumeAttachment = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"attacher": "other.example.com", "nodeName": machine.node_name(), "source": source},
        }))
        .unwrap();
        all.create(&PostParams::default(), &attachment)
            .await
            .unwrap();
        let status = Patch::Merge(json!({"status": {"attached": true}}));
        all.patch_status(name, &PatchParams::default(), &status)
            .await
            .unwrap();
    }
    let name = machine.name_any();
    world.delete::<Machine>(&name).await.unwrap();
    world.gone(&name).await.unwrap();
    let volumes: Api<PersistentVolume> = Api::all(client);
    assert!(
        volumes
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

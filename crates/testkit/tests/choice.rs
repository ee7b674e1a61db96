//! Stories of who goes when a pool gets smaller, for the sake of what runs on its Nodes.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client, ResourceExt};
use muster_testkit::world::{self, World};

const MINUTE: Duration = Duration::from_secs(60);

/// A policy of the pool, with this in its spec.
async fn policy(world: &World, spec: &str) {
    let yaml = format!(
        "apiVersion: muster.dev/v1alpha1\nkind: MachinePoolPolicy\nmetadata: {{name: workers, namespace: default}}\nspec: {{machinePoolName: workers, {spec}}}"
    );
    world.apply(&yaml).await.unwrap();
}

/// Puts a Pod on a Node, and waits until it is ready.
async fn put(world: &World, client: &Client, name: &str, node: &str, volumes: &str) {
    let yaml = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default, labels: {{app: {name}}}}}\nspec: {{nodeName: {node}, containers: [{{name: main, image: 'registry.k8s.io/pause:3.10'}}]{volumes}}}"
    );
    world::apply(client, &yaml).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    world
        .until("the Pod to be ready", 5 * MINUTE, || async {
            muster_observe::drain::is_ready(&pods.get(name).await.unwrap())
        })
        .await
        .unwrap();
}

/// The Machine that goes first if nothing runs anywhere: its name and its Node's.
async fn first_victim(world: &World) -> (String, String) {
    use muster_observe::machine::{member, pool};
    let machines = world.machines("workers");
    let members: Vec<_> = machines.iter().map(|machine| member(machine)).collect();
    let policy = world.caches.policy("default", "workers");
    let desired = u32::try_from(members.len()).unwrap() - 1;
    let choice = muster_plan::pool::scale_down(&pool(policy.as_deref(), desired), &members);
    let name = choice.victims[0].0.clone();
    let machine = machines.iter().find(|m| m.name_any() == name).unwrap();
    (name, machine.node_name().unwrap().to_owned())
}

fn has(world: &World, name: &str) -> bool {
    let machines = world.machines("workers");
    machines.iter().any(|machine| machine.name_any() == name)
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_pod_has_no_room_in_its_budget_is_not_the_one_that_goes() {
    let world = World::quickstart(3).await.unwrap();
    policy(&world, "scaleDown: {zoneBalance: Ignored}").await;
    let (name, node) = first_victim(&world).await;
    let client = world.workload("quickstart").unwrap();
    put(&world, &client, "db", &node, "").await;
    world::apply(&client, "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: db, namespace: default}\nspec: {minAvailable: 1, selector: {matchLabels: {app: db}}}").await.unwrap();
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, "default");
    world
        .until("the budget to be counted", MINUTE, || async {
            let status = budgets.get("db").await.unwrap().status;
            status.is_some_and(|status| status.current_healthy == Some(1))
        })
        .await
        .unwrap();
    world.scale("workers", 1).await.unwrap();
    world.settled("workers", 1).await.unwrap();
    assert!(has(&world, &name), "{}", world.story());
}

#[tokio::test(start_paused = true)]
async fn of_three_zones_the_one_goes_whose_volumes_nobody_needs() {
    let world = World::quickstart(3).await.unwrap();
    assert_eq!(world.spread("workers"), "a1 b1 c1");
    let (name, node) = first_victim(&world).await;
    let zone = |name: &str| {
        let machines = world.machines("workers");
        let machine = machines.iter().find(|m| m.name_any() == name).unwrap();
        machine
            .status
            .as_ref()
            .and_then(|status| status.failure_domain.clone())
            .unwrap()
    };
    let volume = format!(
        "apiVersion: v1
kind: PersistentVolume
metadata: {{name: data}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteOnce]
  csi: {{driver: disks.example.org, volumeHandle: vol-1}}
  claimRef: {{namespace: default, name: data}}
  nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: topology.kubernetes.io/zone, operator: In, values: [{}]}}]}}]}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data, namespace: default}}
spec: {{accessModes: [ReadWriteOnce], volumeName: data, resources: {{requests: {{storage: 1Gi}}}}}}",
        zone(&name)
    );
    let client = world.workload("quickstart").unwrap();
    world::apply(&client, &volume).await.unwrap();
    let volumes = ", volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]";
    put(&world, &client, "db", &node, volumes).await;
    // The others have more Pods each, but nothing that could not run in another zone.
    for (at, machine) in world.machines("workers").iter().enumerate() {
        if machine.name_any() != name {
            for n in 0..2 {
                let other = machine.node_name().unwrap();
                put(&world, &client, &format!("web-{at}-{n}"), other, "").await;
            }
        }
    }
    world.scale("workers", 2).await.unwrap();
    world.settled("workers", 2).await.unwrap();
    assert!(has(&world, &name), "{}", world.story());
}

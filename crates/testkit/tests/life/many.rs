//! Many deletions at once: budgets hold, drains have their turns, and nobody is forgotten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt};
use muster_api::reference::Conditioned as _;
use muster_api::{Machine, MachinePool};
use muster_controllers::Settings;
use muster_provider_sim::console;
use muster_testkit::world::{self, LATER, SOON, World, quickstart};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

/// How many replicas each app has, and how many of them may be missing.
const REPLICAS: usize = 5;

fn app(name: &str, stop: u64, start: u64) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  replicas: {REPLICAS}\n  selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata:\n      labels: {{app: {name}}}\n      annotations: {{sim.muster.dev/stop-delay: {stop}s, sim.muster.dev/start-delay: {start}s}}\n    spec:\n      terminationGracePeriodSeconds: 60\n      containers: [{{name: c, image: i}}]\n---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {name}, namespace: default}}\nspec: {{maxUnavailable: 1, selector: {{matchLabels: {{app: {name}}}}}}}\n"
    )
}

/// Follows all Pods and notes evictions of ready Pods that left fewer ready ones than their budget wants.
#[derive(Default)]
struct Ledger {
    pods: BTreeMap<String, Pod>,
    /// When an app last lost a ready Pod otherwise: its budget may be behind for a moment.
    faults: BTreeMap<String, Timestamp>,
    evictions: usize,
    broken: Vec<String>,
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions
            .into_iter()
            .flatten()
            .any(|c| c.type_ == "Ready" && c.status == "True")
}

impl Ledger {
    fn note(&mut self, pod: Pod, now: Timestamp) {
        let (name, app) = (
            pod.name_any(),
            pod.labels().get("app").cloned().unwrap_or_default(),
        );
        let was_ready = self.pods.get(&name).is_some_and(is_ready);
        let lost = was_ready && !is_ready(&pod);
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
        let evicted = pod.metadata.deletion_timestamp.is_some()
            && conditions
                .into_iter()
                .flatten()
                .any(|c| c.reason.as_deref() == Some("EvictionByEvictionAPI"));
        self.pods.insert(name.clone(), pod);
        if !lost {
            return;
        }
        if !evicted {
            self.faults.insert(app, now);
            return;
        }
        self.evictions += 1;
        let left = self
            .pods
            .values()
            .filter(|p| p.labels().get("app") == Some(&app) && is_ready(p))
            .count();
        let behind = self
            .faults
            .get(&app)
            .is_some_and(|at| now.duration_since(*at) < SignedDuration::from_millis(200));
        if left + 1 < REPLICAS && !behind {
            self.broken.push(format!(
                "{name} was evicted at {now}: {left} of {REPLICAS} ready of {app}"
            ));
        }
    }
}

fn follow(
    client: Client,
    clock: muster_clock::Clock,
) -> (Arc<Mutex<Ledger>>, tokio::task::JoinHandle<()>) {
    let ledger: Arc<Mutex<Ledger>> = Arc::default();
    let notes = Arc::clone(&ledger);
    let task = tokio::spawn(async move {
        let pods = watcher(
            Api::<Pod>::namespaced(client, "default"),
            watcher::Config::default(),
        );
        let mut pods = std::pin::pin!(pods.default_backoff());
        while let Some(event) = pods.next().await {
            let mut ledger = notes.lock().unwrap();
            match event {
                Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                    ledger.note(pod, clock.now())
                }
                Ok(watcher::Event::Delete(pod)) => {
                    ledger.note(pod.clone(), clock.now());
                    ledger.pods.remove(&pod.name_any());
                }
                _ => {}
            }
        }
    });
    (ledger, task)
}

async fn all_available(world: &World, client: &Client, count: usize) {
    let all: Api<Deployment> = Api::namespaced(client.clone(), "default");
    world
        .until("all apps", LATER, || async {
            let list = all.list(&ListParams::default()).await.unwrap().items;
            let ready =
                |d: &&Deployment| d.status.as_ref().and_then(|s| s.available_replicas) == Some(5);
            list.iter().filter(ready).count() == count
        })
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_hundred_machines_go_under_forty_budgets_while_pods_and_kubelets_fail() {
    let world = World::quickstart(200).await.unwrap();
    let forever =
        json!({"spec": {"template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 0}}}}});
    world
        .patch::<MachinePool>("workers", forever)
        .await
        .unwrap();
    let client = world.workload("quickstart").unwrap();
    let mut rng = StdRng::seed_from_u64(18);
    for number in 0..40 {
        let (stop, start) = (rng.random_range(0..20), rng.random_range(0..10));
        let yaml = app(&format!("app-{number}"), stop, start);
        world::apply(&client, &yaml).await.unwrap();
    }
    all_available(&world, &client, 40).await;
    let (ledger, task) = follow(client.clone(), world.clock.clone());
    let victims: Vec<_> = world
        .machines("workers")
        .iter()
        .map(|m| (m.name_any(), m.uid()))
        .collect();
    for (name, _) in &victims {
        world.delete::<Machine>(name).await.unwrap();
    }
    let left = || {
        let here =
            |name: &str, uid: &Option<String>| world.machine(name).is_some_and(|m| m.uid() == *uid);
        victims.iter().filter(|(name, uid)| here(name, uid)).count()
    };
    let cloud = world.cloud().unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let mut failed: Option<String> = None;
    let end = world
        .clock
        .now()
        .saturating_add(SignedDuration::from_hours(6))
        .unwrap();
    while left() > 0 {
        assert!(
            world.clock.now() < end,
            "{} are left: {}",
            left(),
            world.story()
        );
        // A kubelet falls silent for a while, and somebody's Pod dies.
        if let Some(id) = failed.take() {
            let _ = console::heal(&cloud, &id).await;
        } else {
            let live = world.live_instances().await.unwrap();
            let id = live[rng.random_range(0..live.len())].clone();
            console::fail_node(&cloud, &id).await.unwrap();
            failed = Some(id);
        }
        let list = pods.list(&ListParams::default()).await.unwrap().items;
        let unlucky = list[rng.random_range(0..list.len())].name_any();
        let _ = pods.delete(&unlucky, &DeleteParams::default()).await;
        tokio::time::sleep(Duration::from_secs(90)).await;
    }
    if let Some(id) = failed {
        let _ = console::heal(&cloud, &id).await;
    }
    world.settled("workers", 200).await.unwrap();
    task.abort();
    let ledger = ledger.lock().unwrap();
    assert!(
        ledger.evictions > 150,
        "only {} evictions",
        ledger.evictions
    );
    assert!(ledger.broken.is_empty(), "{:#?}", ledger.broken);
}

/// Machines whose Nodes are being drained now.
fn draining(world: &World, pool: &str) -> Vec<String> {
    let drains = |m: &Machine| {
        m.condition_of("Deleting").is_some_and(|said| {
            said.reason == "DrainingNode" && said.message.starts_with("Drain not completed yet")
        })
    };
    let machines = world.machines(pool);
    machines
        .iter()
        .filter(|m| drains(m))
        .map(|m| m.name_any())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn fifty_machines_of_a_pool_drain_side_by_side_and_never_more_than_the_limit() {
    let world = World::quickstart(60).await.unwrap();
    let client = world.workload("quickstart").unwrap();
    for number in 0..30 {
        world::apply(&client, &app(&format!("app-{number}"), 10, 1))
            .await
            .unwrap();
    }
    all_available(&world, &client, 30).await;
    let victims: Vec<String> = world.names("workers").into_iter().take(50).collect();
    let start = world.clock.now();
    for name in &victims {
        world.delete::<Machine>(name).await.unwrap();
    }
    let mut most = 0;
    world
        .until("their end", LATER, || {
            most = most.max(draining(&world, "workers").len());
            async { victims.iter().all(|name| world.machine(name).is_none()) }
        })
        .await
        .unwrap();
    let took = world.clock.now().duration_since(start);
    assert!((10..=20).contains(&most), "{most} drains at once");
    assert!(took < SignedDuration::from_mins(20), "it took {took}");
    world.settled("workers", 60).await.unwrap();
}

/// A world whose controllers drain so many Nodes at once, with a pool of that size.
async fn with_limit(limit: usize, replicas: u32) -> World {
    let settings = Settings {
        concurrent_drains: limit,
        ..Settings::default()
    };
    let world = World::with(settings).await.unwrap();
    world.apply(&quickstart(replicas)).await.unwrap();
    world.settled("workers", replicas).await.unwrap();
    world
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_for_their_turn_are_avoided_and_a_machine_that_is_torn_away_frees_its_place()
 {
    let world = with_limit(1, 4).await;
    let client = super::support::start_workload(&world).await;
    // The budget never opens, so the first drain stays.
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(client.clone(), "default");
    let none = Patch::Merge(json!({"spec": {"maxUnavailable": 0}}));
    budgets
        .patch("web", &PatchParams::default(), &none)
        .await
        .unwrap();
    let names = world.names("workers");
    world.delete::<Machine>(&names[0]).await.unwrap();
    world
        .says(&names[0], "Deleting", "disruption budget")
        .await
        .unwrap();
    world.delete::<Machine>(&names[1]).await.unwrap();
    world
        .says(
            &names[1],
            "Deleting",
            "Waiting for its turn to be drained: 1 Nodes",
        )
        .await
        .unwrap();
    let nodes: Api<Node> = Api::all(client);
    let second = world
        .machine(&names[1])
        .unwrap()
        .node_name()
        .unwrap()
        .to_owned();
    world
        .until("the taint", SOON, || async {
            let node = nodes.get(&second).await.unwrap();
            let taints = node.spec.unwrap().taints.unwrap_or_default();
            taints
                .iter()
                .any(|t| t.key == "muster.dev/drains-soon" && t.effect == "PreferNoSchedule")
        })
        .await
        .unwrap();
    let node = nodes.get(&second).await.unwrap();
    assert_ne!(
        node.spec.unwrap().unschedulable,
        Some(true),
        "it still takes Pods"
    );
    // Somebody strips the first Machine's finalizer.
    let strip = json!({"metadata": {"finalizers": null}});
    world.patch::<Machine>(&names[0], strip).await.unwrap();
    world
        .says(&names[1], "Deleting", "disruption budget")
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cordon_of_somebody_elses_is_kept_and_one_that_is_taken_away_is_set_again() {
    let world = World::quickstart(2).await.unwrap();
    let client = super::support::start_workload(&world).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let cordon = |on: bool| Patch::Merge(json!({"spec": {"unschedulable": on}}));
    let names = world.names("workers");
    let other = world
        .machine(&names[1])
        .unwrap()
        .node_name()
        .unwrap()
        .to_owned();
    let victim = world
        .machine(&names[0])
        .unwrap()
        .node_name()
        .unwrap()
        .to_owned();
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(client, "default");
    let none = Patch::Merge(json!({"spec": {"maxUnavailable": 0}}));
    budgets
        .patch("web", &PatchParams::default(), &none)
        .await
        .unwrap();
    world.delete::<Machine>(&names[0]).await.unwrap();
    world
        .says(&names[0], "Deleting", "disruption budget")
        .await
        .unwrap();
    // Case C54: uncordoned in the midst of the drain.
    nodes
        .patch(&victim, &PatchParams::default(), &cordon(false))
        .await
        .unwrap();
    world
        .until("the cordon", SOON, || async {
            nodes
                .get(&victim)
                .await
                .unwrap()
                .spec
                .unwrap()
                .unschedulable
                == Some(true)
        })
        .await
        .unwrap();
    let events = world.events(&names[0]).await.unwrap();
    assert!(
        events.contains(&"NodeCordonedAgain".to_owned()),
        "{events:?}"
    );
    nodes
        .patch(&other, &PatchParams::default(), &cordon(true))
        .await
        .unwrap();
    let open = Patch::Merge(json!({"spec": {"maxUnavailable": 6}}));
    budgets
        .patch("web", &PatchParams::default(), &open)
        .await
        .unwrap();
    world.gone(&names[0]).await.unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(
        nodes.get(&other).await.unwrap().spec.unwrap().unschedulable,
        Some(true)
    );
}

#[tokio::test(start_paused = true)]
async fn two_drains_that_starve_each_other_go_one_after_the_other() {
    // Case C5: each of two Nodes has one Pod of both apps, and nothing else has room.
    let world = World::quickstart(2).await.unwrap();
    let forever =
        json!({"spec": {"template": {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 0}}}}});
    world
        .patch::<MachinePool>("workers", forever)
        .await
        .unwrap();
    let client = world.workload("quickstart").unwrap();
    let yaml = |name: &str| {
        app(name, 0, 0)
            .replace("replicas: 5", "replicas: 2")
            .replace("    spec:\n      term", &format!("    spec:\n      topologySpreadConstraints: [{{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {{matchLabels: {{app: {name}}}}}}}]\n      term"))
            .replace("containers: [{name: c, image: i}]", "containers: [{name: c, image: i, resources: {requests: {cpu: 1500m}}}]")
    };
    for name in ["x", "z"] {
        world::apply(&client, &yaml(name)).await.unwrap();
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    world
        .until("four Pods on two Nodes", LATER, || async {
            let list = pods.list(&ListParams::default()).await.unwrap().items;
            list.len() == 4 && list.iter().all(is_ready)
        })
        .await
        .unwrap();
    let names = world.names("workers");
    for name in &names {
        world.delete::<Machine>(name).await.unwrap();
    }
    for name in &names {
        world.gone(name).await.unwrap();
    }
    world.settled("workers", 2).await.unwrap();
}

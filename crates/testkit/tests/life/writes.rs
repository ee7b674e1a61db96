//! What a Machine costs the APIs in writes, from its creation to its end.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use muster_api::Machine;
use muster_testkit::world::{LATER, World};

/// Writes by object, in the management cluster and the workload cluster.
fn writes(world: &World) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for cluster in ["management", "default.quickstart"] {
        let Some(found) = world.host.existing(cluster) else {
            continue;
        };
        for ((verb, resource), count) in found.requests() {
            if !["get", "list", "watch"].contains(&verb.as_str()) {
                let object = resource.split('.').next().unwrap_or(&resource);
                let status = if resource.ends_with("/status") {
                    "/status"
                } else {
                    ""
                };
                *counts
                    .entry(format!("{object}{status} {verb}"))
                    .or_default() += count;
            }
        }
    }
    counts
}

fn since(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let left = now.iter().map(|(what, count)| {
        let before = before.get(what).copied().unwrap_or(0);
        (what.clone(), count - before)
    });
    left.filter(|(_, count)| *count > 0).collect()
}

/// All writes of some objects, per Machine.
fn each(counts: &BTreeMap<String, u64>, objects: &[&str], machines: u64) -> f64 {
    let of = counts.iter().filter(|(what, _)| {
        let object = what.split([' ', '/']).next().unwrap_or_default();
        objects.contains(&object)
    });
    let sum: u64 = of.map(|(_, count)| count).sum();
    sum as f64 / machines as f64
}

#[tokio::test(start_paused = true)]
async fn a_machine_costs_three_writes_to_make_and_at_most_six_to_end() {
    let world = World::quickstart(0).await.unwrap();
    let before = writes(&world);
    world.scale("workers", 100).await.unwrap();
    world.settled("workers", 100).await.unwrap();
    tokio::time::sleep(LATER).await;
    let made = since(&writes(&world), &before);
    println!("writes for 100 machines that are made: {made:#?}");
    assert!(each(&made, &["machines"], 100) <= 3.0);
    assert!(each(&made, &["simmachines"], 100) <= 4.0);
    // One of Muster's; the others are the kubelet's.
    assert!(made["nodes patch"] <= 100);

    let before = writes(&world);
    let victims: Vec<String> = world.names("workers").into_iter().take(50).collect();
    for name in &victims {
        world.delete::<Machine>(name).await.unwrap();
    }
    for name in &victims {
        world.gone(name).await.unwrap();
    }
    world.settled("workers", 100).await.unwrap();
    tokio::time::sleep(LATER).await;
    let ended = since(&writes(&world), &before);
    println!("writes for 50 machines that end and 50 that take their place: {ended:#?}");
    // What the 50 new ones cost, and the request for each deletion, is no part of an end.
    let machines = each(&ended, &["machines"], 50) - 3.0 - 1.0;
    // Made by the kubelet, patched by Muster to cordon it, and deleted by Muster.
    let nodes = (ended["nodes patch"] - 50 + ended["nodes delete"]) as f64 / 50.0;
    assert!(machines + nodes <= 6.0, "{machines} and {nodes}");
    assert!(each(&ended, &["simmachines"], 50) - 4.0 <= 2.0);
}

#[tokio::test(start_paused = true)]
async fn a_pools_status_is_written_a_few_times_a_second_however_many_machines_change() {
    let world = World::quickstart(0).await.unwrap();
    let before = writes(&world);
    let start = world.clock.now();
    world.scale("workers", 300).await.unwrap();
    world.settled("workers", 300).await.unwrap();
    let seconds = world.clock.now().duration_since(start).as_secs() + 1;
    let made = since(&writes(&world), &before);
    let of_pool = made["machinepools/status patch"] + made["machinepools patch"];
    assert!(
        of_pool <= 5 * u64::try_from(seconds).unwrap(),
        "{of_pool} writes in {seconds} s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_came_up_well_has_its_beginning_in_its_events() {
    let world = World::quickstart(1).await.unwrap();
    let machine = world.first("workers");
    let events = world.events(&machine.name_any()).await.unwrap();
    assert_eq!(events, ["Launched", "NodeJoined", "Available"]);
    // It names the Secret that it booted with.
    assert_eq!(
        machine.spec.bootstrap.data_secret_name.as_deref(),
        Some("workers-bootstrap")
    );
    let other = serde_json::json!({"spec": {"template": {"spec": {"bootstrap": {"dataSecretName": "other"}}}}});
    world
        .patch::<muster_api::MachinePool>("workers", other)
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    let machine = world.first("workers");
    assert_eq!(
        machine.spec.bootstrap.data_secret_name.as_deref(),
        Some("workers-bootstrap")
    );
    let events = world.events(&machine.name_any()).await.unwrap();
    assert_eq!(events.len(), 3, "{events:?}");
}

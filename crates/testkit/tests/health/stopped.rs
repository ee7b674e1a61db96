//! The process is suspended, and woken.

use std::time::Duration;

use kube::ResourceExt;
use muster_testkit::world::LATER;

use crate::support::{counts, fail, heal, with_check};

/// What was seen before says nothing about the time in which nothing was seen.
#[tokio::test(start_paused = true)]
async fn a_process_that_was_suspended_condemns_nobody_on_what_it_saw_before() {
    let world = with_check(3, "").await;
    let before: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    let quiet = world.first("workers");
    let name = quiet.name_any();
    fail(&world, &quiet).await;
    world
        .says(&name, "NodeReady", "NodeStatusUnknown")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    // Nothing runs for ten minutes; then all that was due is done at once.
    tokio::time::advance(Duration::from_secs(600)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    heal(&world, &quiet).await;
    counts(&world, 3, 3).await;
    tokio::time::sleep(LATER).await;
    let after: Vec<_> = world.machines("workers").iter().map(|m| m.uid()).collect();
    assert_eq!(after, before);
    // One that is silent still is repaired, a minute after the first fresh look.
    fail(&world, &quiet).await;
    world
        .says(&name, "NodeReady", "NodeStatusUnknown")
        .await
        .unwrap();
    tokio::time::advance(Duration::from_secs(600)).await;
    let woken = world.clock.now();
    world.gone(&name).await.unwrap();
    let took = world.clock.now().duration_since(woken).as_secs();
    assert!(took >= 60, "{took}");
    world.settled("workers", 3).await.unwrap();
}

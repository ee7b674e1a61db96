//! What several of these stories begin with.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::ListParams;
use muster_api::SimMachine;
use muster_testkit::scripted::{Contract, Scripted};
use muster_testkit::world::{self, LATER, World};
use serde_json::json;

/// Starts the quickstart's workload and waits until it and its budget are at rest.
pub async fn start_workload(world: &World) -> kube::Client {
    let client = world.workload("quickstart").unwrap();
    world::apply(&client, world::workload()).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), "default");
    world
        .until("the workload", LATER, || async {
            let web = deployments.get("web").await.unwrap();
            let budget = budgets.get("web").await.unwrap();
            web.status.and_then(|s| s.available_replicas) == Some(6)
                && budget.status.and_then(|s| s.disruptions_allowed) == Some(1)
        })
        .await
        .unwrap();
    client
}

/// A pool named `foreign` on a provider that the test plays, with one instance of this provider ID, whose InfraMachine is
/// named `one`, and no Node yet.
pub async fn foreign_pool(contract: Contract, provider_id: &str) -> (World, Scripted) {
    let world = World::quickstart(0).await.unwrap();
    let provider = Scripted::define(&world, contract).await.unwrap();
    provider
        .create("ScriptedMachinePool", "foreign")
        .await
        .unwrap();
    world
        .apply(&Scripted::manifest("foreign", 1, &json!({})))
        .await
        .unwrap();
    provider
        .machine("foreign", "one", provider_id)
        .await
        .unwrap();
    provider.has("foreign", &[provider_id]).await.unwrap();
    (world, provider)
}

/// Waits until a pool is gone, with its Machines, their InfraMachines and all instances of the cloud.
pub async fn pool_gone(world: &World, pool: &str) {
    world
        .until("the pool's end", LATER, || async {
            world.pool(pool).is_none()
        })
        .await
        .unwrap();
    assert!(world.machines(pool).is_empty());
    let infra = world
        .api::<SimMachine>()
        .list(&ListParams::default())
        .await
        .unwrap();
    assert!(infra.items.is_empty());
    assert!(world.instances().await.unwrap().is_empty());
}

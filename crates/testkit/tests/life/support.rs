//! What several of these stories begin with.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use muster_testkit::world::{self, LATER, World};

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

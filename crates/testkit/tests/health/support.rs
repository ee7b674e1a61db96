//! What these stories begin with and look at.

use kube::Api;
use muster_api::reference::Conditioned as _;
use muster_api::{Machine, MachineHealthCheck};
use muster_provider_sim::console;
use muster_testkit::world::{LATER, World, instance_of};

/// A check of the pool's Machines: a Node that is not heard of for a minute, a start of three.
pub fn check(name: &str, remediation: &str) -> String {
    format!(
        "apiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineHealthCheck\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  clusterName: quickstart\n  selector: {{matchLabels: {{cluster.x-k8s.io/pool-name: workers}}}}\n  checks:\n    nodeStartupTimeoutSeconds: 180\n    unhealthyNodeConditions:\n      - {{type: Ready, status: Unknown, timeoutSeconds: 60}}\n      - {{type: Ready, status: \"False\", timeoutSeconds: 60}}\n{remediation}"
    )
}

pub fn policy(spec: &str) -> String {
    format!(
        "apiVersion: muster.dev/v1alpha1\nkind: MachinePoolPolicy\nmetadata: {{name: workers, namespace: default}}\nspec: {{machinePoolName: workers, {spec}}}"
    )
}

pub async fn with_check(replicas: u32, remediation: &str) -> World {
    let world = World::quickstart(replicas).await.unwrap();
    world.apply(&check("nodes", remediation)).await.unwrap();
    let expected = i32::try_from(replicas).unwrap();
    counts(&world, expected, expected).await;
    world
}

/// Waits until the check counts so many targets, and so many of them healthy.
pub async fn counts(world: &World, expected: i32, healthy: i32) {
    let checks: Api<MachineHealthCheck> = world.api();
    world
        .until(
            &format!("{healthy} of {expected} healthy"),
            LATER,
            || async {
                let status = checks
                    .get("nodes")
                    .await
                    .unwrap()
                    .status
                    .unwrap_or_default();
                status.expected_machines == Some(expected)
                    && status.current_healthy == Some(healthy)
            },
        )
        .await
        .unwrap();
}

pub async fn fail(world: &World, machine: &Machine) {
    console::fail_node(&world.cloud().unwrap(), &instance_of(machine))
        .await
        .unwrap();
}

pub async fn heal(world: &World, machine: &Machine) {
    console::heal(&world.cloud().unwrap(), &instance_of(machine))
        .await
        .unwrap();
}

pub fn said(world: &World, machine: &str, type_: &str) -> Option<(String, String)> {
    let machine = world.machine(machine)?;
    let said = machine.condition_of(type_)?;
    Some((said.status.clone(), said.reason.clone()))
}

pub fn is(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

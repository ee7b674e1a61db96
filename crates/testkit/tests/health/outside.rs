//! Sick Machines that are handed to a repairer outside.

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt};
use muster_api::reference::Conditioned as _;
use muster_api::{Machine, MachineHealthCheck, names, owners};
use muster_testkit::scripted::{Contract, GROUP, Scripted};
use muster_testkit::world::{LATER, SOON, World};
use serde_json::json;

use crate::support::{counts, fail, heal, is, said, with_check};

const EXTERNAL: &str = "ExternallyRemediated";

/// A check that hands Machines over, in this many cases.
async fn with_repairer(replicas: u32, limit: &str) -> (World, Api<DynamicObject>, Scripted) {
    let remediation = format!(
        "  remediation:\n    {limit}\n    templateRef: {{apiVersion: {GROUP}/v1, kind: ScriptedRemediationTemplate, name: reboot}}\n"
    );
    let world = with_check(replicas, &remediation).await;
    let scripted = Scripted::define(&world, Contract::V1Beta2).await.unwrap();
    (world, scripted.all("ScriptedRemediation"), scripted)
}

async fn requested(world: &World, requests: &Api<DynamicObject>, machine: &str) -> DynamicObject {
    world
        .until("a request", LATER, || async {
            requests.get_opt(machine).await.unwrap().is_some()
        })
        .await
        .unwrap();
    requests.get(machine).await.unwrap()
}

/// The repairer takes requests on, or lets go of one.
async fn hold(requests: &Api<DynamicObject>, machine: &str, held: bool) {
    let finalizers = if held {
        vec!["example.com/busy"]
    } else {
        vec![]
    };
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let params = PatchParams::default();
    requests.patch(machine, &params, &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_is_made_from_the_template_and_taken_back_when_the_machine_is_healthy() {
    let (world, requests, scripted) = with_repairer(3, "").await;
    scripted
        .remediation("reboot", json!({"retries": 3}))
        .await
        .unwrap();
    let sick = world.first("workers");
    let name = sick.name_any();
    fail(&world, &sick).await;
    let request = requested(&world, &requests, &name).await;
    assert!(owners::is_owned_by(&request, &*sick));
    assert_eq!(request.data["spec"], json!({"retries": 3}));
    assert_eq!(names::CLUSTER_NAME.text(&request), Some("quickstart"));
    assert_eq!(request.labels()["made"], "from-template");
    assert_eq!(names::CLONED_FROM_NAME.text(&request), Some("reboot"));
    let from = format!("ScriptedRemediationTemplate.{GROUP}");
    assert_eq!(
        names::CLONED_FROM_GROUP_KIND.text(&request),
        Some(from.as_str())
    );
    world
        .until("the Machine to say so", SOON, || async {
            said(&world, &name, EXTERNAL) == is("False", "WaitingForRemediation")
        })
        .await
        .unwrap();
    assert_eq!(said(&world, &name, "OwnerRemediated"), None);
    let events = world.events(&name).await.unwrap();
    for reason in ["MachineMarkedUnhealthy", "RemediationRequested"] {
        assert!(events.contains(&reason.to_owned()), "{reason}: {events:?}");
    }
    // Nobody but the repairer does anything, and what it says of its work stays.
    let patch = json!({"status": {"conditions": [
        {"type": EXTERNAL, "status": "True", "reason": "Rebooted", "message": "", "lastTransitionTime": world.clock.now().to_string()}
    ]}});
    let mut conditions = world.machine(&name).unwrap().conditions().to_vec();
    conditions.retain(|said| said.type_ != EXTERNAL);
    let mut patch = patch;
    let list = patch["status"]["conditions"].as_array_mut().unwrap();
    list.extend(conditions.iter().map(|said| json!(said)));
    world
        .api::<Machine>()
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    tokio::time::sleep(LATER).await;
    assert_eq!(said(&world, &name, EXTERNAL), is("True", "Rebooted"));
    assert_eq!(world.machine(&name).unwrap().uid(), sick.uid());
    heal(&world, &sick).await;
    world
        .until("the request to be taken back", LATER, || async {
            requests.get_opt(&name).await.unwrap().is_none()
                && said(&world, &name, EXTERNAL).is_none()
        })
        .await
        .unwrap();
    counts(&world, 3, 3).await;
    assert_eq!(
        said(&world, &name, "HealthCheckSucceeded"),
        is("True", "HealthCheckSucceeded")
    );
}

/// Upstream report D16: a Machine with a request does not keep others from having theirs. And the limit holds over sick
/// Machines and those that a repairer still has, also over a restart.
#[tokio::test(start_paused = true)]
async fn the_limit_holds_over_sick_machines_and_those_in_the_hands_of_a_repairer_that_never_acts() {
    let limit = "triggerIf: {unhealthyLessThanOrEqualTo: 2}";
    let (mut world, requests, scripted) = with_repairer(6, limit).await;
    scripted.remediation("reboot", json!({})).await.unwrap();
    // One of each zone, so that no zone is lost.
    let mut by_zone = world.machines("workers");
    by_zone.sort_by_key(|m| m.status.as_ref().and_then(|s| s.failure_domain.clone()));
    let [first, second, third] = [0, 2, 4].map(|at| by_zone[at].clone());
    for machine in [&first, &second] {
        fail(&world, machine).await;
        requested(&world, &requests, &machine.name_any()).await;
        hold(&requests, &machine.name_any(), true).await;
    }
    fail(&world, &third).await;
    let checks: Api<MachineHealthCheck> = world.api();
    let refused = async |world: &World| {
        world
            .until("the limit", LATER, || async {
                let check = checks.get("nodes").await.unwrap();
                let said = check.condition_of("RemediationAllowed").cloned();
                said.is_some_and(|said| said.message.contains("3 of 6"))
            })
            .await
            .unwrap();
        let left = requests.get_opt(&third.name_any()).await.unwrap();
        assert!(left.is_none(), "a third request");
    };
    refused(&world).await;
    // Healthy again by itself, but the repairer does not let go of its request.
    heal(&world, &first).await;
    world
        .until("the request to be taken back", LATER, || async {
            let request = requests.get(&first.name_any()).await.unwrap();
            request.metadata.deletion_timestamp.is_some()
        })
        .await
        .unwrap();
    refused(&world).await;
    world.restart().await.unwrap();
    tokio::time::sleep(LATER).await;
    refused(&world).await;
    counts(&world, 6, 3).await;
    hold(&requests, &first.name_any(), false).await;
    requested(&world, &requests, &third.name_any()).await;
    counts(&world, 6, 4).await;
    for machine in [&first, &second, &third] {
        assert_eq!(
            world.machine(&machine.name_any()).unwrap().uid(),
            machine.uid()
        );
    }
}

/// Upstream report D21: what was said of a Machine is taken back also where no request was made.
#[tokio::test(start_paused = true)]
async fn a_template_that_is_missing_is_told_and_found_when_it_comes() {
    let (world, requests, scripted) = with_repairer(3, "").await;
    let [sick, other, _] = world.machines("workers").try_into().unwrap();
    let (name, other_name) = (sick.name_any(), other.name_any());
    fail(&world, &other).await;
    world
        .until("what is missing", LATER, || async {
            said(&world, &other_name, EXTERNAL) == is("False", "RemediationTemplateNotFound")
        })
        .await
        .unwrap();
    let told = world.machine_says(&other_name, EXTERNAL);
    assert!(
        told.contains("ScriptedRemediationTemplate reboot"),
        "{told}"
    );
    heal(&world, &other).await;
    world
        .until("nothing said of it", LATER, || async {
            said(&world, &other_name, EXTERNAL).is_none()
                && said(&world, &other_name, "HealthCheckSucceeded")
                    == is("True", "HealthCheckSucceeded")
        })
        .await
        .unwrap();
    fail(&world, &sick).await;
    world
        .until("what is missing", LATER, || async {
            said(&world, &name, EXTERNAL) == is("False", "RemediationTemplateNotFound")
        })
        .await
        .unwrap();
    scripted.remediation("reboot", json!({})).await.unwrap();
    requested(&world, &requests, &name).await;
    world
        .until("the Machine to say so", SOON, || async {
            said(&world, &name, EXTERNAL) == is("False", "WaitingForRemediation")
        })
        .await
        .unwrap();
}

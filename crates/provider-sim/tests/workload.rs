//! A simulated workload cluster: Pods are made again, scheduled and stopped, budgets hold, Nodes fail and heal.

mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, EvictParams, Patch, PatchParams};
use kube::{Error, ResourceExt};
use muster_provider_sim::console;
use serde_json::json;
use world::{World, is_ready_node, is_ready_pod, node_of, pod_template, until};

fn all_ready(pods: &[Pod], count: usize) -> bool {
    pods.iter().filter(|pod| is_ready_pod(pod)).count() == count && pods.len() == count
}

#[tokio::test(start_paused = true)]
async fn nodes_say_where_they_are_and_keep_their_leases() {
    let world = World::with_pool(3).await;
    let nodes = world.ready_nodes(3).await;
    let zones: BTreeSet<&str> = nodes
        .iter()
        .map(|node| node.labels()["topology.kubernetes.io/zone"].as_str())
        .collect();
    assert_eq!(zones, BTreeSet::from(["a", "b", "c"]));
    for node in &nodes {
        let id = node.spec.as_ref().unwrap().provider_id.clone().unwrap();
        let zone = &node.labels()["topology.kubernetes.io/zone"];
        assert_eq!(id, format!("sim:///{zone}/{}", node.name_any()));
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    let leases: Api<Lease> = Api::namespaced(world.workload.clone(), "kube-node-lease");
    for lease in leases.list(&Default::default()).await.unwrap() {
        let renewed = lease.spec.unwrap().renew_time.unwrap().0;
        assert!(world.clock.now().duration_since(renewed).as_secs() <= 40);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_writes_nothing_but_leases() {
    let world = World::with_pool(3).await;
    world.ready_nodes(3).await;
    world.web(3).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let writes = |host: &muster_apiserver::Host| {
        ["default.c", "sim-cloud", "management"].map(|name| {
            let mut counts = host.existing(name).unwrap().requests();
            counts.retain(|(verb, resource), _| {
                !["get", "list", "watch"].contains(&verb.as_str())
                    && !resource.starts_with("leases")
            });
            counts
        })
    };
    let before = writes(&world.host);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(writes(&world.host), before);
}

#[tokio::test(start_paused = true)]
async fn a_budget_holds_while_every_pod_is_evicted() {
    let world = World::with_pool(6).await;
    world.ready_nodes(6).await;
    world.web(6).await;
    let first = until(&world.pods(), |pods: &[Pod]| all_ready(pods, 6)).await;
    let places: BTreeSet<&str> = first.iter().map(node_of).collect();
    assert_eq!(places.len(), 6, "one on each Node");
    let old: BTreeSet<String> = first.iter().map(ResourceExt::name_any).collect();
    let mut refused = 0;
    let mut left = old.clone();
    while let Some(name) = left.first().cloned() {
        match world.pods().evict(&name, &EvictParams::default()).await {
            Ok(_) => {
                left.remove(&name);
            }
            Err(Error::Api(status)) if status.code == 429 => {
                refused += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
        let ready = world.pods().list(&Default::default()).await.unwrap();
        let ready = ready.iter().filter(|pod| is_ready_pod(pod)).count();
        assert!(ready >= 5, "only {ready} are ready");
    }
    assert!(refused > 0);
    let last = until(&world.pods(), |pods: &[Pod]| all_ready(pods, 6)).await;
    assert!(last.iter().all(|pod| !old.contains(&pod.name_any())));
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_gets_no_pod_and_pods_that_fit_nowhere_wait() {
    let world = World::with_template(
        2,
        json!({"bootDuration": "1s", "terminationDuration": "1s", "capacity": {"cpu": "2"}}),
    )
    .await;
    let nodes = world.ready_nodes(2).await;
    let (closed, open) = (nodes[0].name_any(), nodes[1].name_any());
    let cordon = |on: bool| Patch::Merge(json!({"spec": {"unschedulable": on}}));
    world
        .nodes()
        .patch(&closed, &PatchParams::default(), &cordon(true))
        .await
        .unwrap();
    let _: k8s_openapi::api::apps::v1::Deployment = world
        .make(json!({"metadata": {"name": "web"}, "spec": {"replicas": 4,
            "selector": {"matchLabels": {"app": "web"}}, "template": pod_template("web", json!({}))}}))
        .await;
    let waiting = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.clone());
        conditions
            .iter()
            .flatten()
            .any(|c| c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable"))
    };
    let pods = until(&world.pods(), |pods: &[Pod]| {
        pods.iter().filter(|pod| is_ready_pod(pod)).count() == 2
            && pods.iter().filter(|pod| waiting(pod)).count() == 2
    })
    .await;
    assert!(
        pods.iter()
            .filter(|pod| is_ready_pod(pod))
            .all(|pod| node_of(pod) == open)
    );
    world
        .nodes()
        .patch(&closed, &PatchParams::default(), &cordon(false))
        .await
        .unwrap();
    until(&world.pods(), |pods: &[Pod]| all_ready(pods, 4)).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_runs_on_every_node_also_on_one_that_comes_later() {
    let world = World::with_pool(2).await;
    world.ready_nodes(2).await;
    let _: DaemonSet = world
        .make(json!({"metadata": {"name": "agent"}, "spec": {
            "selector": {"matchLabels": {"app": "agent"}}, "template": pod_template("agent", json!({}))}}))
        .await;
    until(&world.pods(), |pods: &[Pod]| all_ready(pods, 2)).await;
    world.scale(3).await;
    let pods = until(&world.pods(), |pods: &[Pod]| all_ready(pods, 3)).await;
    let places: BTreeSet<&str> = pods.iter().map(node_of).collect();
    assert_eq!(places.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_keeps_names_and_claims_and_makes_them_in_order() {
    let world = World::with_pool(2).await;
    world.ready_nodes(2).await;
    let _: StatefulSet = world
        .make(json!({"metadata": {"name": "db"}, "spec": {"replicas": 3, "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}}, "template": pod_template("db", json!({})),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}}))
        .await;
    let pods = until(&world.pods(), |pods: &[Pod]| all_ready(pods, 3)).await;
    let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["db-0", "db-1", "db-2"]);
    let made: Vec<_> = pods
        .iter()
        .map(|pod| pod.creation_timestamp().unwrap().0)
        .collect();
    assert!(made.is_sorted());
    let claims: Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
        Api::default_namespaced(world.workload.clone());
    let claims: Vec<String> = claims
        .list(&Default::default())
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(claims, ["data-db-0", "data-db-1", "data-db-2"]);

    let before = pods[1].uid();
    world
        .pods()
        .delete("db-1", &DeleteParams::default())
        .await
        .unwrap();
    let pods = until(&world.pods(), |pods: &[Pod]| {
        all_ready(pods, 3) && pods[1].uid() != before
    })
    .await;
    assert_eq!(pods[1].name_any(), "db-1");
    let sets: Api<StatefulSet> = Api::default_namespaced(world.workload.clone());
    until(&sets, |sets: &[StatefulSet]| {
        sets.iter().any(|set| {
            set.status
                .as_ref()
                .is_some_and(|s| s.ready_replicas == Some(3))
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_over_a_stateful_set_counts_what_the_set_wants() {
    let world = World::with_pool(3).await;
    world.ready_nodes(3).await;
    let _: StatefulSet = world
        .make(
            json!({"metadata": {"name": "db"}, "spec": {"replicas": 3, "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}},
            "template": pod_template("db", json!({"sim.muster.dev/start-delay": "60s"}))}}),
        )
        .await;
    let _: PodDisruptionBudget = world
        .make(json!({"metadata": {"name": "db"}, "spec": {
            "maxUnavailable": 1, "selector": {"matchLabels": {"app": "db"}}}}))
        .await;
    until(&world.pods(), |pods: &[Pod]| all_ready(pods, 3)).await;
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(world.workload.clone());
    let allows = |allowed: i32| {
        move |budgets: &[PodDisruptionBudget]| {
            budgets.iter().any(|b| {
                b.status.as_ref().is_some_and(|s| {
                    s.disruptions_allowed == Some(allowed) && s.expected_pods == Some(3)
                })
            })
        }
    };
    until(&budgets, allows(1)).await;
    world
        .pods()
        .evict("db-2", &EvictParams::default())
        .await
        .unwrap();
    // While its Pod is gone and another starts, two are left of three.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let refused = world
        .pods()
        .evict("db-1", &EvictParams::default())
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Api(status) if status.code == 429));
    until(&budgets, allows(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_over_pods_that_nobody_owns_allows_nothing() {
    let world = World::with_pool(1).await;
    world.ready_nodes(1).await;
    let mut pod = pod_template("bare", json!({}));
    pod["metadata"]["name"] = "bare".into();
    let _: Pod = world.make(pod).await;
    let _: PodDisruptionBudget = world
        .make(json!({"metadata": {"name": "bare"}, "spec": {
            "maxUnavailable": 1, "selector": {"matchLabels": {"app": "bare"}}}}))
        .await;
    until(&world.pods(), |pods: &[Pod]| all_ready(pods, 1)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let refused = world
        .pods()
        .evict("bare", &EvictParams::default())
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Api(status) if status.code == 429));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_fails_is_unknown_after_the_grace_period_and_ready_once_healed() {
    const TAINT: &str = "node.kubernetes.io/unreachable";
    let is_tainted = |node: &Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
        taints.iter().flatten().any(|taint| taint.key == TAINT)
    };
    let world = World::with_pool(2).await;
    let nodes = world.ready_nodes(2).await;
    let name = nodes[0].name_any();
    console::fail_node(&world.cloud, &name).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(is_ready_node(&world.nodes().get(&name).await.unwrap()));
    let failed = until(&world.nodes(), |nodes: &[Node]| {
        nodes.iter().any(is_tainted)
    })
    .await;
    let failed = failed.iter().find(|node| is_tainted(node)).unwrap();
    assert_eq!(failed.name_any(), name);
    assert!(!is_ready_node(failed));
    console::heal(&world.cloud, &name).await.unwrap();
    until(&world.nodes(), |nodes: &[Node]| {
        nodes
            .iter()
            .all(|node| is_ready_node(node) && !is_tainted(node))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_run_elsewhere() {
    let world = World::with_pool(3).await;
    let nodes = world.ready_nodes(3).await;
    world.web(3).await;
    until(&world.pods(), |pods: &[Pod]| all_ready(pods, 3)).await;
    let lost = nodes[0].name_any();
    console::terminate(&world.cloud, &lost, world.clock.now())
        .await
        .unwrap();
    until(&world.instances(), |instances: &[_]| {
        instances
            .iter()
            .all(|i: &muster_provider_sim::cloud::types::CloudInstance| i.name_any() != lost)
    })
    .await;
    world
        .nodes()
        .delete(&lost, &DeleteParams::default())
        .await
        .unwrap();
    let pods = until(&world.pods(), |pods: &[Pod]| {
        all_ready(pods, 3) && pods.iter().all(|pod| node_of(pod) != lost)
    })
    .await;
    assert_eq!(pods.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_does_as_its_annotations_say() {
    let world = World::with_pool(1).await;
    world.ready_nodes(1).await;
    for (name, annotation, value) in [
        ("stuck", "sim.muster.dev/never-stops", "true"),
        ("job", "sim.muster.dev/completes-after", "30s"),
        ("cold", "sim.muster.dev/never-ready", "true"),
    ] {
        let mut pod = pod_template(name, json!({annotation: value}));
        pod["metadata"]["name"] = name.into();
        let _: Pod = world.make(pod).await;
    }
    let phase = |pods: &[Pod], name: &str| {
        let pod = pods.iter().find(|pod| pod.name_any() == name)?;
        pod.status.as_ref()?.phase.clone()
    };
    let pods = until(&world.pods(), |pods: &[Pod]| {
        phase(pods, "job").as_deref() == Some("Succeeded")
            && phase(pods, "cold").as_deref() == Some("Running")
            && phase(pods, "stuck").as_deref() == Some("Running")
    })
    .await;
    assert!(
        pods.iter()
            .all(|pod| pod.name_any() != "cold" || !is_ready_pod(pod))
    );
    world
        .pods()
        .delete("stuck", &DeleteParams::default())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let stuck = world.pods().get("stuck").await.unwrap();
    assert!(stuck.metadata.deletion_timestamp.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_ran_runs_on_after_a_restart() {
    let mut world = World::with_pool(3).await;
    let nodes = world.ready_nodes(3).await;
    world.web(3).await;
    let pods = until(&world.pods(), |pods: &[Pod]| all_ready(pods, 3)).await;
    world.restart().await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let names = |all: &[String]| all.iter().cloned().collect::<BTreeSet<String>>();
    let after = world.ready_nodes(3).await;
    let of = |nodes: &[Node]| nodes.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    assert_eq!(names(&of(&after)), names(&of(&nodes)));
    let now = world.pods().list(&Default::default()).await.unwrap().items;
    let uids = |pods: &[Pod]| {
        pods.iter()
            .map(|pod| pod.uid().unwrap())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(uids(&now), uids(&pods));
    world
        .pods()
        .evict(&pods[0].name_any(), &EvictParams::default())
        .await
        .unwrap();
    until(&world.pods(), |pods: &[Pod]| all_ready(pods, 3)).await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_in_a_full_cluster_comes_to_its_end_within_its_limits() {
    let world = World::with_template(
        2,
        json!({"bootDuration": "1s", "terminationDuration": "1s", "capacity": {"cpu": "2"}}),
    )
    .await;
    world.ready_nodes(2).await;
    world.web(4).await;
    let first = until(&world.pods(), |pods: &[Pod]| all_ready(pods, 4)).await;
    let old: BTreeSet<String> = first.iter().map(ResourceExt::name_any).collect();
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
        Api::default_namespaced(world.workload.clone());
    let template = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
    deployments
        .patch("web", &PatchParams::default(), &Patch::Merge(template))
        .await
        .unwrap();
    until(&world.pods(), |pods: &[Pod]| {
        let ready = pods.iter().filter(|pod| is_ready_pod(pod)).count();
        assert!(ready >= 3, "only {ready} are ready");
        all_ready(pods, 4) && pods.iter().all(|pod| !old.contains(&pod.name_any()))
    })
    .await;
    until(
        &deployments,
        |all: &[k8s_openapi::api::apps::v1::Deployment]| {
            all.iter().filter_map(|d| d.status.as_ref()).any(|status| {
                let available = |c: &k8s_openapi::api::apps::v1::DeploymentCondition| {
                    c.type_ == "Available" && c.status == "True"
                };
                status.updated_replicas == Some(4)
                    && status.replicas == Some(4)
                    && status.conditions.iter().flatten().any(available)
            })
        },
    )
    .await;
}

//! The main job with the real binary and the real kubectl: six machines, a workload, one machine deleted, the pool
//! scaled.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::path::{Path, PathBuf};

use kube::config::Kubeconfig;
use muster_testkit::process::{self, Up, kubectl};
use muster_testkit::witness::Witness;
use serde_json::Value;

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_muster"))
}

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name);
    path.display().to_string()
}

async fn machines(up: &Up) -> Vec<Value> {
    let text = up
        .kubectl(&["get", "machines", "-o", "json"])
        .await
        .unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array().unwrap().clone()
}

fn zones(machines: &[Value]) -> Vec<String> {
    let mut zones: Vec<String> = machines
        .iter()
        .map(|m| {
            m["status"]["failureDomain"]
                .as_str()
                .unwrap_or("none")
                .to_owned()
        })
        .collect();
    zones.sort();
    zones
}

async fn wait_for(up: &Up, what: &str, field: &str, value: &str) {
    let condition = format!("--for=jsonpath={{{field}}}={value}");
    up.kubectl(&["wait", what, &condition, "--timeout=120s"])
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_whose_machines_can_be_seen_deleted_and_scaled() {
    if !process::has_kubectl() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let up = Up::start(binary(), dir.path(), &["-f", &example("quickstart.yaml")])
        .await
        .unwrap();

    wait_for(&up, "machinepool/workers", ".status.readyReplicas", "6").await;
    let six = machines(&up).await;
    assert_eq!(zones(&six), ["a", "a", "b", "b", "c", "c"]);
    for machine in &six {
        assert_eq!(machine["status"]["phase"], "Running", "{machine}");
        assert!(
            machine["status"]["nodeRef"]["name"].is_string(),
            "{machine}"
        );
        assert!(
            machine["spec"]["providerID"]
                .as_str()
                .unwrap()
                .starts_with("sim:///")
        );
    }
    let table = up
        .kubectl(&["get", "machinepools,machines", "-o", "wide"])
        .await
        .unwrap();
    for column in [
        "CLUSTER",
        "DESIRED",
        "CURRENT",
        "READY",
        "NODE NAME",
        "PROVIDER ID",
        "PHASE",
        "VERSION",
    ] {
        assert!(table.contains(column), "no column {column} in\n{table}");
    }

    // The workload, in its own cluster.
    let workload = dir.path().join("workload.kubeconfig");
    let text = std::process::Command::new(binary())
        .args(["kubeconfig", "quickstart", "--kubeconfig"])
        .arg(up.kubeconfig())
        .output()
        .unwrap();
    assert!(text.status.success(), "{text:?}");
    std::fs::write(&workload, &text.stdout).unwrap();
    kubectl(&workload, &["apply", "-f", &example("workload.yaml")])
        .await
        .unwrap();
    let available = [
        "wait",
        "deployment/web",
        "--for=jsonpath={.status.availableReplicas}=6",
        "--timeout=120s",
    ];
    kubectl(&workload, &available).await.unwrap();
    let budget = [
        "wait",
        "pdb/web",
        "--for=jsonpath={.status.disruptionsAllowed}=1",
        "--timeout=60s",
    ];
    kubectl(&workload, &budget).await.unwrap();

    // One machine, by name.
    let client = process::client(&Kubeconfig::read_from(&workload).unwrap())
        .await
        .unwrap();
    let witness = Witness::start(client, "web");
    let victim = &six[0];
    let (name, uid) = (
        victim["metadata"]["name"].as_str().unwrap(),
        &victim["metadata"]["uid"],
    );
    let node = victim["status"]["nodeRef"]["name"].as_str().unwrap();
    up.kubectl(&["delete", "machine", name, "--timeout=120s"])
        .await
        .unwrap();
    wait_for(&up, "machinepool/workers", ".status.readyReplicas", "6").await;
    let after = machines(&up).await;
    let kept = |m: &&Value| {
        after
            .iter()
            .any(|a| a["metadata"]["uid"] == m["metadata"]["uid"])
    };
    assert_eq!(six.iter().filter(kept).count(), 5, "exactly one is gone");
    assert!(!after.iter().any(|m| &m["metadata"]["uid"] == uid));
    assert_eq!(
        zones(&after),
        ["a", "a", "b", "b", "c", "c"],
        "replaced in the zone that was short"
    );

    assert!(
        witness.fewest_ready().unwrap() >= 5,
        "the budget allows one pod of six to be down"
    );
    let leaving = witness.leaving();
    let evicted: Vec<_> = leaving
        .values()
        .filter(|l| l.node == node && !l.daemon)
        .collect();
    assert!(!evicted.is_empty(), "{leaving:?}");
    assert!(
        evicted.iter().all(|l| l.cordoned),
        "cordoned before the first eviction: {leaving:?}"
    );
    let events = up.kubectl(&["get", "events", "-o", "json"]).await.unwrap();
    let events: Value = serde_json::from_str(&events).unwrap();
    let told: Vec<&str> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["involvedObject"]["name"] == name)
        .filter_map(|e| e["reason"].as_str())
        .collect();
    assert!(told.contains(&"SuccessfulDrainNode"), "{told:?}");

    // The size.
    for (replicas, spread) in [
        ("9", vec!["a", "a", "a", "b", "b", "b", "c", "c", "c"]),
        ("3", vec!["a", "b", "c"]),
    ] {
        up.kubectl(&[
            "scale",
            "machinepool",
            "workers",
            &format!("--replicas={replicas}"),
        ])
        .await
        .unwrap();

        wait_for(&up, "machinepool/workers", ".status.replicas", replicas).await;
        wait_for(
            &up,
            "machinepool/workers",
            ".status.readyReplicas",
            replicas,
        )
        .await;
        wait_for(&up, "machinepool/workers", ".status.phase", "Running").await;
        assert_eq!(zones(&machines(&up).await), spread);
    }
    assert!(
        witness.fewest_ready().unwrap() >= 5,
        "scaling down drains within the budget"
    );
}

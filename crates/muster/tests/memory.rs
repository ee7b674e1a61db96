//! What a large pool costs in memory: a bound, in the real process.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::wait::await_condition;
use muster_api::MachinePool;
use muster_testkit::process::Up;

/// A limit and not a measure.
const LIMIT: Duration = Duration::from_secs(300);
const MACHINES: i32 = 1000;
/// Megabytes that management API, controllers and simulated cloud may take together at the peak.
const MOST: u64 = 300;

/// The most memory that a process has had in use, in megabytes.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    kilobytes.unwrap().parse::<u64>().unwrap() / 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_machines_fit_into_three_hundred_megabytes() {
    let home = tempfile::tempdir().unwrap();
    let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart.yaml");
    let example = example.display().to_string();
    let binary = Path::new(env!("CARGO_BIN_EXE_muster"));
    let up = Up::start(binary, &home.path().join("data"), &["-f", &example])
        .await
        .unwrap();
    let pools: Api<MachinePool> = Api::namespaced(up.client().await.unwrap(), "default");
    let size = Patch::Merge(serde_json::json!({"spec": {"replicas": MACHINES}}));
    pools
        .patch_scale("workers", &PatchParams::default(), &size)
        .await
        .unwrap();
    let ready = await_condition(pools, "workers", |pool: Option<&MachinePool>| {
        let status = pool.and_then(|pool| pool.status.as_ref());
        status.and_then(|status| status.ready_replicas) == Some(MACHINES)
    });
    tokio::time::timeout(LIMIT, ready).await.unwrap().unwrap();
    let peak = peak(up.pid().unwrap());
    println!("{MACHINES} machines: {peak} MB at the peak");
    assert!(peak <= MOST, "{peak} MB");
}

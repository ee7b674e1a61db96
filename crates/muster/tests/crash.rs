//! `kill -9` at a random moment, again and again: nothing acknowledged is lost, and no instance is made or removed twice.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use muster_api::machine::MachinePhase;
use muster_api::{Machine, MachinePool};
use muster_informers::Informer;
use muster_provider_sim::console;
use muster_testkit::process::Up;
use muster_testkit::world::apply;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

const ROUNDS: u32 = 50;
/// A limit and not a measure: a round takes a second or two.
const LIMIT: Duration = Duration::from_secs(120);

/// What a round did, and what must be so after it.
#[derive(Debug)]
enum Deed {
    Nothing,
    Deleted { name: String },
    Scaled,
}

/// Waits until just `count` machines run and none is going; returns their names.
async fn converged(up: &Up, count: usize) -> BTreeSet<String> {
    let client = up.client().await.unwrap();
    let machines = Informer::builder(Api::<Machine>::namespaced(client, "default")).start();
    machines.synced().await.unwrap();
    let mut changes = machines.subscribe();
    let all_run = || {
        let list = machines.walk_all();
        let run = |m: &Machine| {
            !m.is_deleting()
                && m.status.as_ref().and_then(|s| s.phase) == Some(MachinePhase::Running)
        };
        (list.len() == count && list.iter().all(|m| run(m)))
            .then(|| list.iter().map(|m| m.name_any()).collect::<BTreeSet<_>>())
    };
    let names = tokio::time::timeout(LIMIT, async {
        loop {
            if let Some(names) = all_run() {
                return names;
            }
            changes.recv().await.unwrap();
        }
    })
    .await;
    match names {
        Ok(names) => names,
        Err(_) => panic!(
            "{count} machines did not come to run: {:#?}",
            machines.walk_all()
        ),
    }
}

/// The provider IDs of the machines and of the cloud's instances are the same.
async fn nothing_leaked(up: &Up) {
    let machines: Api<Machine> = Api::namespaced(up.client().await.unwrap(), "default");
    let known: BTreeSet<String> = machines
        .list(&Default::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter_map(|m| m.spec.provider_id)
        .collect();
    let cloud = console::list(&up.sibling("sim-cloud").await.unwrap())
        .await
        .unwrap();
    let there: BTreeSet<String> = cloud
        .iter()
        .filter(|i| !i.is_terminating())
        .map(|i| i.provider_id())
        .collect();
    assert_eq!(known, there);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_kills_lose_nothing_and_make_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = dir.path().join("pool.yaml");
    let quick = include_str!("../../../examples/quickstart.yaml")
        .replace("bootDuration: 3s", "bootDuration: 300ms")
        .replace("terminationDuration: 1s", "terminationDuration: 200ms")
        // Sizes down to 0 leave Pods nowhere to go: such drains end by their limit.
        .replace("nodeDrainTimeoutSeconds: 300", "nodeDrainTimeoutSeconds: 2")
        .replace("replicas: 6", "replicas: 4");
    std::fs::write(&manifest, quick).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_muster"));
    let mut rng = StdRng::seed_from_u64(7);
    let mut size = 4_usize;
    let mut counter = 0_u32;
    let mut names = BTreeSet::new();
    let mut deed = Deed::Nothing;
    for round in 0..=ROUNDS {
        let first = ["-f", manifest.to_str().unwrap()];
        let up = Up::start(binary, dir.path(), if round == 0 { &first } else { &[] })
            .await
            .unwrap();
        let client = up.client().await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let pools: Api<MachinePool> = Api::namespaced(client.clone(), "default");
        let machines: Api<Machine> = Api::namespaced(client.clone(), "default");

        // What was acknowledged before the kill is there at once.
        if counter > 0 {
            let data = maps.get("counter").await.unwrap().data.unwrap();
            assert_eq!(data["value"], counter.to_string(), "round {round}");
        }
        assert_eq!(
            pools.get("workers").await.unwrap().desired_replicas() as usize,
            size,
            "round {round}"
        );
        if let Deed::Deleted { name } = &deed {
            let machine = machines.get_opt(name).await.unwrap();
            assert!(
                machine.is_none_or(|machine| machine.is_deleting()),
                "round {round}: {name} came back"
            );
        }

        let now = converged(&up, size).await;
        nothing_leaked(&up).await;
        if round == 0 {
            // From now on deletions drain: one of four Pods at a time.
            let workload = up.sibling("default.quickstart").await.unwrap();
            let yaml = include_str!("../../../examples/workload.yaml")
                .replace("replicas: 6", "replicas: 4");
            apply(&workload, &yaml).await.unwrap();
        }
        let (gone, new) = (
            names.difference(&now).count(),
            now.difference(&names).count(),
        );
        match &deed {
            Deed::Deleted { name } => assert_eq!(
                (gone, new, now.contains(name)),
                (1, 1, false),
                "round {round}: {names:?} {now:?}"
            ),
            Deed::Scaled => assert_eq!(gone.min(new), 0, "round {round}: {names:?} {now:?}"),
            Deed::Nothing => {}
        }
        names = now;

        deed = match rng.random_range(0..3) {
            0 if size > 0 => {
                let name = names
                    .iter()
                    .nth(rng.random_range(0..names.len()))
                    .unwrap()
                    .clone();
                machines
                    .delete(&name, &DeleteParams::default())
                    .await
                    .unwrap();
                Deed::Deleted { name }
            }
            1 => {
                size = rng.random_range(0..8);
                let patch = json!({"spec": {"replicas": size}});
                pools
                    .patch_scale("workers", &PatchParams::default(), &Patch::Merge(patch))
                    .await
                    .unwrap();
                Deed::Scaled
            }
            _ => Deed::Nothing,
        };
        counter += 1;
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "counter"}, "data": {"value": counter.to_string()}});
        maps.patch(
            "counter",
            &PatchParams::apply("test").force(),
            &Patch::Apply(map),
        )
        .await
        .unwrap();
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..900))).await;
        up.kill().await.unwrap();
    }
    end(binary, dir.path(), &mut rng).await;
}

/// The deletion of the pool ends too, however often it is cut off, and leaves nothing.
async fn end(binary: &Path, data: &Path, rng: &mut StdRng) {
    for last in [false, false, false, true] {
        let up = Up::start(binary, data, &[]).await.unwrap();
        let client = up.client().await.unwrap();
        let pools: Api<MachinePool> = Api::namespaced(client.clone(), "default");
        match pools.delete("workers", &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => panic!("{error}"),
        }
        if !last {
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..900))).await;
            up.kill().await.unwrap();
            continue;
        }
        let gone = await_condition(pools, "workers", |pool: Option<&MachinePool>| {
            pool.is_none()
        });
        tokio::time::timeout(LIMIT, gone).await.unwrap().unwrap();
        nothing_leaked(&up).await;
        let machines: Api<Machine> = Api::namespaced(client, "default");
        assert!(
            machines
                .list(&Default::default())
                .await
                .unwrap()
                .items
                .is_empty()
        );
    }
}

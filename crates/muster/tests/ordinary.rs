//! The command line's ordinary days: every command against a running `up`, with what it answers.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, ResourceExt};
use muster_api::reference::Conditioned as _;
use muster_api::{Machine, MachinePool};
use muster_informers::Informer;
use muster_provider_sim::cloud::types::CloudInstance;
use muster_testkit::process::{Up, has_kubectl};
use muster_testkit::world::instance_of;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdout, Command};

/// A limit and not a measure.
const LIMIT: Duration = Duration::from_secs(120);

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_muster"))
}

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name);
    path.display().to_string()
}

/// A running `up` with the quickstart's pool, and its directory.
struct Day {
    up: Up,
    home: tempfile::TempDir,
}

impl Day {
    async fn begin() -> Self {
        let home = tempfile::tempdir().unwrap();
        let args = ["-f", &example("quickstart.yaml")];
        let up = Up::start(binary(), &home.path().join("data"), &args)
            .await
            .unwrap();
        let day = Self { up, home };
        day.ready(6).await;
        day
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(args)
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.up.kubeconfig())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// What a command answers; it has to succeed.
    async fn answer(&self, args: &[&str]) -> String {
        let output = self.command(args).output().await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.up.client().await.unwrap(), "default")
    }

    async fn pool_is(&self, holds: impl Condition<MachinePool>) {
        let pools = self.api().await;
        let done = await_condition(pools, "workers", holds);
        tokio::time::timeout(LIMIT, done).await.unwrap().unwrap();
    }

    /// Waits until the pool has just so many machines, all ready.
    async fn ready(&self, count: i32) {
        self.pool_is(move |pool: Option<&MachinePool>| {
            let status = pool.and_then(|pool| pool.status.as_ref());
            let wanted = Some(count);
            status.is_some_and(|s| s.replicas == wanted && s.ready_replicas == wanted)
                && pool.is_some_and(|pool| {
                    let said = pool.condition_of("ScalingDown");
                    said.is_some_and(|said| said.status == "False")
                })
        })
        .await;
    }

    async fn machine_is(&self, name: &str, holds: impl Condition<Machine>) {
        let done = await_condition(self.api().await, name, holds);
        tokio::time::timeout(LIMIT, done).await.unwrap().unwrap();
    }

    async fn instance_is(&self, id: &str, holds: impl Condition<CloudInstance>) {
        let cloud = self.up.sibling("sim-cloud").await.unwrap();
        let done = await_condition(Api::namespaced(cloud, "default"), id, holds);
        tokio::time::timeout(LIMIT, done).await.unwrap().unwrap();
    }

    async fn machines(&self) -> Vec<Machine> {
        let machines: Api<Machine> = self.api().await;
        let mut list = machines.list(&Default::default()).await.unwrap().items;
        list.sort_by_key(|machine| {
            let status = machine.status.as_ref();
            (
                status.and_then(|s| s.failure_domain.clone()),
                machine.name_any(),
            )
        });
        list
    }
}

/// An answer with the names that chance gives put in their place, and ages left out.
fn told(text: &str, machines: &[Machine]) -> String {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (number, machine) in machines.iter().enumerate() {
        let number = number + 1;
        names.insert(machine.name_any(), format!("<machine-{number}>"));
        names.insert(instance_of(machine), format!("<instance-{number}>"));
    }
    let mut text = text.to_owned();
    for (name, stands) in names {
        text = text.replace(&name, &stands);
    }
    let lines = text.lines().map(|line| {
        let cells = line.split_whitespace().map(|cell| {
            let number = cell.trim_end_matches(['s', 'm']);
            let is_age = number != cell && number.parse::<u32>().is_ok();
            if is_age { "<age>" } else { cell }
        });
        cells.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn describe_delete_and_scale_answer_and_do_what_they_say() {
    let day = Day::begin().await;
    let machines = day.machines().await;
    let tree = day.answer(&["describe", "cluster", "quickstart"]).await;
    assert_eq!(
        told(&tree, &machines),
        "NAME READY REASON AGE ZONE VERSION MESSAGE\n\
         Cluster/quickstart True Available <age>\n\
         ├─SimCluster/quickstart True Ready\n\
         └─MachinePool/workers True Running <age> v1.37.2 6 of 6 ready, 6 up to date\n\
         ├─Machine/<machine-1> True Ready <age> a v1.37.2\n\
         │ └─SimMachine → Node/<instance-1> True NodeHealthy\n\
         ├─Machine/<machine-2> True Ready <age> a v1.37.2\n\
         │ └─SimMachine → Node/<instance-2> True NodeHealthy\n\
         ├─Machine/<machine-3> True Ready <age> b v1.37.2\n\
         │ └─SimMachine → Node/<instance-3> True NodeHealthy\n\
         ├─Machine/<machine-4> True Ready <age> b v1.37.2\n\
         │ └─SimMachine → Node/<instance-4> True NodeHealthy\n\
         ├─Machine/<machine-5> True Ready <age> c v1.37.2\n\
         │ └─SimMachine → Node/<instance-5> True NodeHealthy\n\
         └─Machine/<machine-6> True Ready <age> c v1.37.2\n\
         └─SimMachine → Node/<instance-6> True NodeHealthy"
    );
    let json = day
        .answer(&["describe", "pool", "workers", "-o", "json"])
        .await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["pools"][0]["machines"].as_array().unwrap().len(), 6);
    assert_eq!(json["pools"][0]["ready"], 6);

    let name = machines[0].name_any();
    let dry = day.answer(&["delete", "machine", &name, "--dry-run"]).await;
    assert_eq!(
        told(&dry, &machines),
        "machine <machine-1> would be deleted, Node <instance-1> is drained first; pool workers replaces it (by the default)"
    );
    // A policy has a say in that, and an annotation has it over the policy.
    let policy = "apiVersion: muster.dev/v1alpha1\nkind: MachinePoolPolicy\nmetadata: {name: thrift, namespace: default}\nspec: {machinePoolName: workers, machineDeletion: {replacement: Shrink}}\n";
    let client = day.up.client().await.unwrap();
    muster_testkit::world::apply(&client, policy).await.unwrap();
    let dry = day.answer(&["delete", "machine", &name, "--dry-run"]).await;
    assert!(
        dry.ends_with("pool workers shrinks by one (by MachinePoolPolicy thrift)\n"),
        "{dry}"
    );
    let policies: Api<muster_api::MachinePoolPolicy> = day.api().await;
    policies
        .delete("thrift", &Default::default())
        .await
        .unwrap();

    let done = day
        .answer(&["delete", "machine", &name, "--shrink", "--wait"])
        .await;
    assert_eq!(
        told(&done, &machines),
        "machine <machine-1> is being deleted\nmachine <machine-1> is gone"
    );
    day.ready(5).await;
    let other = machines[1].name_any();
    let done = day.answer(&["delete", "machine", &other]).await;
    assert_eq!(
        told(&done, &machines),
        "machine <machine-2> is being deleted"
    );
    day.machine_is(&other, |m: Option<&Machine>| m.is_none())
        .await;
    day.ready(5).await;

    let dry = day
        .answer(&["scale", "pool", "workers", "--replicas", "7", "--dry-run"])
        .await;
    assert_eq!(dry, "pool workers would be scaled from 5 to 7 machines\n");
    let done = day
        .answer(&["scale", "pool", "workers", "--replicas", "7"])
        .await;
    assert_eq!(done, "pool workers scaled from 5 to 7 machines\n");
    day.ready(7).await;
}

/// Reads lines until one has this in it.
async fn seen(lines: &mut Lines<BufReader<ChildStdout>>, part: &str) {
    let found = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(part) {
                return;
            }
        }
        panic!("the watch ended before it showed {part:?}");
    };
    tokio::time::timeout(LIMIT, found).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_shows_what_changes_until_it_is_interrupted() {
    let day = Day::begin().await;
    let mut watch = day
        .command(&["describe", "pool", "workers", "--watch"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    seen(&mut lines, "6 of 6 ready").await;
    let name = day.machines().await[0].name_any();
    let _ = day.answer(&["delete", "machine", &name]).await;
    seen(&mut lines, "WaitingForInfrastructureDeletion").await;
    seen(&mut lines, "6 of 6 ready").await;
    let pid = watch.id().unwrap().to_string();
    let signal = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(signal.unwrap().success());
    let status = tokio::time::timeout(LIMIT, watch.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clouds_console_lists_and_does_what_it_says() {
    let day = Day::begin().await;
    let machines = day.machines().await;
    let list = day.answer(&["sim", "list"]).await;
    let mut machines = machines;
    machines.sort_by_key(|machine| {
        let status = machine.status.as_ref();
        (
            status.and_then(|s| s.failure_domain.clone()),
            instance_of(machine),
        )
    });
    let id: Vec<String> = machines.iter().map(instance_of).collect();
    assert_eq!(
        told(&list, &machines),
        "INSTANCE POOL ZONE STATE FAULTS\n\
         <instance-1> default/workers a Running\n\
         <instance-2> default/workers a Running\n\
         <instance-3> default/workers b Running\n\
         <instance-4> default/workers b Running\n\
         <instance-5> default/workers c Running\n\
         <instance-6> default/workers c Running"
    );
    let does = |args: Vec<String>, answer: String| {
        let day = &day;
        async move {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            assert_eq!(day.answer(&args).await, format!("{answer}\n"));
        }
    };
    let sim = |verb: &str, id: &str| vec!["sim".to_owned(), verb.to_owned(), id.to_owned()];
    does(sim("hang", &id[0]), format!("instance {} hangs", id[0])).await;
    day.instance_is(&id[0], |i: Option<&CloudInstance>| {
        i.is_some_and(|i| i.spec.hung)
    })
    .await;
    does(sim("heal", &id[0]), format!("instance {} is healed", id[0])).await;
    day.instance_is(&id[0], |i: Option<&CloudInstance>| {
        i.is_some_and(|i| !i.spec.hung)
    })
    .await;
    does(
        sim("fail-node", &id[1]),
        format!("the kubelet of instance {} has stopped", id[1]),
    )
    .await;
    let list = day.answer(&["sim", "list", "-o", "json"]).await;
    let list: Vec<Value> = serde_json::from_str(&list).unwrap();
    let failed = list.iter().find(|i| i["id"] == id[1].as_str()).unwrap();
    assert_eq!(failed["faults"], "failed");
    does(sim("heal", &id[1]), format!("instance {} is healed", id[1])).await;
    let mut capacity = sim("capacity", "workers");
    capacity.extend(["--zone", "a", "--available", "1"].map(str::to_owned));
    does(
        capacity,
        "zone a has room for 1 instances of workers".to_owned(),
    )
    .await;
    does(
        sim("terminate", &id[2]),
        format!("instance {} is being terminated", id[2]),
    )
    .await;
    day.instance_is(&id[2], |i: Option<&CloudInstance>| i.is_none())
        .await;
    let mut interrupt = sim("interrupt", &id[3]);
    interrupt.extend(["--after", "2s"].map(str::to_owned));
    does(interrupt, format!("instance {} is taken back in 2s", id[3])).await;
    day.instance_is(&id[3], |i: Option<&CloudInstance>| i.is_none())
        .await;
    let gone = |m: Option<&Machine>| m.is_none();
    day.machine_is(&machines[2].name_any(), gone).await;
    day.machine_is(&machines[3].name_any(), gone).await;
    day.ready(6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_of_reach_and_logs_are_taken_before_and_after_the_subcommand() {
    let day = Day::begin().await;
    let kubeconfig = day.up.kubeconfig().display().to_string();
    let flags = [
        "--kubeconfig",
        &kubeconfig,
        "-n",
        "default",
        "--log-level",
        "error",
    ];
    let command = ["describe", "pool", "workers", "-o", "json"];
    let mut answers = Vec::new();
    for (before, after) in [(flags.len(), 0), (0, flags.len()), (2, 4)] {
        let mut args = flags[..before].to_vec();
        args.extend(command);
        args.extend(&flags[flags.len() - after..]);
        let output = Command::new(binary())
            .args(&args)
            .env("HOME", day.home.path())
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        answers.push(output.stdout);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    // A context that is not there is a mistake that is named.
    let output = day
        .command(&["--context", "nowhere", "sim", "list"])
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("nowhere"),
        "{output:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_check_of_the_examples_repairs_a_node_that_the_clouds_console_fails() {
    let day = Day::begin().await;
    let yaml = std::fs::read_to_string(example("health.yaml")).unwrap();
    let yaml = &yaml[yaml.find("apiVersion").unwrap()..];
    let client = day.up.client().await.unwrap();
    muster_testkit::world::apply(&client, yaml).await.unwrap();
    let sick = day.machines().await[0].clone();
    let _ = day.answer(&["sim", "fail-node", &instance_of(&sick)]).await;
    // Fifty seconds until the Node counts as silent, and thirty of that.
    let name = sick.name_any();
    day.machine_is(&name, |m: Option<&Machine>| {
        m.is_none_or(|m| {
            let said = m.condition_of("OwnerRemediated");
            said.is_some_and(|said| said.reason == "MachineDeleting")
        })
    })
    .await;
    let tree = day.answer(&["describe", "pool", "workers"]).await;
    let repaired = format!("Machine {name}: being repaired");
    let gone = !tree.contains(&format!("Machine/{name}"));
    assert!(gone || tree.contains(&repaired), "{tree}");
    day.machine_is(&name, |m: Option<&Machine>| m.is_none())
        .await;
    day.ready(6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_says_what_it_applied_what_to_try_and_how_its_pools_come_along() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let mut up = Command::new(binary())
        .args(["up", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(&data)
        .args(["-f", &example("quickstart.yaml")])
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(up.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    let running = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            said.push(line);
            if said
                .last()
                .is_some_and(|line| line == "pool workers: Running, 6 of 6 machines ready")
            {
                return;
            }
        }
        panic!("up ended: {said:?}");
    };
    tokio::time::timeout(LIMIT, running).await.unwrap();
    let place = |text: &str| {
        said.iter()
            .position(|line| line.contains(text))
            .unwrap_or_else(|| panic!("{text}: {said:?}"))
    };
    assert!(place("applied machinepools/workers") < place("muster is ready at https://127.0.0.1:"));
    let try_next = place("try next:");
    assert!(said[try_next + 1].contains(&format!(
        "export KUBECONFIG={}",
        data.join("kubeconfig").display()
    )));
    assert!(said[try_next + 2].contains("kubectl get machinepools,machines"));
    assert!(place("pool workers: ScalingUp") < said.len() - 1);
    let pid = up.id().unwrap().to_string();
    let signal = std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status();
    assert!(signal.unwrap().success());
    let status = tokio::time::timeout(LIMIT, up.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_describe_makes_the_story_of_a_machine_plain() {
    if !has_kubectl() {
        return;
    }
    let day = Day::begin().await;
    let workload = day.answer(&["kubeconfig", "quickstart"]).await;
    let path = day.home.path().join("workload");
    std::fs::write(&path, workload).unwrap();
    let client =
        muster_testkit::process::client(&kube::config::Kubeconfig::read_from(&path).unwrap())
            .await
            .unwrap();
    let yaml = std::fs::read_to_string(example("workload.yaml")).unwrap();
    let yaml = yaml.replace("maxUnavailable: 1", "maxUnavailable: 0");
    muster_testkit::world::apply(&client, yaml.trim_start_matches("# For the workload cluster: a service of which one replica at a time may be down, and a daemon on each Node.\n")).await.unwrap();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, "default");
    let pods = Informer::builder(pods).start();
    pods.synced().await.unwrap();
    let mut changes = pods.subscribe();
    let bound = async {
        loop {
            let all = pods.walk_all();
            let running = all.iter().filter(|pod| {
                let status = pod.status.as_ref();
                let conditions = status.and_then(|status| status.conditions.as_ref());
                let mut conditions = conditions.into_iter().flatten();
                conditions.any(|c| c.type_ == "Ready" && c.status == "True")
            });
            let nodes: Vec<String> = running
                .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
                .collect();
            if nodes.len() == 6 {
                return nodes;
            }
            changes.recv().await.unwrap();
        }
    };
    let nodes = tokio::time::timeout(LIMIT, bound).await.unwrap();
    let machines = day.machines().await;
    let on = machines
        .iter()
        .find(|m| m.node_name() == Some(&nodes[0]))
        .unwrap();
    let name = on.name_any();
    let _ = day.answer(&["delete", "machine", &name]).await;
    day.machine_is(&name, |m: Option<&Machine>| {
        m.is_some_and(|m| {
            m.condition_of("Deleting")
                .is_some_and(|c| c.message.contains("maxUnavailable 0"))
        })
    })
    .await;
    let text = day
        .up
        .kubectl(&["describe", "machine", &name])
        .await
        .unwrap();
    for part in [
        "Launched",
        "NodeJoined",
        "Available",
        "DrainingNode",
        "default/web",
        "this budget never allows a disruption",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let tree = day.answer(&["describe", "pool", "workers"]).await;
    for part in [
        "DrainingNode",
        "cannot evict pod",
        "budget default/web",
        "the drain timeout passes",
    ] {
        assert!(tree.contains(part), "{part}: {tree}");
    }
}

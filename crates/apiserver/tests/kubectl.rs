//! kubectl, the real one, against the TLS listener: what people type must work as against any cluster.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::{Path, PathBuf};
use std::process::Stdio;

use muster_apiserver::tls::{self, Authority, Context};
use muster_apiserver::{Host, Persistence, Role};
use muster_clock::Clock;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pools.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Pool, plural: pools, singular: pool, shortNames: [pl], categories: [all]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources:
        status: {}
        scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
      additionalPrinterColumns:
        - {name: Desired, type: integer, jsonPath: .spec.replicas}
        - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
      schema:
        openAPIV3Schema:
          type: object
          required: [spec]
          properties:
            spec:
              type: object
              description: What a pool is wanted to be.
              properties:
                replicas: {type: integer, format: int32, minimum: 0, default: 1, description: How many are wanted.}
                zones: {type: array, items: {type: string}}
            status:
              type: object
              properties:
                replicas: {type: integer}
"#;

struct World {
    dir: tempfile::TempDir,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct Said {
    ok: bool,
    text: String,
}

impl World {
    async fn start() -> Option<Self> {
        let kubectl = std::process::Command::new("kubectl")
            .args(["version", "--client"])
            .output();
        if !kubectl.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: kubectl is not installed");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let host = Host::open(
            Persistence::Directory(dir.path().join("data")),
            Clock::system(),
        )
        .await
        .unwrap();
        host.cluster("management").await.unwrap();
        host.cluster("default.other").await.unwrap();
        let authority = Authority::open(&dir.path().join("pki"), &[]).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("https://{}", listener.local_addr().unwrap());
        let other = format!("{server}/clusters/default.other");
        let contexts = [
            Context {
                name: "admin",
                server: &server,
                role: Role::Admin,
            },
            Context {
                name: "viewer",
                server: &server,
                role: Role::Viewer,
            },
            Context {
                name: "other",
                server: &other,
                role: Role::Admin,
            },
        ];
        std::fs::write(
            dir.path().join("kubeconfig"),
            tls::kubeconfig(&authority, &contexts),
        )
        .unwrap();
        let stop = CancellationToken::new();
        let ended = stop.clone();
        tokio::spawn(async move {
            tls::serve(host.clone(), &authority, listener, ended)
                .await
                .unwrap();
            host.close().await;
        });
        Some(Self { dir, stop })
    }

    fn path(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .arg("--kubeconfig")
            .arg(self.dir.path().join("kubeconfig"))
            .args(args)
            .env("HOME", self.dir.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn say(&self, args: &[&str]) -> Said {
        let output = self.command(args).output().await.unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Said {
            ok: output.status.success(),
            text,
        }
    }

    /// Runs a command that must succeed and say all of `expected`.
    async fn run(&self, args: &[&str], expected: &[&str]) -> String {
        let said = self.say(args).await;
        assert!(said.ok, "kubectl {args:?} failed: {}", said.text);
        for part in expected {
            assert!(
                said.text.contains(part),
                "kubectl {args:?} does not say {part:?} but:\n{}",
                said.text
            );
        }
        said.text
    }

    /// Makes an empty ConfigMap.
    async fn make(&self, namespace: &str, name: &str) {
        let object = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
        );
        let path = self.path(&format!("{name}.yaml"), &object);
        self.run(&["apply", "-f", text(&path)], &["created"]).await;
    }

    /// Runs a command that must fail and say all of `expected`.
    async fn refused(&self, args: &[&str], expected: &[&str]) {
        let said = self.say(args).await;
        assert!(!said.ok, "kubectl {args:?} succeeded: {}", said.text);
        for part in expected {
            assert!(
                said.text.contains(part),
                "kubectl {args:?} does not say {part:?} but:\n{}",
                said.text
            );
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_objects_live_as_on_any_cluster() {
    let Some(world) = World::start().await else {
        return;
    };
    let definition = world.path("crd.yaml", DEFINITION);
    world
        .run(
            &["apply", "-f", text(&definition)],
            &["customresourcedefinition.apiextensions.k8s.io/pools.example.com created"],
        )
        .await;
    world
        .run(
            &[
                "wait",
                "crd/pools.example.com",
                "--for=condition=Established",
                "--timeout=10s",
            ],
            &["condition met"],
        )
        .await;
    world
        .run(&["apply", "-f", text(&definition)], &["unchanged"])
        .await;

    let one = world.path("one.yaml", "apiVersion: example.com/v1\nkind: Pool\nmetadata: {name: one, labels: {team: red}}\nspec: {replicas: 3}\n");
    world
        .run(
            &["apply", "-f", text(&one)],
            &["pool.example.com/one created"],
        )
        .await;
    world
        .run(&["get", "pl"], &["NAME", "DESIRED", "AGE", "one", "3"])
        .await;
    world
        .run(&["get", "all", "-o", "name"], &["pool.example.com/one"])
        .await;
    world
        .run(
            &["describe", "pool", "one"],
            &["Replicas:", "API Version:  example.com/v1"],
        )
        .await;
    world
        .run(&["get", "pools", "-l", "team=red", "-o", "name"], &["one"])
        .await;
    world
        .run(
            &["get", "pools", "-l", "team=blue"],
            &["No resources found"],
        )
        .await;
    world
        .run(
            &[
                "patch",
                "pool",
                "one",
                "--type=merge",
                "-p",
                r#"{"spec":{"replicas":4}}"#,
            ],
            &["patched"],
        )
        .await;
    world
        .run(
            &[
                "patch",
                "pool",
                "one",
                "--type=json",
                "-p",
                r#"[{"op":"replace","path":"/spec/replicas","value":5}]"#,
            ],
            &["patched"],
        )
        .await;
    world
        .run(&["scale", "pool", "one", "--replicas=7"], &["scaled"])
        .await;
    world
        .run(
            &["get", "pool", "one", "-o", "jsonpath={.spec.replicas}"],
            &["7"],
        )
        .await;
    world
        .run(
            &["label", "pool", "one", "team=blue", "--overwrite"],
            &["labeled"],
        )
        .await;
    world
        .run(&["annotate", "pool", "one", "a/b=c"], &["annotated"])
        .await;
    world
        .run(
            &[
                "patch",
                "pool",
                "one",
                "--subresource=status",
                "--type=merge",
                "-p",
                r#"{"status":{"replicas":7}}"#,
            ],
            &["patched"],
        )
        .await;
    world
        .run(
            &[
                "wait",
                "pool/one",
                "--for=jsonpath={.status.replicas}=7",
                "--timeout=5s",
            ],
            &["condition met"],
        )
        .await;
    world
        .run(
            &["explain", "pool.spec.replicas"],
            &["How many are wanted."],
        )
        .await;
    world
        .run(
            &["api-resources", "--api-group=example.com"],
            &["pools", "pl", "example.com/v1", "true", "Pool"],
        )
        .await;

    let edit = world.path(
        "edit.sh",
        "#!/bin/sh\nsed -i 's/replicas: 7/replicas: 8/' \"$1\"\n",
    );
    let edited = world
        .command(&["edit", "pool", "one"])
        .env("EDITOR", format!("sh {}", text(&edit)))
        .output()
        .await
        .unwrap();
    assert!(edited.status.success(), "{edited:?}");
    world
        .run(
            &["get", "pool", "one", "-o", "jsonpath={.spec.replicas}"],
            &["8"],
        )
        .await;

    // Bad input names object, field, value and what is allowed, and changes nothing.
    let bad = world.path(
        "bad.yaml",
        "apiVersion: example.com/v1\nkind: Pool\nmetadata: {name: bad}\nspec: {replicas: -1}\n",
    );
    world
        .refused(
            &["apply", "-f", text(&bad)],
            &[
                "The Pool \"bad\" is invalid",
                "spec.replicas: Invalid value: -1",
                "greater than or equal to 0",
            ],
        )
        .await;
    let unknown = world.path(
        "unknown.yaml",
        "apiVersion: example.com/v1\nkind: Pool\nmetadata: {name: bad}\nspec: {replica: 1}\n",
    );
    world
        .refused(
            &["apply", "-f", text(&unknown)],
            &["strict decoding error: unknown field \"spec.replica\""],
        )
        .await;
    world
        .refused(
            &["get", "pool", "bad"],
            &["pools.example.com \"bad\" not found"],
        )
        .await;
    world
        .refused(
            &["get", "nothings"],
            &["the server doesn't have a resource type \"nothings\""],
        )
        .await;

    world
        .run(&["delete", "pool", "one", "--timeout=10s"], &["deleted"])
        .await;
    world
        .run(
            &["delete", "crd", "pools.example.com", "--timeout=10s"],
            &["deleted"],
        )
        .await;
    world.refused(&["get", "pools"], &["NotFound"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_side_apply_tells_conflicts_and_takes_over_by_force() {
    let Some(world) = World::start().await else {
        return;
    };
    let one = world.path(
        "one.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: x, b: w}\n",
    );
    world
        .run(
            &["apply", "--server-side", "-f", text(&one)],
            &["serverside-applied"],
        )
        .await;
    let two = world.path(
        "two.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: z}\n",
    );
    world
        .refused(
            &[
                "apply",
                "--server-side",
                "--field-manager=other",
                "-f",
                text(&two),
            ],
            &[
                "Apply failed with 1 conflict",
                "conflict with \"kubectl\": .data.a",
            ],
        )
        .await;
    world
        .run(
            &[
                "apply",
                "--server-side",
                "--field-manager=other",
                "--force-conflicts",
                "-f",
                text(&two),
            ],
            &["serverside-applied"],
        )
        .await;
    world
        .run(
            &["get", "cm", "one", "-o", "jsonpath={.data}"],
            &[r#"{"a":"z","b":"w"}"#],
        )
        .await;
    let diff = world
        .say(&["diff", "--server-side", "-f", text(&one)])
        .await;
    assert!(!diff.ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn built_in_kinds_are_applied_merged_and_collected() {
    let Some(world) = World::start().await else {
        return;
    };
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n        - {name: web, image: one, ports: [{containerPort: 80}]}\n";
    let path = world.path("web.yaml", deployment);
    world
        .run(
            &["apply", "-f", text(&path)],
            &["deployment.apps/web created"],
        )
        .await;
    std::fs::write(&path, deployment.replace("image: one", "image: two")).unwrap();
    world
        .run(
            &["apply", "-f", text(&path)],
            &["deployment.apps/web configured"],
        )
        .await;
    world
        .run(
            &[
                "get",
                "deploy",
                "web",
                "-o",
                "jsonpath={.spec.template.spec.containers[0].image}",
            ],
            &["two"],
        )
        .await;
    world
        .run(&["get", "deploy"], &["READY", "UP-TO-DATE", "0/2"])
        .await;
    world
        .run(&["scale", "deploy", "web", "--replicas=3"], &["scaled"])
        .await;
    world
        .run(
            &["set", "image", "deploy/web", "web=three"],
            &["image updated"],
        )
        .await;
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n";
    let secret = world.path("secret.yaml", secret);
    world
        .run(&["apply", "-f", text(&secret)], &["secret/s created"])
        .await;
    world
        .run(
            &["get", "secret", "s", "-o", "jsonpath={.data.a}"],
            &["Yg=="],
        )
        .await;
    let namespace = world.path(
        "n.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n",
    );
    world
        .run(
            &["apply", "-f", text(&namespace)],
            &["namespace/team created"],
        )
        .await;
    world.make("team", "c").await;
    world
        .run(
            &["delete", "namespace", "team", "--timeout=10s"],
            &["deleted"],
        )
        .await;
    world
        .refused(&["-n", "team", "get", "cm", "c"], &["not found"])
        .await;
    let lost = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: nowhere}\n";
    let lost = world.path("lost.yaml", lost);
    world
        .refused(
            &["apply", "-f", text(&lost)],
            &["namespaces \"nowhere\" not found"],
        )
        .await;
    world
        .run(&["explain", "pod.spec.containers.image"], &["image"])
        .await;
    // Logical clusters know nothing of each other.
    world
        .run(
            &["--context", "other", "get", "deploy"],
            &["No resources found"],
        )
        .await;
    world
        .run(
            &["--context", "other", "get", "namespaces"],
            &["kube-system", "Active"],
        )
        .await;
}

/// These send protobuf, whatever the server would like.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_without_a_manifest_works_for_built_in_kinds() {
    let Some(world) = World::start().await else {
        return;
    };
    let made: [(&[&str], &str, &str); 7] = [
        (
            &["namespace", "team"],
            "namespace/team",
            "{.status.phase}=Active",
        ),
        (
            &["configmap", "settings", "--from-literal=mode=fast"],
            "configmap/settings",
            "{.data.mode}=fast",
        ),
        (
            &["secret", "generic", "token", "--from-literal=key=value"],
            "secret/token",
            "{.data.key}=dmFsdWU=",
        ),
        (
            &["deployment", "web", "--image=web:1", "--replicas=2"],
            "deployment/web",
            "{.spec.replicas} {.spec.template.spec.containers[0].image}=2 web:1",
        ),
        (
            &[
                "poddisruptionbudget",
                "web",
                "--selector=app=web",
                "--max-unavailable=30%",
            ],
            "poddisruptionbudget/web",
            "{.spec.maxUnavailable} {.spec.selector.matchLabels.app}=30% web",
        ),
        (
            &["priorityclass", "high", "--value=1000"],
            "priorityclass/high",
            "{.value}=1000",
        ),
        (
            &["job", "once", "--image=job:1", "--", "run"],
            "job/once",
            "{.spec.template.spec.containers[0].command}=[\"run\"]",
        ),
    ];
    for (args, name, expected) in made {
        let (path, value) = expected.split_once('=').unwrap();
        world.run(&[&["create"], args].concat(), &["created"]).await;
        let path = format!("-o=jsonpath={path}");
        let said = world.run(&["get", name, &path], &[]).await;
        assert_eq!(said, value, "{name}");
    }
    // No field that was left empty is claimed by kubectl as its own.
    let fields = world
        .run(
            &[
                "get",
                "configmap/settings",
                "--show-managed-fields",
                "-o=yaml",
            ],
            &[],
        )
        .await;
    assert!(!fields.contains("f:generateName"), "{fields}");
    world
        .refused(&["create", "configmap", "settings"], &["already exists"])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_reads_everything_but_secrets_and_nobody_reads_nothing() {
    let Some(world) = World::start().await else {
        return;
    };
    world
        .run(&["--context", "viewer", "get", "configmaps", "-A"], &[])
        .await;
    world.refused(
        &["--context", "viewer", "get", "secrets"],
        &["secrets is forbidden: User \"viewer\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\""],
    ).await;
    let object = world.path(
        "c.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
    );
    world
        .refused(
            &["--context", "viewer", "apply", "-f", text(&object)],
            &["forbidden", "cannot create resource \"configmaps\""],
        )
        .await;
    world
        .refused(
            &["--token=wrong", "get", "pods"],
            &["Unauthorized", "must be logged in"],
        )
        .await;
    world
        .run(
            &["--token=wrong", "get", "--raw", "/version"],
            &["gitVersion"],
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_shows_changes_as_they_come() {
    let Some(world) = World::start().await else {
        return;
    };
    world.make("default", "one").await;
    let mut watching = world
        .command(&["get", "cm", "-w", "--no-headers"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    assert!(lines.next_line().await.unwrap().unwrap().starts_with("one"));
    world.make("default", "two").await;
    assert!(lines.next_line().await.unwrap().unwrap().starts_with("two"));
}

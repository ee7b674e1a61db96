//! The command line as scripts rely on it: exit codes, what goes to which stream, and what a mistake is told.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use muster_testkit::process::Up;

fn muster(home: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(args)
        .env("HOME", home)
        .env_remove("KUBECONFIG")
        .env_remove("XDG_DATA_HOME")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn usage_errors_are_two_failures_one_and_answers_zero() {
    let home = tempfile::tempdir().unwrap();
    for (args, code) in [
        (&["version"][..], 0),
        (&["--help"], 0),
        (&["crds"], 0),
        (&["completion", "bash"], 0),
        (&["frobnicate"], 2),
        (&["scale", "pool", "x", "--replicas", "-1"], 2),
        (&["delete", "machine"], 2),
        (&["describe", "cluster", "x"], 1),
    ] {
        let output = muster(home.path(), args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        // What is no answer goes to standard error.
        assert_eq!(output.stdout.is_empty(), code != 0, "{args:?}");
    }
    let none = muster(home.path(), &["describe", "cluster", "x"]);
    assert_eq!(
        said(&none.stderr),
        "error: no kubeconfig found; start `muster up`, or name one with --kubeconfig\n"
    );
}

#[test]
fn the_definitions_are_yaml_that_names_every_kind() {
    let home = tempfile::tempdir().unwrap();
    let text = said(&muster(home.path(), &["crds"]).stdout);
    for name in [
        "machines.cluster.x-k8s.io",
        "machinepools.cluster.x-k8s.io",
        "machinepoolpolicies.muster.dev",
        "simmachinepools.infrastructure.cluster.x-k8s.io",
    ] {
        assert!(text.contains(name), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mistakes_name_the_place_and_disturb_nothing() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let file = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let run = |args: &[&str]| {
        let mut all = vec![
            "up",
            "--data-dir",
            data.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
        ];
        all.extend(args);
        muster(home.path(), &all)
    };
    let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n";
    for (text, expected) in [
        ("a: [", vec!["bad.yaml, document 1 is not valid YAML"]),
        (
            "kind: ConfigMap\nmetadata: {name: a}",
            vec!["bad.yaml, document 1 has no apiVersion"],
        ),
        (
            &format!(
                "{good}---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: MachinePool\nmetadata: {{name: p}}\nspec: {{clusterName: c, replica: 1}}\n"
            ),
            vec!["bad.yaml, document 2", "spec.replica"],
        ),
        (
            &format!(
                "{good}---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: MachinePul\nmetadata: {{name: p}}\n"
            ),
            vec!["bad.yaml, document 2", "no kind MachinePul"],
        ),
    ] {
        let output = run(&["-f", &file("bad.yaml", text)]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        for part in expected {
            assert!(
                said(&output.stderr).contains(part),
                "{:?} lacks {part:?}",
                said(&output.stderr)
            );
        }
        assert!(!data.join("kubeconfig").exists());
    }
    let missing = run(&["-f", "nowhere.yaml"]);
    assert!(
        said(&missing.stderr).starts_with("error: reading nowhere.yaml"),
        "{missing:?}"
    );

    let up = Up::start(Path::new(env!("CARGO_BIN_EXE_muster")), &data, &[])
        .await
        .unwrap();
    let kubeconfig = up.kubeconfig().to_str().unwrap().to_owned();
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&kubeconfig).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::namespaced(up.client().await.unwrap(), "default");
    assert!(
        maps.get_opt("good").await.unwrap().is_none(),
        "no document of a refused manifest was applied"
    );

    let second = run(&[]);
    assert_eq!(second.status.code(), Some(1));
    assert!(
        said(&second.stderr).contains("is in use by another `muster up`"),
        "{second:?}"
    );

    let none = muster(
        home.path(),
        &["delete", "machine", "nobody", "--kubeconfig", &kubeconfig],
    );
    assert!(
        said(&none.stderr).contains("there is no machine default/nobody"),
        "{none:?}"
    );
    let none = muster(
        home.path(),
        &["sim", "terminate", "i-0", "--kubeconfig", &kubeconfig],
    );
    assert!(
        said(&none.stderr).contains("the simulated cloud has no instance \"i-0\""),
        "{none:?}"
    );
    let empty = muster(
        home.path(),
        &["sim", "list", "-o", "json", "--kubeconfig", &kubeconfig],
    );
    assert_eq!(said(&empty.stdout), "[]\n");
}

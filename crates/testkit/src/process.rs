//! The real `muster up` as a child process, killed or stopped at will, and `kubectl` against it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// How long the binary may take from its start until it serves; generous, since it is a limit and not a measure.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running `muster up`.
pub struct Up {
    child: Child,
    kubeconfig: PathBuf,
    /// Standard error so far is drained by a task, so that the child never blocks on a full pipe.
    _drain: tokio::task::JoinHandle<()>,
}

impl Up {
    /// Starts `binary up` on `data_dir` with a free port and waits until it serves.
    ///
    /// # Errors
    /// When it ends before, with what it said.
    pub async fn start(binary: &Path, data_dir: &Path, args: &[&str]) -> anyhow::Result<Self> {
        let kubeconfig = data_dir.join("kubeconfig");
        // What an earlier run left is no sign of this one.
        match std::fs::remove_file(&kubeconfig) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context("removing the former kubeconfig"),
        }
        let mut child = Command::new(binary)
            .arg("up")
            .arg("--data-dir")
            .arg(data_dir)
            .args(["--listen", "127.0.0.1:0"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))?;
        let stdout = child.stdout.take().context("standard output is piped")?;
        let stderr = child.stderr.take().context("standard error is piped")?;
        let (lines, mut said) = tokio::sync::mpsc::unbounded_channel();
        let drain = tokio::spawn(async move {
            let mut out = BufReader::new(stdout).lines();
            let mut err = BufReader::new(stderr).lines();
            let (mut out_open, mut err_open) = (true, true);
            while out_open || err_open {
                let line = tokio::select! {
                    line = out.next_line(), if out_open => line.unwrap_or(None).or_else(|| { out_open = false; None }),
                    line = err.next_line(), if err_open => line.unwrap_or(None).or_else(|| { err_open = false; None }),
                };
                if let Some(line) = line {
                    // Nobody listens once the child is ready.
                    let _ = lines.send(line);
                }
            }
        });
        let mut heard = Vec::new();
        let ready = tokio::time::timeout(START_LIMIT, async {
            while let Some(line) = said.recv().await {
                let ready = kubeconfig.exists();
                heard.push(line);
                if ready {
                    return true;
                }
            }
            false
        })
        .await;
        if !matches!(ready, Ok(true)) {
            bail!(
                "muster up did not become ready; it said:\n{}",
                heard.join("\n")
            );
        }
        Ok(Self {
            child,
            kubeconfig,
            _drain: drain,
        })
    }

    /// The kubeconfig that it wrote.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The process ID.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("muster up has ended")
    }

    /// A client of its management API.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        client(&Kubeconfig::read_from(&self.kubeconfig)?).await
    }

    /// A client of another logical cluster on the same server.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn sibling(&self, cluster: &str) -> anyhow::Result<kube::Client> {
        let mut kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
        for named in &mut kubeconfig.clusters {
            if let Some(server) = named
                .cluster
                .as_mut()
                .and_then(|found| found.server.as_mut())
            {
                server.push_str(&format!("/clusters/{cluster}"));
            }
        }
        client(&kubeconfig).await
    }

    /// `kill -9`, awaited.
    ///
    /// # Errors
    /// When the process cannot be signalled.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("killing muster up")
    }

    /// Runs `kubectl` with this world's kubeconfig.
    ///
    /// # Errors
    /// When it cannot be run or fails, with what it said.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        kubectl(&self.kubeconfig, args).await
    }
}

/// A client for `kubeconfig`, without kube's retries: a refused eviction is an answer.
///
/// # Errors
/// When it names no reachable context.
pub async fn client(kubeconfig: &Kubeconfig) -> anyhow::Result<kube::Client> {
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default())
            .await?;
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

/// Whether `kubectl` is on this machine; says so when it is not, since a test is about to be skipped.
pub fn has_kubectl() -> bool {
    let found = std::process::Command::new("kubectl")
        .args(["version", "--client"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: kubectl is not installed");
    }
    found
}

/// Runs `kubectl` and returns its standard output.
///
/// # Errors
/// When it cannot be run or fails, with what it said.
pub async fn kubectl(kubeconfig: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = kubectl_output(kubeconfig, args).await?;
    if !output.status.success() {
        bail!(
            "kubectl {} failed: {}{}",
            args.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `kubectl` and returns all that it said, whether it failed or not. Its cache of discovery lies beside the
/// kubeconfig, so that no two worlds share one.
///
/// # Errors
/// When it cannot be run.
pub async fn kubectl_output(kubeconfig: &Path, args: &[&str]) -> anyhow::Result<Output> {
    let home = kubeconfig
        .parent()
        .context("a kubeconfig lies in a folder")?;
    Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(args)
        .env("HOME", home)
        .env("KUBECACHEDIR", home.join("kube-cache"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("running kubectl")
}

/// Writes a file that only its owner can read.
///
/// # Errors
/// When it cannot be written.
pub fn write_private(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("creating {}", path.display()))?;
    file.write_all(content)
        .with_context(|| format!("writing {}", path.display()))
}

//! One server as a child process that cannot outlive the test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

/// The shell between the test and the server: when the pipe on its standard input closes, which no kind of end of the
/// test can prevent, the server is killed.
const GUARD: &str = r#"exec 3<&0
"$@" 3<&- </dev/null &
child=$!
{ read -r _ <&3; kill -KILL $child; } 2>/dev/null &
wait $child"#;

/// How many lines of a log an error shows.
const TAIL: usize = 20;

/// A server; it ends when it is dropped.
pub(super) struct Server {
    guard: Child,
    pipe: Option<ChildStdin>,
    log: PathBuf,
}

impl Server {
    /// Starts `binary`; what it says goes to `log`.
    pub(super) fn start(binary: &Path, args: &[String], log: &Path) -> anyhow::Result<Self> {
        let out = File::options().create(true).append(true).open(log)?;
        let mut guard = Command::new("/bin/sh")
            .args(["-c", GUARD, "guard"])
            .arg(binary)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))?;
        let pipe = guard.stdin.take();
        Ok(Self {
            guard,
            pipe,
            log: log.to_owned(),
        })
    }

    /// Waits until `holds`; an error when the server ends before, or time does.
    pub(super) async fn until<F>(
        &mut self,
        limit: Duration,
        holds: impl Fn() -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = bool>,
    {
        let served = tokio::time::timeout(limit, async {
            while !holds().await {
                if let Some(status) = self.guard.try_wait()? {
                    bail!("it ended with {status}");
                }
                // A port that is not listened on yet tells nobody when it is.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        })
        .await;
        let why = match served {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it does not serve after {limit:?}"),
        };
        bail!("{why}; it said:\n{}", self.tail())
    }

    fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // The guard ends as soon as the server has.
        let _ = self.guard.wait();
    }
}

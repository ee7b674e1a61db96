//! Which cluster is meant: the kubeconfig, as kubectl looks for it.

use std::path::PathBuf;

use anyhow::{Context, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::cli::Reach;

/// Where `muster up` keeps its state unless told otherwise.
pub fn default_data_dir() -> anyhow::Result<PathBuf> {
    let base = match std::env::var_os("XDG_DATA_HOME").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => {
            let home = std::env::var_os("HOME")
                .context("HOME is not set; name a directory with --data-dir")?;
            PathBuf::from(home).join(".local/share")
        }
    };
    Ok(base.join("muster"))
}

/// The kubeconfig that is meant.
fn read(reach: &Reach) -> anyhow::Result<Kubeconfig> {
    if let Some(path) = &reach.kubeconfig {
        return Kubeconfig::read_from(path)
            .with_context(|| format!("reading the kubeconfig {}", path.display()));
    }
    if std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty()) {
        return Kubeconfig::read().context("reading the kubeconfig that KUBECONFIG names");
    }
    let running = default_data_dir()?.join("kubeconfig");
    if running.exists() {
        return Kubeconfig::read_from(&running)
            .with_context(|| format!("reading the kubeconfig {}", running.display()));
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    match home.filter(|path| path.exists()) {
        Some(path) => Kubeconfig::read_from(&path)
            .with_context(|| format!("reading the kubeconfig {}", path.display())),
        None => bail!("no kubeconfig found; start `muster up`, or name one with --kubeconfig"),
    }
}

/// Configuration and namespace of the cluster that is meant.
pub async fn config(reach: &Reach) -> anyhow::Result<(Config, String)> {
    let options = KubeConfigOptions {
        context: reach.context.clone(),
        ..KubeConfigOptions::default()
    };
    let mut config = Config::from_custom_kubeconfig(read(reach)?, &options).await?;
    // A refusal is an answer and not something to try again for a minute.
    config.default_retry = false;
    let namespace = reach
        .namespace
        .clone()
        .unwrap_or_else(|| config.default_namespace.clone());
    Ok((config, namespace))
}

/// A client of the cluster that is meant, and the namespace.
pub async fn client(reach: &Reach) -> anyhow::Result<(Client, String)> {
    let (config, namespace) = config(reach).await?;
    Ok((Client::try_from(config)?, namespace))
}

/// A client of another logical cluster on the same server.
pub async fn sibling(reach: &Reach, cluster: &str) -> anyhow::Result<(Client, String)> {
    let (mut config, namespace) = config(reach).await?;
    let mut parts = config.cluster_url.clone().into_parts();
    let path = format!("/clusters/{cluster}");
    parts.path_and_query = Some(path.parse().context("the path of a logical cluster")?);
    config.cluster_url = http::Uri::from_parts(parts).context("the URL of the server")?;
    Ok((Client::try_from(config)?, namespace))
}

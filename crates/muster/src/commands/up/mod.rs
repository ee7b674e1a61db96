//! `muster up`: everything in one process.

mod progress;
mod world;

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use muster_apiserver::tls::{self, Authority};
use muster_apiserver::{Host, OpenError, Persistence, Role};
use muster_clock::Clock;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cli::Up;
use crate::{apply, kubeconfig, printer};
use world::Address;

pub async fn run(args: Up) -> anyhow::Result<ExitCode> {
    // Manifests are read before anything is started: a mistake in them is the cheapest to tell now.
    let mut documents = Vec::new();
    for path in &args.filenames {
        documents.extend(apply::read(path)?);
    }
    let directory = match &args.data_dir {
        Some(directory) => directory.clone(),
        None => kubeconfig::default_data_dir()?,
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("creating {}", directory.display()))?;
    let persistence = if args.ephemeral {
        Persistence::Memory
    } else {
        Persistence::Directory(directory.join("store"))
    };
    let clock = Clock::system();
    let host = match Host::open(persistence, clock.clone()).await {
        Ok(host) => host,
        Err(OpenError::InUse { .. }) => bail!(
            "{} is in use by another `muster up`; stop that one, or choose another directory with --data-dir",
            directory.display()
        ),
        Err(error) => return Err(error.into()),
    };
    let listener = listen(&args.listen).await?;
    let local = listener
        .local_addr()
        .context("the address that is listened on")?;
    let names = vec![local.ip().to_string()];
    let authority = if args.ephemeral {
        Authority::ephemeral(&names)?
    } else {
        Authority::open(&directory.join("pki"), &names)?
    };
    let authority = std::sync::Arc::new(authority);
    let address = Address::new(local, std::sync::Arc::clone(&authority));
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let (host, stop, authority) = (
            host.clone(),
            stop.clone(),
            std::sync::Arc::clone(&authority),
        );
        async move { tls::serve(host, &authority, listener, stop).await }
    });
    let world = world::start(&host, &clock, &address, args.settings.settings(), &stop).await?;

    let path = args
        .kubeconfig
        .clone()
        .unwrap_or_else(|| directory.join("kubeconfig"));
    let text = tls::kubeconfig(
        &authority,
        &[
            tls::Context {
                name: "muster",
                server: &address.server(),
                role: Role::Admin,
            },
            tls::Context {
                name: "muster-viewer",
                server: &address.server(),
                role: Role::Viewer,
            },
        ],
    );
    let applied = match apply::all(&world.client, documents, "default").await {
        Ok(applied) => applied,
        Err(error) => {
            end(&host, &stop, serving, world).await;
            return Err(error);
        }
    };
    write_private(&path, text.as_bytes()).with_context(|| format!("writing {}", path.display()))?;
    greet(&path, &address, &applied);
    let watching = tokio::spawn(progress::show(world.caches.clone(), stop.clone()));
    until_told().await?;
    printer::say("stopping");
    watching.abort();
    end(&host, &stop, serving, world).await;
    // What it reaches is gone; a later command is to say so and not to try.
    let _ = std::fs::remove_file(&path);
    Ok(ExitCode::SUCCESS)
}

async fn end(
    host: &Host,
    stop: &CancellationToken,
    serving: tokio::task::JoinHandle<Result<(), tls::AuthorityError>>,
    world: world::World,
) {
    stop.cancel();
    let graceful = async {
        world.controllers.wait().await;
        world.simulation.wait().await;
        let _ = serving.await;
    };
    // State is safe at every moment; what does not end in time is only cut off.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(8), graceful).await;
    host.close().await;
}

async fn listen(text: &str) -> anyhow::Result<TcpListener> {
    let text = if text.starts_with(':') {
        format!("127.0.0.1{text}")
    } else {
        text.to_owned()
    };
    let address: SocketAddr = text.parse().with_context(|| {
        format!("--listen {text:?} is not an address and a port, such as 127.0.0.1:6440")
    })?;
    TcpListener::bind(address).await.with_context(|| {
        format!("listening on {address}; choose another with --listen, port 0 takes a free one")
    })
}

/// Writes a file that only its owner can read, whole or not at all.
fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let _ = std::fs::remove_file(&temporary);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

fn greet(kubeconfig: &Path, address: &Address, applied: &[String]) {
    for object in applied {
        printer::say(&format!("applied {object}"));
    }
    printer::say(&format!("muster is ready at {}", address.server()));
    printer::say("try next:");
    printer::say(&format!("  export KUBECONFIG={}", kubeconfig.display()));
    printer::say("  kubectl get machinepools,machines -o wide");
}

async fn until_told() -> anyhow::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        done = tokio::signal::ctrl_c() => done.context("waiting for Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}

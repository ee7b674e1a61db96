//! `muster describe`: a cluster or a pool as a tree.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::bail;
use kube::api::ListParams;
use kube::{Api, Client};
use muster_api::{Cluster, Machine, MachinePool};
use muster_clock::Clock;
use muster_informers::Informer;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Describe, DescribeWhat, Format, Named, Reach};
use crate::view::{self, Seen};
use crate::{kubeconfig, printer};

/// What is described.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Cluster,
    Pool,
}

pub async fn run(reach: &Reach, args: Describe) -> anyhow::Result<ExitCode> {
    let (what, args) = match args.what {
        DescribeWhat::Cluster(args) => (What::Cluster, args),
        DescribeWhat::Pool(args) => (What::Pool, args),
    };
    let (client, namespace) = kubeconfig::client(reach).await?;
    let seen = look(&client, &namespace, what, &args.name).await?;
    show(&args, &seen, true)?;
    if args.watch {
        watch(&client, &namespace, what, &args).await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn look(client: &Client, namespace: &str, what: What, name: &str) -> anyhow::Result<Seen> {
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), namespace);
    let pools: Api<MachinePool> = Api::namespaced(client.clone(), namespace);
    let machines: Api<Machine> = Api::namespaced(client.clone(), namespace);
    let (cluster, pools) = match what {
        What::Cluster => {
            let Some(cluster) = clusters.get_opt(name).await? else {
                bail!(
                    "there is no cluster {namespace}/{name}; `kubectl get clusters -A` lists them"
                );
            };
            let mut all = pools.list(&ListParams::default()).await?.items;
            all.retain(|pool| pool.spec.cluster_name == name);
            (Some(cluster), all)
        }
        What::Pool => {
            let Some(pool) = pools.get_opt(name).await? else {
                bail!(
                    "there is no pool {namespace}/{name}; `kubectl get machinepools -A` lists them"
                );
            };
            (None, vec![pool])
        }
    };
    let machines = machines.list(&ListParams::default()).await?.items;
    Ok(Seen {
        cluster,
        pools,
        machines,
        now: Clock::system().now(),
    })
}

fn show(args: &Named, seen: &Seen, first: bool) -> anyhow::Result<()> {
    match args.output {
        Format::Table => {
            let text = printer::columns(&view::rows(seen));
            if !first && std::io::stdout().is_terminal() {
                // Home, and clear what is below: the tree is redrawn in place.
                printer::out(&format!("\u{1b}[H\u{1b}[J{text}"))
            } else {
                printer::out(&text)
            }
        }
        format => printer::value(format, &view::value(seen)),
    }
}

/// Shows every change: the tree again on a terminal, only the changed lines where it is read by a program.
async fn watch(client: &Client, namespace: &str, what: What, args: &Named) -> anyhow::Result<()> {
    // Listened for once, so that none is lost that comes while something else is awaited.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let clusters = Informer::builder(Api::<Cluster>::namespaced(client.clone(), namespace)).start();
    let pools =
        Informer::builder(Api::<MachinePool>::namespaced(client.clone(), namespace)).start();
    let machines = Informer::builder(Api::<Machine>::namespaced(client.clone(), namespace)).start();
    clusters.synced().await?;
    pools.synced().await?;
    machines.synced().await?;
    let (mut a, mut b, mut c) = (
        clusters.subscribe(),
        pools.subscribe(),
        machines.subscribe(),
    );
    let mut before: Vec<Vec<String>> = Vec::new();
    let piped = !std::io::stdout().is_terminal();
    loop {
        let seen = look(client, namespace, what, &args.name).await?;
        let rows = view::rows(&seen);
        if piped && args.output == Format::Table {
            // Ages change all the time and are no news.
            let news = |row: &Vec<String>| {
                !before
                    .iter()
                    .any(|old| without_age(old) == without_age(row))
            };
            let changed: Vec<Vec<String>> = rows
                .iter()
                .skip(1)
                .filter(|row| news(row))
                .cloned()
                .collect();
            if !changed.is_empty() && !before.is_empty() {
                printer::out(&printer::columns(&changed))?;
            }
        } else if !before.is_empty() {
            show(args, &seen, false)?;
        }
        before = rows;
        let more = tokio::select! {
            change = a.recv() => change.is_some(),
            change = b.recv() => change.is_some(),
            change = c.recv() => change.is_some(),
            _ = interrupt.recv() => false,
        };
        if !more {
            return Ok(());
        }
        // One look for a burst of changes.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        while a.try_recv().is_ok() || b.try_recv().is_ok() || c.try_recv().is_ok() {}
    }
}

fn without_age(row: &[String]) -> Vec<&str> {
    row.iter()
        .enumerate()
        .filter(|(at, _)| *at != 3)
        .map(|(_, cell)| cell.as_str())
        .collect()
}

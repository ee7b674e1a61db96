//! A line per pool while its machines come up or go: redrawn in place on a terminal, one line per change elsewhere.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use kube::ResourceExt;
use muster_api::MachinePool;
use muster_caches::Management;
use muster_informers::Key;
use tokio_util::sync::CancellationToken;

fn line(pool: &MachinePool) -> String {
    let status = pool.status.clone().unwrap_or_default();
    format!(
        "pool {}: {}, {} of {} machines ready",
        pool.name_any(),
        status
            .phase
            .map_or("Pending".to_owned(), |phase| format!("{phase:?}")),
        status.ready_replicas.unwrap_or(0),
        pool.desired_replicas()
    )
}

pub async fn show(caches: Management, stop: CancellationToken) {
    let mut changes = caches.pools.subscribe();
    let mut lines: BTreeMap<String, String> = BTreeMap::new();
    let terminal = std::io::stderr().is_terminal();
    loop {
        let change = tokio::select! {
            Some(change) = changes.recv() => change,
            () = stop.cancelled() => return,
            else => return,
        };
        let drawn = lines.len();
        let Some(pool) = change.either().last() else {
            continue;
        };
        let key = Key::of(&**pool).to_string();
        let text = match &change.new {
            Some(pool) => line(pool),
            None => format!("pool {}: gone", pool.name_any()),
        };
        if lines.insert(key, text.clone()).as_ref() == Some(&text) {
            continue;
        }
        let mut stderr = std::io::stderr().lock();
        // A terminal that goes away ends nothing.
        let _ = if terminal {
            let up = if drawn > 0 {
                format!("\u{1b}[{drawn}A")
            } else {
                String::new()
            };
            let all: String = lines
                .values()
                .map(|line| format!("\u{1b}[2K{line}\n"))
                .collect();
            write!(stderr, "{up}{all}")
        } else {
            writeln!(stderr, "{text}")
        };
    }
}

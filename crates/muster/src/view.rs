//! The tree of a cluster or a pool, from objects to rows; pure, so that it can be tested as text.

mod size;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt};
use muster_api::reference::Conditioned;
use muster_api::{Cluster, Machine, MachinePool};
use serde_json::{Value, json};

/// How many machines that are all well are shown one by one before they are folded.
const FOLD_AT: usize = 30;

/// What a tree is made of.
pub struct Seen {
    /// The cluster, when one is described.
    pub cluster: Option<Cluster>,
    /// Its pools, or the one that is described.
    pub pools: Vec<MachinePool>,
    /// Their machines.
    pub machines: Vec<Machine>,
    /// The time, for ages.
    pub now: Timestamp,
}

const HEAD: [&str; 7] = [
    "NAME", "READY", "REASON", "AGE", "ZONE", "VERSION", "MESSAGE",
];

/// The tree as rows of columns, the heading first.
pub fn rows(seen: &Seen) -> Vec<Vec<String>> {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    if let Some(cluster) = &seen.cluster {
        rows.push(row(
            "",
            format!("Cluster/{}", cluster.name_any()),
            summary(cluster, "Available"),
            age(cluster, seen.now),
            "",
            "",
        ));
        if let Some(infra) = &cluster.spec.infrastructure_ref {
            let said = summary(cluster, "InfrastructureReady");
            rows.push(row(
                "├─",
                format!("{}/{}", infra.kind, infra.name),
                said,
                String::new(),
                "",
                "",
            ));
        }
    }
    for (index, pool) in seen.pools.iter().enumerate() {
        let last = index + 1 == seen.pools.len();
        let (stem, below) = match (&seen.cluster, last) {
            (None, _) => ("", ""),
            (Some(_), true) => ("└─", "  "),
            (Some(_), false) => ("├─", "│ "),
        };
        pool_rows(seen, pool, stem, below, &mut rows);
    }
    rows
}

fn pool_rows(
    seen: &Seen,
    pool: &MachinePool,
    stem: &str,
    below: &str,
    rows: &mut Vec<Vec<String>>,
) {
    let name = pool.name_any();
    let status = pool.status.clone().unwrap_or_default();
    let mut said = summary(pool, "Available");
    let counts = format!(
        "{} of {} ready, {} up to date",
        status.ready_replicas.unwrap_or(0),
        pool.desired_replicas(),
        status.up_to_date_replicas.unwrap_or(0)
    );
    let blocked = ["InfrastructureReady", "BootstrapConfigReady", "Deleting"]
        .iter()
        .filter_map(|type_| pool.condition_of(type_))
        .find(|c| {
            if c.type_ == "Deleting" {
                c.status == "True"
            } else {
                c.status != "True"
            }
        });
    let blocked = blocked.map(|condition| first_line(&condition.message).to_owned());
    let remediating = pool
        .condition_of("Remediating")
        .filter(|said| said.status == "True")
        .map(|said| said.message.replace("* ", "").replace('\n', "; "));
    let parts = std::iter::once(counts)
        .chain(blocked)
        .chain(remediating)
        .chain(size::notes(pool));
    said.2 = parts.collect::<Vec<_>>().join("; ");
    let phase = status
        .phase
        .map(|phase| format!("{phase:?}"))
        .unwrap_or_default();
    said.1 = if said.1.is_empty() || said.1 == "Available" {
        phase
    } else {
        said.1
    };
    let version = pool.spec.template.spec.version.clone().unwrap_or_default();
    rows.push(row(
        stem,
        format!("MachinePool/{name}"),
        said,
        age(pool, seen.now),
        "",
        &version,
    ));
    let mut machines: Vec<&Machine> = seen
        .machines
        .iter()
        .filter(|machine| {
            machine
                .owner_references()
                .iter()
                .any(|owner| owner.kind == "MachinePool" && owner.name == name)
        })
        .collect();
    machines.sort_by_key(|machine| (zone(machine), machine.name_any()));
    let well: Vec<&&Machine> = machines.iter().filter(|machine| is_well(machine)).collect();
    let folded = machines.len() > FOLD_AT && well.len() > 3;
    let shown: Vec<&Machine> = if folded {
        machines
            .iter()
            .filter(|machine| !is_well(machine))
            .take(FOLD_AT)
            .copied()
            .collect()
    } else {
        machines.clone()
    };
    let total = shown.len();
    for (index, machine) in shown.iter().enumerate() {
        let last = index + 1 == total && !folded;
        machine_rows(seen, machine, below, last, rows);
    }
    if folded {
        let odd = machines.len() - well.len() - total;
        let text = match odd {
            0 => format!("{} machines, all ready", well.len()),
            odd => format!("{} machines ready, and {odd} more that are not", well.len()),
        };
        rows.push(row(
            &format!("{below}└─"),
            text,
            ("True".into(), "Ready".into(), String::new()),
            String::new(),
            "",
            "",
        ));
    }
}

fn machine_rows(
    seen: &Seen,
    machine: &Machine,
    below: &str,
    last: bool,
    rows: &mut Vec<Vec<String>>,
) {
    let (stem, deeper) = if last {
        ("└─", "  ")
    } else {
        ("├─", "│ ")
    };
    let version = machine.spec.version.clone().unwrap_or_default();
    let mut said = summary(machine, "Ready");
    let mut more = Vec::new();
    if let Some(deleting) = machine
        .condition_of("Deleting")
        .filter(|c| c.status == "True")
    {
        said.1.clone_from(&deleting.reason);
        let mut lines = deleting.message.lines();
        said.2 = lines.next().unwrap_or_default().to_owned();
        more = lines.map(str::to_owned).collect();
    } else {
        more.extend(size::mark(machine));
    }
    rows.push(row(
        &format!("{below}{stem}"),
        format!("Machine/{}", machine.name_any()),
        said,
        age(machine, seen.now),
        &zone(machine),
        &version,
    ));
    for line in more {
        let mut cells = vec![format!("{below}{deeper}")];
        cells.extend(std::iter::repeat_n(String::new(), 5));
        cells.push(line);
        rows.push(cells);
    }
    let node = machine
        .node_name()
        .map(|node| format!(" → Node/{node}"))
        .unwrap_or_default();
    let infra = format!("{}{node}", machine.spec.infrastructure_ref.kind);
    if !is_well(machine) || seen.machines.len() <= FOLD_AT {
        let healthy = summary(machine, "NodeHealthy");
        rows.push(row(
            &format!("{below}{deeper}└─"),
            infra,
            healthy,
            String::new(),
            "",
            "",
        ));
    }
}

fn is_well(machine: &Machine) -> bool {
    !machine.is_deleting() && machine.is_true("Ready")
}

fn zone(machine: &Machine) -> String {
    machine
        .status
        .as_ref()
        .and_then(|status| status.failure_domain.clone())
        .unwrap_or_default()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn row(
    stem: &str,
    name: String,
    said: (String, String, String),
    age: String,
    zone: &str,
    version: &str,
) -> Vec<String> {
    vec![
        format!("{stem}{name}"),
        said.0,
        said.1,
        age,
        zone.to_owned(),
        version.to_owned(),
        said.2,
    ]
}

fn summary(object: &impl Conditioned, type_: &str) -> (String, String, String) {
    let Some(Condition {
        status,
        reason,
        message,
        ..
    }) = object.condition_of(type_).cloned()
    else {
        return ("Unknown".to_owned(), String::new(), String::new());
    };
    let message = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    (status, reason, message)
}

fn age(object: &impl Resource, now: Timestamp) -> String {
    let Some(created) = &object.meta().creation_timestamp else {
        return String::new();
    };
    let seconds = now.duration_since(created.0).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The tree for programs.
pub fn value(seen: &Seen) -> Value {
    let machine = |machine: &Machine| {
        json!({
            "name": machine.name_any(),
            "ready": summary(machine, "Ready").0,
            "reason": summary(machine, "Ready").1,
            "message": summary(machine, "Ready").2,
            "deleting": machine.condition_of("Deleting").filter(|c| c.status == "True").map(|c| json!({"reason": c.reason, "message": c.message})),
            "phase": machine.status.as_ref().and_then(|status| status.phase),
            "zone": zone(machine),
            "version": machine.spec.version,
            "providerID": machine.spec.provider_id,
            "node": machine.node_name(),
            "infrastructure": machine.spec.infrastructure_ref,
        })
    };
    let pools: Vec<Value> = seen
        .pools
        .iter()
        .map(|pool| {
            let name = pool.name_any();
            let machines: Vec<Value> = seen
                .machines
                .iter()
                .filter(|m| {
                    m.owner_references()
                        .iter()
                        .any(|owner| owner.kind == "MachinePool" && owner.name == name)
                })
                .map(machine)
                .collect();
            json!({
                "name": name,
                "desired": pool.desired_replicas(),
                "ready": pool.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0),
                "phase": pool.status.as_ref().and_then(|status| status.phase),
                "conditions": pool.conditions(),
                "machines": machines,
            })
        })
        .collect();
    json!({
        "cluster": seen.cluster.as_ref().map(|cluster| json!({
            "name": cluster.name_any(),
            "phase": cluster.status.as_ref().and_then(|status| status.phase),
            "conditions": cluster.conditions(),
        })),
        "pools": pools,
    })
}

//! `muster delete machine`: just these.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::bail;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use muster_api::names::SizeOwner;
use muster_api::policy::Replacement;
use muster_api::reference::Conditioned;
use muster_api::{Machine, MachinePool, MachinePoolPolicy, names};
use muster_informers::Informer;
use serde_json::json;

use crate::cli::{Delete, DeleteMachine, DeleteWhat, Reach};
use crate::{kubeconfig, printer};

pub async fn run(reach: &Reach, args: Delete) -> anyhow::Result<ExitCode> {
    let DeleteWhat::Machine(args) = args.what;
    machines(reach, args).await
}

/// Checks that the machines' pools can shrink; what is worth knowing but no hindrance is said.
async fn may_shrink(client: &Client, namespace: &str, machines: &[Machine]) -> anyhow::Result<()> {
    let mut by_pool: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for machine in machines {
        let name = machine.name_any();
        if machine.is_deleting() {
            bail!(
                "machine {namespace}/{name} is being deleted already, and whether it is replaced was decided when that began; lower the size with `muster scale pool`"
            );
        }
        let Some(pool) = muster_api::owners::pool_of(machine) else {
            bail!("machine {namespace}/{name} belongs to no pool whose size could go down");
        };
        by_pool.entry(pool).or_default().push(name);
    }
    let pools: Api<MachinePool> = Api::namespaced(client.clone(), namespace);
    for (name, going) in by_pool {
        let Some(pool) = pools.get_opt(&name).await? else {
            continue;
        };
        if let Some(owner) = SizeOwner::name(&pool) {
            bail!(
                "the size of pool {namespace}/{name} belongs to {owner:?} (annotation {}); lower it there",
                names::REPLICAS_MANAGED_BY
            );
        }
        let after = usize::try_from(pool.desired_replicas())
            .unwrap_or(usize::MAX)
            .saturating_sub(going.len());
        if let Ok(Some(minimum)) = names::AUTOSCALER_MIN_SIZE.read(&pool)
            && u32::try_from(after).is_ok_and(|after| after < minimum)
        {
            printer::say(&format!(
                "warning: pool {name} goes to {after} machines, below the autoscaler's minimum of {minimum}; the autoscaler may raise it again"
            ));
        }
    }
    Ok(())
}

async fn machines(reach: &Reach, args: DeleteMachine) -> anyhow::Result<ExitCode> {
    let (client, namespace) = kubeconfig::client(reach).await?;
    let api: Api<Machine> = Api::namespaced(client.clone(), &namespace);
    let mut found = Vec::new();
    // All names are looked up first: a mistyped one deletes nothing.
    for name in &args.names {
        match api.get_opt(name).await? {
            Some(machine) => found.push(machine),
            None => bail!(
                "there is no machine {namespace}/{name}; `kubectl get machines -n {namespace}` lists them"
            ),
        }
    }
    if args.shrink {
        may_shrink(&client, &namespace, &found).await?;
    }
    for machine in &found {
        let name = machine.name_any();
        if args.dry_run {
            let fate = fate(&client, &namespace, machine, args.shrink).await?;
            printer::out(&would(machine, &fate))?;
            continue;
        }
        // The wish is written first, and read when the deletion starts; alone it does nothing.
        if args.shrink {
            let patch = json!({"metadata": {"uid": machine.uid(), "annotations": {names::REPLACEMENT.key(): "Shrink"}}});
            api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: machine.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        api.delete(&name, &params).await?;
        printer::out(&format!("machine {name} is being deleted"))?;
    }
    if args.wait && !args.dry_run {
        for machine in &found {
            wait(&api, machine).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What becomes of the pool's size when a machine is deleted, in words.
async fn fate(
    client: &Client,
    namespace: &str,
    machine: &Machine,
    shrink: bool,
) -> anyhow::Result<String> {
    let Some(pool) = muster_api::owners::pool_of(machine) else {
        return Ok("it belongs to no pool, so nothing replaces it".to_owned());
    };
    let own = names::REPLACEMENT.read(machine).ok().flatten();
    let (wish, whose) = match own {
        _ if shrink => (Replacement::Shrink, "--shrink".to_owned()),
        Some(own) => (own, format!("its annotation {}", names::REPLACEMENT)),
        None => {
            let policies: Api<MachinePoolPolicy> = Api::namespaced(client.clone(), namespace);
            let all = policies.list(&ListParams::default()).await?.items;
            // Where several name a pool, the oldest is the one that counts.
            let ours = all
                .into_iter()
                .filter(|policy| policy.spec.machine_pool_name == pool);
            let policy = ours.min_by_key(muster_caches::seniority);
            let wish = policy
                .as_ref()
                .and_then(|policy| policy.spec.machine_deletion);
            let whose = policy.map(|policy| format!("MachinePoolPolicy {}", policy.name_any()));
            (
                wish.map(|wish| wish.replacement).unwrap_or_default(),
                whose.unwrap_or_else(|| "the default".to_owned()),
            )
        }
    };
    Ok(match wish {
        Replacement::Replace => format!("pool {pool} replaces it (by {whose})"),
        Replacement::Shrink => format!("pool {pool} shrinks by one (by {whose})"),
    })
}

/// What would happen to a machine.
fn would(machine: &Machine, fate: &str) -> String {
    let node = machine.node_name();
    let node = node.map_or_else(String::new, |node| {
        format!(", Node {node} is drained first")
    });
    format!(
        "machine {} would be deleted{node}; {fate}",
        machine.name_any()
    )
}

/// Waits until a machine is gone, and says what its deletion waits for.
async fn wait(api: &Api<Machine>, machine: &Machine) -> anyhow::Result<()> {
    let name = machine.name_any();
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let machines = Informer::builder(api.clone()).config(only).start();
    machines.synced().await?;
    let mut changes = machines.subscribe();
    let mut told = String::new();
    let here = || {
        let found = machines.walk_all().into_iter().next();
        found.filter(|found| found.uid() == machine.uid())
    };
    while let Some(found) = here() {
        let text = found
            .condition_of("Deleting")
            .filter(|said| said.status == "True")
            .map(|said| {
                let last = said.message.lines().last().unwrap_or_default();
                format!("{}: {last}", said.reason)
            });
        if let Some(text) = text.filter(|text| *text != told) {
            printer::say(&format!("{name}: {text}"));
            told = text;
        }
        if changes.recv().await.is_none() {
            bail!(
                "the watch of machine {name} ended before the machine did; run the command again with --wait"
            );
        }
    }
    printer::out(&format!("machine {name} is gone"))
}

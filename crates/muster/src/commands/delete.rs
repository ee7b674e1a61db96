//! `muster delete machine`: just these.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use muster_api::names::SizeOwner;
use muster_api::reference::Conditioned;
use muster_api::{Machine, MachinePool, names};
use serde_json::json;

use crate::cli::{Delete, DeleteMachine, DeleteWhat};
use crate::{kubeconfig, printer};

pub async fn run(args: Delete) -> anyhow::Result<ExitCode> {
    let DeleteWhat::Machine(args) = args.what;
    machines(args).await
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

async fn machines(args: DeleteMachine) -> anyhow::Result<ExitCode> {
    let (client, namespace) = kubeconfig::client(&args.reach).await?;
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
            let node = machine
                .node_name()
                .map(|node| format!(", Node {node} is drained first"))
                .unwrap_or_default();
            printer::out(&format!(
                "machine {name} would be deleted{node}; its pool {}",
                if args.shrink {
                    "shrinks by one"
                } else {
                    "replaces it"
                }
            ))?;
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
            let name = machine.name_any();
            let uid = machine
                .uid()
                .ok_or_else(|| anyhow!("machine {name} has no uid"))?;
            let gone = await_condition(api.clone(), &name, conditions::is_deleted(&uid));
            let mut told = String::new();
            let mut gone = std::pin::pin!(gone);
            loop {
                let tick = tokio::time::sleep(std::time::Duration::from_secs(1));
                tokio::select! {
                    done = gone.as_mut() => {
                        done?;
                        break;
                    }
                    () = tick => {
                        let now = api.get_opt(&name).await?;
                        let text = now
                            .and_then(|m| m.condition_of("Deleting").map(|c| format!("{}: {}", c.reason, c.message.lines().last().unwrap_or_default())))
                            .unwrap_or_default();
                        if text != told {
                            printer::say(&format!("{name}: {text}"));
                            told = text;
                        }
                    }
                }
            }
            printer::out(&format!("machine {name} is gone"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

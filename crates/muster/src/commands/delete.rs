//! `muster delete machine`: just these.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use kube::api::DeleteParams;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt};
use muster_api::Machine;
use muster_api::reference::Conditioned;

use crate::cli::{Delete, DeleteMachine, DeleteWhat};
use crate::{kubeconfig, printer};

pub async fn run(args: Delete) -> anyhow::Result<ExitCode> {
    let DeleteWhat::Machine(args) = args.what;
    machines(args).await
}

async fn machines(args: DeleteMachine) -> anyhow::Result<ExitCode> {
    let (client, namespace) = kubeconfig::client(&args.reach).await?;
    let api: Api<Machine> = Api::namespaced(client, &namespace);
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
    for machine in &found {
        let name = machine.name_any();
        if args.dry_run {
            let node = machine
                .node_name()
                .map(|node| format!(", Node {node} is drained first"))
                .unwrap_or_default();
            printer::out(&format!(
                "machine {name} would be deleted{node}; its pool replaces it"
            ))?;
            continue;
        }
        api.delete(&name, &DeleteParams::default()).await?;
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

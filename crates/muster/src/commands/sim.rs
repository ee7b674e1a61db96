//! `muster sim`: the simulated cloud's console.

use std::process::ExitCode;

use anyhow::Context;
use kube::ResourceExt;
use muster_clock::Clock;
use muster_provider_sim::cloud::{self, types::CloudInstance};
use muster_provider_sim::console;
use serde_json::json;

use crate::cli::{Format, Reach, Sim, SimWhat};
use crate::{kubeconfig, printer};

pub async fn run(reach: &Reach, args: Sim) -> anyhow::Result<ExitCode> {
    let (client, namespace) = kubeconfig::sibling(reach, cloud::CLUSTER).await?;
    let now = Clock::system().now();
    let done = match args.what {
        SimWhat::List { output } => {
            list(output, &console::list(&client).await?)?;
            return Ok(ExitCode::SUCCESS);
        }
        SimWhat::Terminate { instance } => {
            console::terminate(&client, &instance, now).await?;
            format!("instance {instance} is being terminated")
        }
        SimWhat::Interrupt { instance, after } => {
            let span =
                jiff::SignedDuration::try_from(after.0).context("the duration is too long")?;
            console::interrupt(&client, &instance, span, now).await?;
            format!("instance {instance} is taken back in {after}")
        }
        SimWhat::FailNode { instance } => {
            console::fail_node(&client, &instance).await?;
            format!("the kubelet of instance {instance} has stopped")
        }
        SimWhat::Heal { instance } => {
            console::heal(&client, &instance).await?;
            format!("instance {instance} is healed")
        }
        SimWhat::Hang { instance } => {
            console::hang(&client, &instance).await?;
            format!("instance {instance} hangs")
        }
        SimWhat::Capacity {
            pool,
            zone,
            available,
        } => {
            console::capacity(&client, &namespace, &pool, &zone, available).await?;
            format!("zone {zone} has room for {available} instances of {pool}")
        }
    };
    printer::out(&done)?;
    Ok(ExitCode::SUCCESS)
}

fn state(instance: &CloudInstance) -> &'static str {
    match (instance.is_terminating(), instance.is_running()) {
        (true, _) => "Terminating",
        (false, true) => "Running",
        (false, false) => "Pending",
    }
}

fn faults(instance: &CloudInstance) -> String {
    let mut list = Vec::new();
    if instance.spec.failed {
        list.push("failed".to_owned());
    }
    if instance.spec.hung {
        list.push("hangs".to_owned());
    }
    if let Some(at) = &instance.spec.interruption {
        list.push(format!("taken back at {}", at.0));
    }
    list.join(", ")
}

fn list(output: Format, instances: &[CloudInstance]) -> anyhow::Result<()> {
    if output != Format::Table {
        let list: Vec<_> = instances
            .iter()
            .map(|instance| {
                json!({"id": instance.name_any(), "group": instance.group_key().to_string(), "zone": instance.spec.zone,
                    "state": state(instance), "providerID": instance.provider_id(), "launched": instance.spec.launched,
                    "faults": faults(instance)})
            })
            .collect();
        return printer::value(output, &json!(list));
    }
    let mut rows = vec![
        ["INSTANCE", "POOL", "ZONE", "STATE", "FAULTS"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for instance in instances {
        rows.push(vec![
            instance.name_any(),
            instance.group_key().to_string(),
            instance.spec.zone.clone(),
            state(instance).to_owned(),
            faults(instance),
        ]);
    }
    printer::out(&printer::columns(&rows))
}

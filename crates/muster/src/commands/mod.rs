//! One file per command.

mod delete;
mod describe;
mod scale;
mod sim;
mod up;

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::CommandFactory;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use muster_api::names;
use serde_json::json;

use crate::cli::{Cli, Command, Format, Kubeconfig, Reach, Version};
use crate::{kubeconfig, printer};

/// Carries a command out.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let reach = cli.reach;
    match cli.command {
        Command::Up(args) => up::run(args).await,
        Command::Describe(args) => describe::run(&reach, args).await,
        Command::Delete(args) => delete::run(&reach, args).await,
        Command::Scale(args) => scale::run(&reach, args).await,
        Command::Kubeconfig(args) => print_kubeconfig(&reach, args).await,
        Command::Sim(args) => sim::run(&reach, args).await,
        Command::Crds => crds(),
        Command::Version(args) => version(&args),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "muster", &mut script);
            printer::out(&String::from_utf8(script)?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn crds() -> anyhow::Result<ExitCode> {
    let documents: Vec<String> = muster_api::crds::all()
        .iter()
        .map(serde_saphyr::to_string)
        .collect::<Result<_, _>>()?;
    printer::out(&format!("---\n{}", documents.join("---\n")))?;
    Ok(ExitCode::SUCCESS)
}

fn version(args: &Version) -> anyhow::Result<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    match args.output {
        Format::Table => printer::out(&format!("muster {version}"))?,
        format => printer::value(
            format,
            &json!({"version": version, "contracts": ["v1beta1", "v1beta2"]}),
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn print_kubeconfig(reach: &Reach, args: Kubeconfig) -> anyhow::Result<ExitCode> {
    let (client, namespace) = kubeconfig::client(reach).await?;
    let name = names::kubeconfig_secret(&args.cluster);
    let secrets: Api<Secret> = Api::namespaced(client, &namespace);
    let secret = secrets
        .get_opt(&name)
        .await
        .with_context(|| format!("reading Secret {namespace}/{name}"))?;
    let text = secret
        .and_then(|secret| secret.data?.remove(names::SECRET_VALUE))
        .ok_or_else(|| anyhow!("cluster {namespace}/{} has no kubeconfig yet: there is no Secret {namespace}/{name}; `muster describe cluster {}` says what it waits for", args.cluster, args.cluster))?;
    printer::out(&String::from_utf8(text.0).context("the kubeconfig is not text")?)?;
    Ok(ExitCode::SUCCESS)
}

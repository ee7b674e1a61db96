//! `muster scale pool`: through the scale subresource, as `kubectl scale` does.

use std::process::ExitCode;

use anyhow::bail;
use kube::Api;
use kube::api::{Patch, PatchParams};
use muster_api::MachinePool;
use serde_json::json;

use crate::cli::{Scale, ScaleWhat};
use crate::{kubeconfig, printer};

pub async fn run(args: Scale) -> anyhow::Result<ExitCode> {
    let ScaleWhat::Pool(args) = args.what;
    let (client, namespace) = kubeconfig::client(&args.reach).await?;
    let pools: Api<MachinePool> = Api::namespaced(client, &namespace);
    let Some(pool) = pools.get_opt(&args.name).await? else {
        bail!(
            "there is no pool {namespace}/{}; `kubectl get machinepools -n {namespace}` lists them",
            args.name
        );
    };
    let before = pool.desired_replicas();
    if args.dry_run {
        printer::out(&format!(
            "pool {} would be scaled from {before} to {} machines",
            args.name, args.replicas
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let patch = json!({"spec": {"replicas": args.replicas}});
    pools
        .patch_scale(&args.name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    printer::out(&format!(
        "pool {} scaled from {before} to {} machines",
        args.name, args.replicas
    ))?;
    Ok(ExitCode::SUCCESS)
}

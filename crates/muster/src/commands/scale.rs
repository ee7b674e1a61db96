//! `muster scale pool`: through the scale subresource, as `kubectl scale` does.

use std::process::ExitCode;

use anyhow::bail;
use kube::Api;
use kube::api::{Patch, PatchParams};
use muster_api::MachinePool;
use serde_json::json;

use crate::cli::{Reach, Scale, ScaleWhat};
use crate::{kubeconfig, printer};

pub async fn run(reach: &Reach, args: Scale) -> anyhow::Result<ExitCode> {
    let ScaleWhat::Pool(args) = args.what;
    let (client, namespace) = kubeconfig::client(reach).await?;
    let pools: Api<MachinePool> = Api::namespaced(client, &namespace);
    let Some(pool) = pools.get_opt(&args.name).await? else {
        bail!(
            "there is no pool {namespace}/{}; `kubectl get machinepools -n {namespace}` lists them",
            args.name
        );
    };
    let before = pool.desired_replicas();
    let patch = json!({"spec": {"replicas": args.replicas}});
    // Also where it is only asked what would be done: the server may refuse it.
    let params = PatchParams {
        dry_run: args.dry_run,
        ..PatchParams::default()
    };
    pools
        .patch_scale(&args.name, &params, &Patch::Merge(patch))
        .await?;
    let done = if args.dry_run {
        "would be scaled"
    } else {
        "scaled"
    };
    printer::out(&format!(
        "pool {} {done} from {before} to {} machines",
        args.name, args.replicas
    ))?;
    Ok(ExitCode::SUCCESS)
}

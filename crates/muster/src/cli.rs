//! The command line as it is typed.

use std::path::PathBuf;

use crate::settings::SettingsArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Every instance of a machine pool as a Kubernetes Machine: seen, deleted, drained and scaled one by one.
#[derive(Debug, Parser)]
#[command(
    name = "muster",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// Which log lines go to standard error: error, warn, info, debug, trace, or as RUST_LOG has it.
    #[arg(long, global = true, default_value = "warn", value_name = "LEVEL")]
    pub log_level: String,
    /// Logs as JSON, one object a line.
    #[arg(long, global = true)]
    pub log_json: bool,
    /// How the cluster is reached.
    #[command(flatten)]
    pub reach: Reach,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How a cluster is reached, as kubectl has it.
#[derive(Clone, Debug, Default, Args)]
pub struct Reach {
    /// The kubeconfig; default KUBECONFIG, then that of a running `muster up`, then ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace; default the context's.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// In which form a reading command answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For programs.
    Yaml,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start everything in one process: management API, controllers, simulated cloud.
    Up(Up),
    /// Show a cluster or a pool as a tree: machines, nodes, readiness and reasons.
    Describe(Describe),
    /// Delete single machines; the pool replaces them, or shrinks by as many.
    Delete(Delete),
    /// Set the size of a pool.
    Scale(Scale),
    /// Print the kubeconfig of a workload cluster.
    Kubeconfig(Kubeconfig),
    /// The simulated cloud's console: what a cloud does behind our back.
    Sim(Sim),
    /// Print the CustomResourceDefinitions.
    Crds,
    /// Print the version.
    Version(Version),
    /// Print a completion script.
    Completion {
        /// For which shell.
        shell: Shell,
    },
}

/// Arguments of `up`.
#[derive(Debug, Args)]
pub struct Up {
    /// Where state is kept; default $XDG_DATA_HOME/muster. It survives kill -9.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Keep state in memory only.
    #[arg(long)]
    pub ephemeral: bool,
    /// Address to serve on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6440")]
    pub listen: String,
    /// Where the kubeconfig is written, once it can be used; default DIR/kubeconfig.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Manifests to apply; `-` is standard input. May be repeated.
    #[arg(short, long = "filename", value_name = "FILE")]
    pub filenames: Vec<PathBuf>,
    /// How the controllers behave.
    #[command(flatten)]
    pub settings: SettingsArgs,
}

/// Arguments of `describe`.
#[derive(Debug, Args)]
pub struct Describe {
    /// What to describe.
    #[command(subcommand)]
    pub what: DescribeWhat,
}

/// What `describe` describes.
#[derive(Debug, Subcommand)]
pub enum DescribeWhat {
    /// A cluster with its pools and machines.
    Cluster(Named),
    /// A pool with its machines.
    Pool(Named),
}

/// A name and how to show it.
#[derive(Debug, Args)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Go on and show every change.
    #[arg(short, long)]
    pub watch: bool,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// Arguments of `delete`.
#[derive(Debug, Args)]
pub struct Delete {
    /// What to delete.
    #[command(subcommand)]
    pub what: DeleteWhat,
}

/// What `delete` deletes.
#[derive(Debug, Subcommand)]
pub enum DeleteWhat {
    /// Single machines of pools.
    Machine(DeleteMachine),
}

/// Arguments of `delete machine`.
#[derive(Debug, Args)]
pub struct DeleteMachine {
    /// Names of the machines.
    #[arg(required = true)]
    pub names: Vec<String>,
    /// Do not replace them: the size of their pool goes down by as many.
    #[arg(long)]
    pub shrink: bool,
    /// Wait until they are gone.
    #[arg(long)]
    pub wait: bool,
    /// Only say what would be deleted.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `scale`.
#[derive(Debug, Args)]
pub struct Scale {
    /// What to scale.
    #[command(subcommand)]
    pub what: ScaleWhat,
}

/// What `scale` scales.
#[derive(Debug, Subcommand)]
pub enum ScaleWhat {
    /// A pool.
    Pool(ScalePool),
}

/// Arguments of `scale pool`.
#[derive(Debug, Args)]
pub struct ScalePool {
    /// Its name.
    pub name: String,
    /// The size.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub replicas: u32,
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `kubeconfig`.
#[derive(Debug, Args)]
pub struct Kubeconfig {
    /// The cluster.
    pub cluster: String,
}

/// Arguments of `version`.
#[derive(Debug, Args)]
pub struct Version {
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// Arguments of `sim`.
#[derive(Debug, Args)]
pub struct Sim {
    /// What to do.
    #[command(subcommand)]
    pub what: SimWhat,
}

/// What `sim` does.
#[derive(Debug, Subcommand)]
pub enum SimWhat {
    /// Show all instances.
    List {
        /// Form of the answer.
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Terminate an instance, as somebody at the cloud's console would.
    Terminate {
        /// Its ID.
        instance: String,
    },
    /// Announce that an instance is taken back.
    Interrupt {
        /// Its ID.
        instance: String,
        /// After how long, such as 2m.
        #[arg(long, value_name = "DURATION")]
        after: muster_api::sim::SimDuration,
    },
    /// Stop the kubelet of an instance.
    FailNode {
        /// Its ID.
        instance: String,
    },
    /// End failures and hangs of an instance.
    Heal {
        /// Its ID.
        instance: String,
    },
    /// Let what an instance is doing never end.
    Hang {
        /// Its ID.
        instance: String,
    },
    /// Set how many instances of a pool a zone has room for.
    Capacity {
        /// The SimMachinePool.
        pool: String,
        /// The zone.
        #[arg(long)]
        zone: String,
        /// How many instances.
        #[arg(long, value_name = "N")]
        available: u32,
    },
}

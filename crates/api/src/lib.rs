//! Resource types: Cluster API's kinds for pools and machines at `v1beta2`, and Muster's own.
//!
//! Types only: no I/O, no clock. Fields and bounds of Cluster API's kinds are Cluster API's; what Muster adds lives in
//! kinds of its own (`sim`, `aws`, `policy`).

pub mod aws;
pub mod cluster;
pub mod conditions;
pub mod contract;
pub mod crds;
pub mod drain_rule;
pub mod health_check;
pub mod keys;
pub mod machine;
pub mod names;
pub mod owners;
pub mod policy;
pub mod pool;
pub mod provider_id;
pub mod reference;
mod schema;
pub mod sim;

pub use aws::{ASGCluster, ASGMachine, ASGMachinePool};
pub use cluster::Cluster;
pub use drain_rule::MachineDrainRule;
pub use health_check::MachineHealthCheck;
pub use machine::Machine;
pub use policy::MachinePoolPolicy;
pub use pool::MachinePool;
pub use sim::{SimCluster, SimMachine, SimMachinePool};

/// API group of Cluster API's core kinds.
pub const CORE_GROUP: &str = "cluster.x-k8s.io";
/// API group of infrastructure kinds.
pub const INFRASTRUCTURE_GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// API group of what Muster adds.
pub const MUSTER_GROUP: &str = "muster.dev";

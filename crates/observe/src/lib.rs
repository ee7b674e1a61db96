//! From API objects to what `plan` decides about.
//!
//! The reconcilers look through indexed caches, the command line through lists; both see the same, for both come through
//! [`View`] and the functions here. So what `muster plan` says is decided from is what is then decided from.
//!
//! - [`view`]: what is looked up in a workload cluster, and which clusters can be looked into.
//! - [`drain`]: Pods and MachineDrainRules as a drain sees them.
//! - [`load`]: what on a Node would have to move, and the budgets that have a say.
//! - [`volumes`]: attached volumes, and where volumes let Pods run.
//! - [`rollout`]: a pool's policy and Machines as a rollout takes them.
//! - [`health`]: MachineHealthChecks and Machines as verdicts of health see them.
//! - [`machine`]: Machines as members of a pool, and what holds their deletion.

pub mod drain;
pub mod health;
pub mod load;
pub mod machine;
pub mod rollout;
pub mod view;
pub mod volumes;

pub use view::{Clusters, View};

//! What a provider of machine pools is: [`ScaleGroup`], the one trait to implement, and the reconciler that is generic
//! over it.
//!
//! - [`scale_group`]: the trait, its facts and its errors.
//! - [`pool`]: keeps a scale group at its pool's size, one InfraMachine per instance, and terminates exactly the
//!   instances whose Machines have gone.
//! - [`sizes`]: a pool's size and which Machines' going it follows, written as one.
//! - [`workload`]: how a workload cluster's kubeconfig becomes a client.
//! - [`events`]: Events that say why something was done.
//! - [`deletion`]: the deletion of a Machine that was decided on.
//! - [`conformance`]: what the reconciler relies on in any provider, as checks for its tests.

pub mod conformance;
pub mod deletion;
pub mod events;
pub mod pool;
pub mod scale_group;
pub mod sizes;
pub mod workload;

pub use scale_group::{
    Group, GroupSpec, Instance, InstanceState, NodeShape, ProviderError, ScaleGroup, Size,
};

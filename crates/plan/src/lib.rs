//! Decisions: from a snapshot to what is to be done and why.
//!
//! Everything here is a plain function. No clock, no client, no randomness but what is given; so a preview costs
//! nothing, and every rule can be tested without a cluster.

pub mod allowance;
pub mod disruption;
pub mod drain;
pub mod health;
pub mod machine;
pub mod marks;
pub mod policy;
pub mod pool;
pub mod repair;
pub mod rollout;
pub mod share;
pub mod size;
pub mod turns;
pub mod volumes;

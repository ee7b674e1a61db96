//! The strategies of the built-in kinds, one file per subject.

pub mod namespace;
pub mod node;
pub mod plain_kinds;
pub mod pod;
pub mod pod_spec;
pub mod secret;
pub mod volumes;
pub mod workloads;

//! An embedded Kubernetes API server, as a library.
//!
//! A [`Host`] serves any number of logical clusters over one durable store. Each has the API of a real cluster: a
//! `kube::Client` reaches it in process, and serving opens it to the network under
//! `/clusters/<name>` (the default one also at `/`).
//!
//! Rooms, from the bottom up:
//! - `storage`: objects by key, revisions, durable commits, watches. Knows no kinds.
//! - `machinery`: pure functions on JSON values: schemas, patches, server-side apply, selectors. Knows no storage.
//! - `registry`: the kinds a logical cluster serves, built in or from CustomResourceDefinitions, with their strategies.
//! - `write`: create, update, patch, delete and the subresources, on top of the three above.
//! - `collect`: garbage collection by owner references and namespace deletion.
//! - `rest`: routes, negotiation, discovery, OpenAPI, tables, watch streams, who may do what.
//! - `tls`: certificates, kubeconfigs, the listener.
//!
//! Knows nothing of Cluster API.

pub mod collect;
pub mod failure;
mod host;
pub mod machinery;
pub mod registry;
mod rest;
pub mod storage;
pub mod tls;
pub mod write;

pub use host::{Host, LogicalCluster, Persistence, RequestCounts};
pub use rest::access::{Identity, Role};
pub use storage::OpenError;

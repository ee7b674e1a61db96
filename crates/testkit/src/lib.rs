//! Worlds for tests and benchmarks.
//!
//! - [`autoscaler`]: what Cluster Autoscaler asks of the two APIs, request by request.
//! - [`control_plane`]: a real Kubernetes API server.
//! - [`fault`]: a process that dies at a chosen write.
//! - [`outage`]: workload clusters that cannot be reached.
//! - [`process`]: the real binary as a child process, and `kubectl` against it.
//! - [`scripted`]: providers that a test plays.
//! - [`world`]: a whole world in one process, in virtual time.
//! - [`witness`]: watches a workload cluster from outside and says whether a budget was ever broken.

pub mod autoscaler;
pub mod control_plane;
pub mod fault;
pub mod outage;
pub mod process;
pub mod scripted;
pub mod witness;
pub mod world;

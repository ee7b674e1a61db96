//! Watch caches with indexes, and the work queue that reconcilers run on.
//!
//! An [`Informer`] mirrors one kind from a Kubernetes API into memory and keeps any number of indexes over it, so that a
//! reconciler looks objects up by what it needs (provider ID, pool, node, owner) and never lists. Changes are handed to
//! subscribers as `(old, new)` pairs, from which a reconciler derives the keys to put on its [`Queue`].
//!
//! A writer hands what the API answered to [`Informer::absorb`], so that its next decision is made on a view that is at
//! least as new as its own writes.
//!
//! Knows nothing of any particular kind.

mod informer;
mod queue;

pub use informer::{Builder, Change, Index, Informer, Key, SyncError};
pub use queue::{Backoff, Options, Queue, Requeue};

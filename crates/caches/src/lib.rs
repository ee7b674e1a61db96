//! Watch caches of the management kinds, with the indexes that reconcilers look things up by.

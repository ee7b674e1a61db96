//! Stories of sick machines, in virtual time.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

mod checks;
mod outside;
mod stopped;
mod support;
mod whose;

//! The life of Machines and pools in every case that was written down, in virtual time.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and says where"
)]

mod cascade;
mod drain;
mod ends;
mod hooks;
mod loss;
mod many;
mod nodes;
mod pause;
mod rules;
mod strangers;
mod support;
mod upstream;
mod volumes;
mod writes;

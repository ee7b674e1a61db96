//! A pool's policy and Machines as a rollout takes them.

mod member;
mod pods;
mod rules;

pub use member::{Judged, STARTUP, judge, said, startup, told};
pub use pods::OnNodes;
pub use rules::{InvalidField, Rules, rules, too_new};

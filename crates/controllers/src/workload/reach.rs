//! Whether the API of a workload cluster answers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;

/// How often a cluster is asked.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// After how many questions without answer a cluster counts as lost: one may be lost by chance.
const LOST_AFTER: u32 = 2;

/// What the last answers were.
#[derive(Debug, Default)]
pub(super) struct Reachability(Mutex<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    unanswered: u32,
    since: Option<Timestamp>,
}

/// Whether something changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing did.
    None,
    /// It does not answer any more.
    Lost,
    /// It answers again.
    Back,
}

impl Reachability {
    /// Since when there was no answer, once it counts as lost.
    pub(super) fn lost(&self) -> Option<Timestamp> {
        let state = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.since.filter(|_| state.unanswered >= LOST_AFTER)
    }

    /// Notes an answer, or that there was none.
    pub(super) fn note(&self, answered: bool, now: Timestamp) -> News {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let was_lost = state.unanswered >= LOST_AFTER;
        if answered {
            *state = State::default();
            return if was_lost { News::Back } else { News::None };
        }
        state.unanswered = state.unanswered.saturating_add(1);
        state.since.get_or_insert(now);
        if !was_lost && state.unanswered >= LOST_AFTER {
            News::Lost
        } else {
            News::None
        }
    }
}

/// Whether a cluster answers. That it refuses what is asked is an answer too.
pub(super) async fn answers(client: &Client) -> bool {
    let answer = tokio::time::timeout(PATIENCE, client.apiserver_version()).await;
    matches!(answer, Ok(Ok(_) | Err(kube::Error::Api(_))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_question_without_answer_is_no_outage_and_an_answer_ends_one() {
        let reach = Reachability::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(reach.note(false, at(10)), News::None);
        assert_eq!(reach.lost(), None);
        assert_eq!(reach.note(false, at(20)), News::Lost);
        assert_eq!(reach.note(false, at(30)), News::None);
        assert_eq!(reach.lost(), Some(at(10)));
        assert_eq!(reach.note(true, at(40)), News::Back);
        assert_eq!(reach.lost(), None);
        assert_eq!(reach.note(true, at(50)), News::None);
    }
}

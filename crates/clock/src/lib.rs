//! Where Muster reads the time.
//!
//! A [`Clock`] is made once, at start, and handed down; nothing else in the workspace asks the system for the time
//! (`clippy.toml` holds that). A clock made by [`Clock::following_tokio`] moves with tokio's timer, so that a test with
//! a paused runtime lives through an hour in milliseconds and every timestamp agrees with every timer.

use jiff::Timestamp;

/// A source of the current time; cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Tokio {
        epoch: Timestamp,
        started: tokio::time::Instant,
    },
}

impl Clock {
    /// The system's wall clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that reads `epoch` now and from then on advances with tokio's timer, virtual or not.
    pub fn following_tokio(epoch: Timestamp) -> Self {
        Self(Source::Tokio {
            epoch,
            started: tokio::time::Instant::now(),
        })
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            #[expect(
                clippy::disallowed_methods,
                reason = "the one place where the wall clock is read"
            )]
            Source::System => Timestamp::now(),
            Source::Tokio { epoch, started } => {
                let elapsed = jiff::SignedDuration::try_from(started.elapsed())
                    .unwrap_or(jiff::SignedDuration::MAX);
                epoch.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn virtual_time_moves_only_when_the_timer_does() {
        let clock = Clock::following_tokio(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(clock.now().as_second(), 3600);
    }
}

//! Which of several processes leads, by a Lease, as Kubernetes' own components decide it.
//!
//! A holder renews its Lease; whoever sees it unrenewed for the time that it states, by the seer's own timer and never by
//! comparing clocks, may take it. Every write carries the resourceVersion that was read, so two never win at once. A
//! holder that could not renew for [`Timing::renew_within`] gives up while nobody else may yet have taken over: the
//! difference between that and [`Timing::lease`] is the time that its last requests have to end.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use muster_clock::Clock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The times of an election; the first is to be longer than the second, and that longer than the third.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long after its last renewal a Lease may be taken by somebody else.
    pub lease: Duration,
    /// How long a holder goes on without having renewed.
    pub renew_within: Duration,
    /// How long between tries to take or to renew.
    pub retry: Duration,
}

impl Default for Timing {
    /// What controllers commonly take.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_within: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// A candidate.
#[derive(Clone)]
pub struct Candidate {
    /// A client that waits behind no other requests.
    pub client: Client,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who this is; no two processes ever have the same.
    pub identity: String,
    /// The times.
    pub timing: Timing,
    /// For what the Lease says to people; nothing is decided by it.
    pub clock: Clock,
}

/// A Lease that is held.
pub struct Leadership {
    candidate: Candidate,
    lost: CancellationToken,
    renewal: AbortOnDropHandle<()>,
}

/// A Lease as it was seen, and since when it has not changed.
struct Observed {
    lease: Lease,
    since: Instant,
}

impl Candidate {
    /// Waits until this candidate leads; nothing when `stop` comes first.
    pub async fn campaign(self, stop: &CancellationToken) -> Option<Leadership> {
        let mut observed = None;
        loop {
            let asked = Instant::now();
            let tried = tokio::select! {
                tried = self.within(self.acquire(&mut observed)) => tried,
                () = stop.cancelled() => return None,
            };
            match tried {
                Ok(Some(lease)) => return Some(Leadership::hold(self, lease, asked)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(lease = self.name, %error, "the Lease cannot be asked for");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(self.timing.retry) => {}
                () = stop.cancelled() => return None,
            }
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A request that does not end in time failed.
    async fn within<T>(
        &self,
        asked: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, String> {
        match tokio::time::timeout(self.timing.renew_within, asked).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {:?}", self.timing.renew_within)),
        }
    }

    /// One try; nothing when somebody else holds the Lease, or was quicker.
    async fn acquire(&self, observed: &mut Option<Observed>) -> Result<Option<Lease>, kube::Error> {
        let leases = self.leases();
        let Some(current) = leases.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    namespace: Some(self.namespace.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.spec(None)),
            };
            return raced(leases.create(&PostParams::default(), &lease).await);
        };
        let seen = match observed {
            Some(seen)
                if seen.lease.metadata.resource_version == current.metadata.resource_version =>
            {
                seen
            }
            _ => observed.insert(Observed {
                lease: current,
                since: Instant::now(),
            }),
        };
        let spec = seen.lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let free = holder.is_empty() || holder == self.identity;
        if !free && seen.since.elapsed() < duration(&spec) {
            return Ok(None);
        }
        let mut lease = seen.lease.clone();
        lease.spec = Some(self.spec(Some(&spec)));
        raced(
            leases
                .replace(&self.name, &PostParams::default(), &lease)
                .await,
        )
    }

    /// The Lease's spec once this candidate holds it.
    fn spec(&self, former: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(self.clock.now());
        let same = former.filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity));
        let transitions = former
            .and_then(|spec| spec.lease_transitions)
            .unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(whole_seconds(self.timing.lease)),
            acquire_time: same
                .and_then(|spec| spec.acquire_time.clone())
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(match (former, same) {
                (Some(_), None) => transitions.saturating_add(1),
                _ => transitions,
            }),
            ..LeaseSpec::default()
        }
    }
}

impl Leadership {
    /// Holds a Lease that was asked for at `asked`.
    fn hold(candidate: Candidate, lease: Lease, asked: Instant) -> Self {
        let lost = CancellationToken::new();
        let renewal = tokio::spawn(renew(candidate.clone(), lease, asked, lost.clone()));
        Self {
            candidate,
            lost,
            renewal: AbortOnDropHandle::new(renewal),
        }
    }

    /// Ends when this process leads no longer. Whatever a leader does is to stop at once then.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Whether this process leads.
    pub fn holds(&self) -> bool {
        !self.lost.is_cancelled()
    }

    /// Gives the Lease back, so that another may take it at once. Everything that a leader does must have ended.
    ///
    /// # Errors
    /// When the API refuses or does not answer; the Lease then runs out by itself.
    pub async fn release(self) -> Result<(), String> {
        let held = self.holds();
        self.renewal.abort();
        // What the renewal was at may still arrive; a Lease that is read afterwards is the one to give back.
        let _ = self.renewal.await;
        if !held {
            return Ok(());
        }
        let candidate = &self.candidate;
        candidate
            .within(async {
                let leases = candidate.leases();
                let Some(mut lease) = leases.get_opt(&candidate.name).await? else {
                    return Ok(());
                };
                let spec = lease.spec.get_or_insert_default();
                if spec.holder_identity.as_ref() != Some(&candidate.identity) {
                    return Ok(());
                }
                spec.holder_identity = None;
                spec.lease_duration_seconds = Some(1);
                leases
                    .replace(&candidate.name, &PostParams::default(), &lease)
                    .await
                    .map(|_| ())
            })
            .await
    }
}

/// Renews a Lease again and again, until that did not succeed for too long or somebody else has it.
async fn renew(
    candidate: Candidate,
    mut lease: Lease,
    mut renewed: Instant,
    lost: CancellationToken,
) {
    let _ends = lost.drop_guard();
    let leases = candidate.leases();
    loop {
        tokio::time::sleep(candidate.timing.retry).await;
        let end = renewed + candidate.timing.renew_within;
        let asked = Instant::now();
        let mut next = lease.clone();
        next.spec = Some(candidate.spec(lease.spec.as_ref()));
        let params = PostParams::default();
        let answer =
            tokio::time::timeout_at(end, leases.replace(&candidate.name, &params, &next)).await;
        match answer {
            Ok(Ok(written)) => {
                lease = written;
                renewed = asked;
                continue;
            }
            Ok(Err(error)) => {
                tracing::warn!(lease = candidate.name, %error, "the Lease was not renewed");
                // A write whose answer was lost, or somebody's hand: what is there now decides.
                let now = tokio::time::timeout_at(end, leases.get_opt(&candidate.name)).await;
                if let Ok(Ok(Some(current))) = now {
                    let holder = current
                        .spec
                        .as_ref()
                        .and_then(|s| s.holder_identity.as_ref());
                    if holder != Some(&candidate.identity) {
                        tracing::error!(lease = candidate.name, ?holder, "somebody else leads");
                        return;
                    }
                    lease = current;
                }
            }
            Err(_) => {}
        }
        if Instant::now() >= end {
            tracing::error!(
                lease = candidate.name,
                "the Lease was not renewed within {:?}",
                candidate.timing.renew_within
            );
            return;
        }
    }
}

/// What was written; nothing when somebody else was quicker.
fn raced(written: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
    match written {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn duration(spec: &LeaseSpec) -> Duration {
    let seconds = spec.lease_duration_seconds.unwrap_or_default();
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// Rounded up: what others wait for is never shorter than what the holder counts on.
fn whole_seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;

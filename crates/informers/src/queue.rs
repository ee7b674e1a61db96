//! The work queue: keys to reconcile, each once however often it was added, never two workers on one key.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What is to happen with a key after a pass that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Nothing until it is added again.
    Never,
    /// Another pass after this time, or sooner when it is added.
    After(Duration),
}

/// Delays between passes of a key that fails: `first`, doubled with each failure, at most `most`.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// The upper limit.
    pub most: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(50),
            most: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    fn delay(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        self.first.saturating_mul(1 << doublings).min(self.most)
    }
}

/// How a [`Queue`] is worked off.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Name of the reconciler, for logs.
    pub name: &'static str,
    /// How many keys are worked on at once.
    pub concurrency: usize,
    /// How long a key rests after it was added, so that a burst of events costs one pass.
    pub coalesce: Duration,
    /// Delays after failures.
    pub backoff: Backoff,
}

impl Options {
    /// Sixteen workers, ten milliseconds of rest, default back-off.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            concurrency: 16,
            coalesce: Duration::from_millis(10),
            backoff: Backoff::default(),
        }
    }
}

/// Keys that wait for a pass; cheap to clone.
pub struct Queue<K>(Arc<Inner<K>>);

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State {
                heap: BinaryHeap::new(),
                due: HashMap::new(),
                running: HashSet::new(),
                failures: HashMap::new(),
                added: 0,
            }),
            wake: Notify::new(),
        }))
    }
}

struct Inner<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

struct Entry<K> {
    at: Instant,
    order: u64,
    key: K,
}

impl<K> PartialEq for Entry<K> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl<K> Eq for Entry<K> {}
impl<K> PartialOrd for Entry<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for Entry<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

struct State<K> {
    heap: BinaryHeap<Reverse<Entry<K>>>,
    /// When each waiting key is due; a heap entry with another time is stale.
    due: HashMap<K, Instant>,
    running: HashSet<K>,
    failures: HashMap<K, u32>,
    added: u64,
}

enum Next<K> {
    Run(K),
    WaitUntil(Instant),
    Idle,
}

impl<K: Clone + Eq + Hash> State<K> {
    fn schedule(&mut self, key: K, at: Instant) {
        if self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        self.due.insert(key.clone(), at);
        self.added += 1;
        let order = self.added;
        self.heap.push(Reverse(Entry { at, order, key }));
    }

    fn next(&mut self, now: Instant) -> Next<K> {
        let mut held_back = Vec::new();
        let next = loop {
            let Some(Reverse(entry)) = self.heap.pop() else {
                break Next::Idle;
            };
            if self.due.get(&entry.key) != Some(&entry.at) {
                continue;
            }
            if entry.at > now {
                let at = entry.at;
                self.heap.push(Reverse(entry));
                break Next::WaitUntil(at);
            }
            if self.running.contains(&entry.key) {
                held_back.push(Reverse(entry));
                continue;
            }
            self.due.remove(&entry.key);
            self.running.insert(entry.key.clone());
            break Next::Run(entry.key);
        };
        self.heap.extend(held_back);
        next
    }
}

impl<K> Queue<K>
where
    K: Clone + Eq + Hash + Debug + Send + Sync + 'static,
{
    /// Asks for a pass on `key` as soon as possible.
    pub fn add(&self, key: K) {
        self.add_after(key, Duration::ZERO);
    }

    /// Asks for a pass on `key` after `delay`, or sooner when it waits already for an earlier time.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.lock().schedule(key, Instant::now() + delay);
        self.0.wake.notify_one();
    }

    /// Whether both are handles of one queue.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// How many keys wait or are worked on.
    pub fn depth(&self) -> usize {
        let state = self.lock();
        state.due.len() + state.running.len()
    }

    /// Works keys off until `stop`, then waits for the passes under way.
    ///
    /// A pass that fails is tried again with back-off; one that panics counts as failed.
    pub async fn run<F, Fut, E>(&self, options: Options, stop: CancellationToken, reconcile: F)
    where
        F: Fn(K) -> Fut,
        Fut: Future<Output = Result<Requeue, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let mut workers: JoinSet<Result<Requeue, String>> = JoinSet::new();
        let mut keys: HashMap<tokio::task::Id, K> = HashMap::new();
        loop {
            let mut wait_until = None;
            while workers.len() < options.concurrency && !stop.is_cancelled() {
                // Keys that were added rest for the coalescing time, so what is due is what was due that long ago.
                let now = Instant::now();
                let seen = now.checked_sub(options.coalesce).unwrap_or(now);
                let next = self.lock().next(seen);
                match next {
                    Next::Run(key) => {
                        let pass = reconcile(key.clone());
                        let handle = workers
                            .spawn(async move { pass.await.map_err(|error| error.to_string()) });
                        keys.insert(handle.id(), key);
                    }
                    Next::WaitUntil(at) => {
                        wait_until = Some(at + options.coalesce);
                        break;
                    }
                    Next::Idle => break,
                }
            }
            if stop.is_cancelled() && workers.is_empty() {
                return;
            }
            let timer = async {
                match wait_until {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(done) = workers.join_next_with_id() => {
                    let (id, outcome) = match done {
                        Ok((id, outcome)) => (id, outcome),
                        Err(error) => (error.id(), Err(format!("the pass ended abnormally: {error}"))),
                    };
                    if let Some(key) = keys.remove(&id) {
                        self.finish(key, outcome, options);
                    }
                }
                () = self.0.wake.notified() => {}
                () = timer => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }

    fn finish(&self, key: K, outcome: Result<Requeue, String>, options: Options) {
        let mut state = self.lock();
        state.running.remove(&key);
        match outcome {
            Ok(requeue) => {
                state.failures.remove(&key);
                if let Requeue::After(delay) = requeue {
                    state.schedule(key, Instant::now() + delay);
                }
            }
            Err(error) => {
                let failures = state.failures.entry(key.clone()).or_default();
                *failures += 1;
                let delay = options.backoff.delay(*failures);
                tracing::warn!(controller = options.name, key = ?key, %error, retry_in = ?delay, "pass failed");
                state.schedule(key, Instant::now() + delay);
            }
        }
    }

    // No code that runs under the lock can panic half-way through an update.
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn spawn<F, Fut, E>(queue: &Queue<u32>, stop: &CancellationToken, pass: F)
    where
        F: Fn(u32) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Requeue, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let (queue, stop) = (queue.clone(), stop.clone());
        tokio::spawn(async move { queue.run(Options::new("test"), stop, pass).await });
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_on_one_key_costs_one_pass() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        let passes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&passes);
        spawn(&queue, &stop, move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Infallible>(Requeue::Never) }
        });
        for _ in 0..100 {
            queue.add(7);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(passes.load(Ordering::SeqCst), 1);
        assert_eq!(queue.depth(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_never_in_two_hands_and_what_comes_meanwhile_is_not_lost() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        let (passes, inside) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, busy) = (Arc::clone(&passes), Arc::clone(&inside));
        spawn(&queue, &stop, move |_| {
            let (count, busy) = (Arc::clone(&count), Arc::clone(&busy));
            async move {
                assert_eq!(busy.fetch_add(1, Ordering::SeqCst), 0);
                tokio::time::sleep(Duration::from_secs(5)).await;
                busy.fetch_sub(1, Ordering::SeqCst);
                count.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Infallible>(Requeue::Never)
            }
        });
        queue.add(7);
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.add(7);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(passes.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_tried_again_ever_more_rarely() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        let passes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&passes);
        spawn(&queue, &stop, move |_| {
            let pass = count.fetch_add(1, Ordering::SeqCst);
            async move {
                if pass < 3 {
                    Err("not yet")
                } else {
                    Ok(Requeue::Never)
                }
            }
        });
        queue.add(7);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(passes.load(Ordering::SeqCst), 2);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(passes.load(Ordering::SeqCst), 4);
        assert_eq!(queue.depth(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_wish_does_not_delay_an_earlier_one() {
        let (queue, stop) = (Queue::default(), CancellationToken::new());
        let passes = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&passes);
        spawn(&queue, &stop, move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Infallible>(Requeue::Never) }
        });
        queue.add_after(7, Duration::from_secs(10));
        queue.add_after(7, Duration::from_secs(3600));
        queue.add_after(7, Duration::from_secs(1));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(passes.load(Ordering::SeqCst), 1);
    }
}

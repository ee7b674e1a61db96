//! A client that dies: it stands between a process and its API, and at a chosen write the process is no more. Until then it
//! can have the API fail for some paths.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio_util::sync::CancellationToken;

/// On which side of a write a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The write never reaches the API.
    Before,
    /// The write is done, and nobody hears the answer.
    After,
}

/// The fate of one process; cheap to clone.
#[derive(Clone, Default)]
pub struct Fate(Arc<Inner>);

#[derive(Default)]
struct Inner {
    planned: Mutex<Option<(usize, Side)>>,
    writes: AtomicUsize,
    dead: AtomicBool,
    death: CancellationToken,
    /// Parts of paths for which the API answers 500.
    failing: Mutex<Vec<String>>,
}

impl Fate {
    /// From now on, the process dies at that write, counted from 0.
    pub fn dies_at(&self, write: usize, side: Side) {
        let mut planned = self
            .0
            .planned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.0.writes.store(0, Ordering::SeqCst);
        *planned = Some((write, side));
    }

    /// How many writes there were since the plan was made.
    pub fn writes(&self) -> usize {
        self.0.writes.load(Ordering::SeqCst)
    }

    /// Whether it has died.
    pub fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::SeqCst)
    }

    /// It dies now.
    pub fn die(&self) {
        self.0.dead.store(true, Ordering::SeqCst);
        self.0.death.cancel();
    }

    /// Returns once it has died.
    pub async fn death(&self) {
        self.0.death.cancelled().await;
    }

    /// From now on the API answers 500 to requests whose path has one of these parts in it.
    pub fn fails_for(&self, parts: &[&str]) {
        let mut failing = self
            .0
            .failing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *failing = parts.iter().map(|part| (*part).to_owned()).collect();
    }

    fn fails(&self, path: &str) -> bool {
        let failing = self
            .0
            .failing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        failing.iter().any(|part| path.contains(part.as_str()))
    }

    fn at_write(&self) -> Option<Side> {
        let planned = self
            .0
            .planned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let number = self.0.writes.fetch_add(1, Ordering::SeqCst);
        planned
            .filter(|(write, _)| *write == number)
            .map(|(_, side)| side)
    }

    /// A client that shares this fate.
    pub fn client(&self, inner: &Client) -> Client {
        let (fate, inner) = (self.clone(), inner.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (fate, inner) = (fate.clone(), inner.clone());
            async move { fate.carry(&inner, request).await }
        });
        Client::new(service, "default")
    }

    async fn carry(
        &self,
        inner: &Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let writes = *request.method() != Method::GET;
        if self.is_dead() {
            return never().await;
        }
        if self.fails(request.uri().path()) {
            let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                "reason": "InternalError", "message": "as the test wants it"});
            let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
            *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            return Ok(answer);
        }
        match writes.then(|| self.at_write()).flatten() {
            None => inner.send(request).await,
            Some(side) => {
                if side == Side::After {
                    // Whether it succeeded is for the world to see.
                    let _ = inner.send(request).await;
                }
                self.die();
                never().await
            }
        }
    }
}

/// What a dead process awaits.
async fn never<T>() -> Result<T, kube::Error> {
    match std::future::pending::<Infallible>().await {}
}

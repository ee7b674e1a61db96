//! Workload clusters whose API cannot be reached: refused, or worse, silent.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use kube::Client;
use kube::client::Body;
use kube::config::Kubeconfig;
use muster_provider::workload::{ConnectError, Connector};
use tokio::sync::watch;

/// How an API can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// It answers.
    #[default]
    Answers,
    /// It refuses connections; what was under way hangs.
    Refuses,
    /// It takes requests and never answers.
    Silent,
}

/// The reach of every workload cluster; cheap to clone.
#[derive(Clone, Default)]
pub struct Reaches(Arc<Mutex<HashMap<String, watch::Sender<Reach>>>>);

impl Reaches {
    /// From now on a cluster, by its logical name, is reached so.
    pub fn set(&self, logical: &str, reach: Reach) {
        self.of(logical).send_replace(reach);
    }

    fn of(&self, logical: &str) -> watch::Sender<Reach> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.entry(logical.to_owned())
            .or_insert_with(|| watch::Sender::new(Reach::Answers))
            .clone()
    }

    fn client(&self, logical: &str, inner: Client) -> Client {
        let reach = self.of(logical);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (reach, inner) = (reach.clone(), inner.clone());
            async move { carry(&reach, &inner, request).await }
        });
        Client::new(service, "default")
    }
}

/// The body of an answer.
type Frames = UnsyncBoxBody<Bytes, kube::Error>;

async fn carry(
    reach: &watch::Sender<Reach>,
    inner: &Client,
    request: Request<Body>,
) -> Result<Response<Frames>, kube::Error> {
    let now = *reach.borrow();
    match now {
        Reach::Answers => {}
        Reach::Refuses => {
            let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
            return Err(kube::Error::Service(Box::new(refused)));
        }
        Reach::Silent => std::future::pending().await,
    }
    let (parts, mut body) = inner.send(request).await?.into_parts();
    let mut reach = reach.subscribe();
    // What was under way when the API went away arrives when it is back, as over a network that lost its way for a while.
    let frames = async_stream::stream! {
        while let Some(frame) = body.frame().await {
            if reach.wait_for(|reach| *reach == Reach::Answers).await.is_err() {
                return;
            }
            yield frame;
        }
    };
    Ok(Response::from_parts(
        parts,
        BodyExt::boxed_unsync(StreamBody::new(frames)),
    ))
}

/// A connector whose clusters can be out of reach.
pub struct Faulty<C> {
    /// Who connects.
    pub inner: C,
    /// How clusters are reached.
    pub reaches: Reaches,
}

impl<C: Connector> Connector for Faulty<C> {
    fn connect<'a>(
        &'a self,
        kubeconfig: &'a Kubeconfig,
    ) -> BoxFuture<'a, Result<Client, ConnectError>> {
        Box::pin(async move {
            let logical = kubeconfig
                .clusters
                .first()
                .and_then(|cluster| cluster.cluster.as_ref()?.server.clone())
                .and_then(|server| Some(server.split_once("/clusters/")?.1.to_owned()))
                .unwrap_or_default();
            let client = self.inner.connect(kubeconfig).await?;
            Ok(self.reaches.client(&logical, client))
        })
    }
}

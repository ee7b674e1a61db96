//! The listener: TLS, who connects, and limits that keep one client from hurting others.

mod authority;
mod kubeconfig;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use http::header::AUTHORIZATION;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use authority::{Authority, AuthorityError};
pub use kubeconfig::{Context, kubeconfig};

use crate::host::Host;

/// How long a client may take to shake hands, and to send the head of a request.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How many connections are open at once; more wait.
const CONNECTIONS: usize = 4096;
/// How long open requests may go on once the server is to stop.
const GRACE: Duration = Duration::from_secs(5);
/// Size of a request's head, in bytes.
const HEAD: u32 = 64 * 1024;

/// Serves `host` on `listener` until `stop`.
///
/// # Errors
/// When the server's certificate cannot be used.
pub async fn serve(
    host: Host,
    authority: &Authority,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), AuthorityError> {
    let acceptor = TlsAcceptor::from(Arc::new(authority.server_config()?));
    let tokens = authority.tokens();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let tracker = TaskTracker::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            break;
        };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely; others may be closed meanwhile.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = stop.cancelled() => break,
        };
        let (host, acceptor, tokens) = (host.clone(), acceptor.clone(), Arc::clone(&tokens));
        let stop = stop.clone();
        tracker.spawn(async move {
            let _place = place;
            connection(host, acceptor, tokens, stream, stop).await;
        });
    }
    tracker.close();
    // What does not end in time is cut off; clients connect again.
    let _ = tokio::time::timeout(GRACE, tracker.wait()).await;
    Ok(())
}

async fn connection(
    host: Host,
    acceptor: TlsAcceptor,
    tokens: Arc<authority::Tokens>,
    stream: TcpStream,
    stop: CancellationToken,
) {
    // Small watch events are not to wait for more.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let service = hyper::service::service_fn(move |mut request: Request<hyper::body::Incoming>| {
        let host = host.clone();
        let bearer = request
            .headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        let identity = bearer.and_then(|token| tokens.identity(token));
        async move {
            if let Some(identity) = identity {
                request.extensions_mut().insert(identity);
            }
            Ok::<_, std::convert::Infallible>(host.handle(request.map(Body::new)).await)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEAD)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    let served = builder.serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    tokio::select! {
        // A client that goes away in the middle is no event.
        _ = served.as_mut() => {}
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}

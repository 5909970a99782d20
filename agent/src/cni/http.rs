//! HTTP over a Unix socket, as Istio's plugin and ours speak it: one path, to which something is posted.

use std::convert::Infallible;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::SocketType;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::chain::chain;
use crate::socket_file::{BindError, make_way};

/// Of the socket's folder, as in Istio: whoever may not enter it cannot reach the socket.
const FOLDER_MODE: u32 = 0o750;
/// Of the socket, as in Istio.
const SOCKET_MODE: u32 = 0o666;
/// Connections at the same time: more than a node has pods. Others wait in the backlog of the socket.
const CONNECTIONS: usize = 512;
/// How long a plugin may take to send its request.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an error of `accept`, which comes from a lack of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// Status and text of an answer.
pub(super) type Answer = (StatusCode, String);

/// What is posted, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// The only path.
    pub(super) path: &'static str,
    /// Longest body in bytes.
    pub(super) longest: usize,
}

/// A socket, open.
#[derive(Debug)]
pub(super) struct HttpSocket(UnixListener);

impl HttpSocket {
    /// Opens it; clients that connect wait for [`HttpSocket::serve`]. Needs a running Tokio runtime.
    ///
    /// # Errors
    /// When the path is in use, by istio-cni for example, or cannot be used.
    pub(super) fn bind(path: &Path) -> Result<Self, BindError> {
        make_way(path, SocketType::STREAM, FOLDER_MODE)?;
        let listener = UnixListener::bind(path).map_err(BindError::io("listening on", path))?;
        set_permissions(path, Permissions::from_mode(SOCKET_MODE))
            .map_err(BindError::io("setting the mode of", path))?;
        Ok(Self(listener))
    }

    /// Answers each body by `answer`, for ever. Whoever hangs up is forgotten.
    pub(super) async fn serve<A, F>(self, service: Service, answer: A) -> Infallible
    where
        A: Fn(Bytes) -> F + Send + Sync + 'static,
        F: Future<Output = Answer> + Send + 'static,
    {
        let answer = Arc::new(answer);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "the task of a CNI plugin broke down");
                    }
                }
                accepted = self.0.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(converse(stream, service, answer.clone()))),
                    Err(error) => {
                        tracing::error!(%error, "accepting a CNI plugin failed, trying again");
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                },
            }
        }
    }
}

/// One connection, to its end.
async fn converse<A, F>(stream: UnixStream, service: Service, answer: Arc<A>)
where
    A: Fn(Bytes) -> F,
    F: Future<Output = Answer>,
{
    let respond = service_fn(|request| {
        let answer = answer.clone();
        async move {
            let (status, text) = match body(request, service).await {
                Ok(body) => answer(body).await,
                Err(refusal) => refusal,
            };
            let mut response = Response::new(Full::<Bytes>::from(text));
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .serve_connection(TokioIo::new(stream), respond)
        .await;
    if let Err(error) = served {
        tracing::debug!("a CNI plugin's connection ended: {}", chain(&error));
    }
}

/// What was posted. Any method is taken, as in Istio.
async fn body(request: Request<Incoming>, service: Service) -> Result<Bytes, Answer> {
    if request.uri().path() != service.path {
        return Err((StatusCode::NOT_FOUND, format!("there is only {}", service.path)));
    }
    let body = Limited::new(request.into_body(), service.longest).collect();
    match tokio::time::timeout(REQUEST_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err((StatusCode::BAD_REQUEST, format!("reading the body: {error}"))),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body did not come".to_owned())),
    }
}

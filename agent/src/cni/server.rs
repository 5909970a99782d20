//! The socket of the plugin: HTTP over a Unix socket, as Istio's plugin and ours speak it.

use std::convert::Infallible;
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_core::cni::event::{self, Event};
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
/// Longest event in bytes.
const LONGEST_EVENT: usize = 64 << 10;
/// How long a plugin may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an error of `accept`, which comes from a lack of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// The socket, open.
#[derive(Debug)]
pub struct PluginSocket(UnixListener);

impl PluginSocket {
    /// Opens it; plugins that connect wait for [`PluginSocket::serve`]. Needs a running Tokio runtime.
    ///
    /// # Errors
    /// When the path is in use, by istio-cni for example, or cannot be used.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        make_way(path, SocketType::STREAM, FOLDER_MODE)?;
        let listener = UnixListener::bind(path).map_err(BindError::io("listening on", path))?;
        set_permissions(path, Permissions::from_mode(SOCKET_MODE))
            .map_err(BindError::io("setting the mode of", path))?;
        tracing::info!(socket = %path.display(), "waiting for the CNI plugin");
        Ok(Self(listener))
    }

    /// Answers each event by `admit`, for ever. Whoever hangs up is forgotten.
    pub async fn serve<A, F, E>(self, admit: A) -> Infallible
    where
        A: Fn(Event) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let admit = Arc::new(admit);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "the task of a CNI plugin broke down");
                    }
                }
                accepted = self.0.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(converse(stream, admit.clone()))),
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
async fn converse<A, F, E>(stream: UnixStream, admit: Arc<A>)
where
    A: Fn(Event) -> F,
    F: Future<Output = Result<(), E>>,
    E: std::error::Error,
{
    let service = service_fn(|request| {
        let admit = admit.clone();
        async move { Ok::<_, Infallible>(answer(request, &*admit).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("a CNI plugin's connection ended: {}", chain(&error));
    }
}

/// Any method is taken, as in Istio.
async fn answer<A, F, E>(request: Request<Incoming>, admit: &A) -> Response<Full<Bytes>>
where
    A: Fn(Event) -> F,
    F: Future<Output = Result<(), E>>,
    E: std::error::Error,
{
    if request.uri().path() != event::PATH {
        return say(StatusCode::NOT_FOUND, format!("there is only {}", event::PATH));
    }
    let body = Limited::new(request.into_body(), LONGEST_EVENT).collect();
    let body = match tokio::time::timeout(REQUEST_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return say(StatusCode::BAD_REQUEST, format!("reading the event: {error}")),
        Err(_) => return say(StatusCode::REQUEST_TIMEOUT, "the event did not come".to_owned()),
    };
    match event::decode(&body) {
        Err(error) => say(StatusCode::BAD_REQUEST, error.to_string()),
        Ok(event) => match admit(event).await {
            Ok(()) => say(StatusCode::OK, String::new()),
            Err(error) => say(StatusCode::INTERNAL_SERVER_ERROR, chain(&error)),
        },
    }
}

fn say(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;

//! HTTP over a Unix socket, as Istio's plugin and ours speak it: one path, to which something is posted.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use rustix::net::SocketType;

use crate::http::{self, Clients, REQUEST_TIMEOUT};
use crate::kept_socket::{KeptSocket, Place, Tell};
use crate::socket_file::BindError;

/// Of the socket's folder, as in Istio: whoever may not enter it cannot reach the socket.
const FOLDER_MODE: u32 = 0o750;
/// Of the socket, as in Istio.
const SOCKET_MODE: u32 = 0o666;
/// More of them at once than a node has pods.
const PLUGINS: Clients = Clients {
    name: "a CNI plugin",
    at_once: 512,
    are_heard_out: false,
};

/// Status and text of an answer.
pub(super) type Answer = (StatusCode, String);

/// What is posted, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// The only path.
    pub(super) path: &'static str,
    /// Longest body in bytes.
    pub(super) longest: usize,
    /// What was posted counts also when the plugin does not wait for the answer.
    pub(super) is_a_report: bool,
}

/// A socket, open.
#[derive(Debug)]
pub(super) struct HttpSocket(KeptSocket);

impl HttpSocket {
    /// Opens it; clients that connect wait for [`HttpSocket::serve`]. Needs a running Tokio runtime.
    ///
    /// # Errors
    /// When the path is in use, by istio-cni for example, or cannot be used.
    pub(super) fn bind(path: &Path, tell: Tell) -> Result<Self, BindError> {
        let place = Place {
            path: path.to_owned(),
            kind: SocketType::STREAM,
            folder_mode: FOLDER_MODE,
            mode: Some(SOCKET_MODE),
        };
        KeptSocket::bind(place, tell).map(Self)
    }

    /// Answers each body by `answer`, for ever. Whoever hangs up is forgotten.
    pub(super) async fn serve<A, F>(self, service: Service, answer: A) -> Infallible
    where
        A: Fn(Bytes) -> F + Send + Sync + 'static,
        F: Future<Output = Answer> + Send + 'static,
    {
        let answer = Arc::new(answer);
        let clients = Clients {
            are_heard_out: service.is_a_report,
            ..PLUGINS
        };
        http::serve(self.0, clients, move |request| {
            respond(request, service, answer.clone())
        })
        .await
    }
}

async fn respond<A, F>(request: Request<Incoming>, service: Service, answer: Arc<A>) -> Response<Full<Bytes>>
where
    A: Fn(Bytes) -> F,
    F: Future<Output = Answer>,
{
    let (status, text) = match body(request, service).await {
        Ok(body) => answer(body).await,
        Err(refusal) => refusal,
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
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

//! A small HTTP server on a TCP port: GET of a few paths, for kubelets, Prometheus and people.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response, StatusCode};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use tokio::net::TcpListener;

use crate::http::{self, Clients};

/// Kubelets, Prometheus, people.
const CLIENTS: Clients = Clients {
    name: "an HTTP client",
    at_once: 32,
    are_heard_out: false,
};
/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Status, media type and body.
pub(super) type Answer = (StatusCode, &'static str, String);

/// Media type of plain answers.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Opens a TCP port. `::` means all addresses of both families, also on a node without IPv6.
pub(super) fn open(address: SocketAddr) -> std::io::Result<TcpListener> {
    match listen_on(address) {
        Err(rustix::io::Errno::AFNOSUPPORT) if address.ip().is_unspecified() => {
            let ip4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
            Ok(listen_on(ip4)?)
        }
        opened => Ok(opened?),
    }
    .and_then(TcpListener::from_std)
}

fn listen_on(address: SocketAddr) -> rustix::io::Result<std::net::TcpListener> {
    let family = if address.is_ipv6() {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // Connections of an agent that just ended do not hold the port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Answers requests by `answer`, which gets path and `Accept` header, for ever.
pub(super) async fn serve<A, F>(listener: TcpListener, answer: A) -> Infallible
where
    A: Fn(String, String) -> F + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let answer = Arc::new(answer);
    http::serve(listener, CLIENTS, move |request| respond(request, answer.clone())).await
}

async fn respond<A, F>(request: Request<Incoming>, answer: Arc<A>) -> Response<Full<Bytes>>
where
    A: Fn(String, String) -> F,
    F: Future<Output = Answer>,
{
    let accept = request.headers().get(hyper::header::ACCEPT);
    let accept = accept
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let (status, media_type, body) = match *request.method() {
        Method::GET | Method::HEAD => answer(request.uri().path().to_owned(), accept).await,
        _ => (StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET only\n".to_owned()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(media_type));
    response
}

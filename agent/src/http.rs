//! HTTP/1 on any kind of socket: a number of connections at a time, each with a limit for its request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::chain::chain;
use crate::kept_socket::KeptSocket;

/// How long a client may take to send its request.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an error of `accept`, which comes from a lack of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// A socket that listens.
pub(crate) trait Listener {
    /// Its connections.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection.
    async fn next(&mut self) -> io::Result<Self::Stream>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&mut self) -> io::Result<TcpStream> {
        Ok(self.accept().await?.0)
    }
}

impl Listener for KeptSocket {
    type Stream = UnixStream;

    async fn next(&mut self) -> io::Result<UnixStream> {
        self.accept().await
    }
}

/// Who is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    /// What the log calls one of them, with its article.
    pub(crate) name: &'static str,
    /// Connections at the same time. For one more the oldest goes that has not asked anything; while all have, it waits.
    pub(crate) at_once: usize,
    /// Their requests count also when they hang up without waiting for the answer.
    pub(crate) are_heard_out: bool,
}

/// A connection that is served.
struct Served {
    task: AbortHandle,
    /// Requests that are being answered.
    asked: Arc<AtomicUsize>,
}

impl Served {
    fn is_idle(&self) -> bool {
        self.asked.load(Ordering::Relaxed) == 0
    }
}

/// Makes room for one more connection, if there is none and one can go; returns whether there is room.
fn make_room(served: &mut VecDeque<Served>, at_once: usize) -> bool {
    served.retain(|connection| !connection.task.is_finished());
    if served.len() < at_once {
        return true;
    }
    let oldest = served.iter().position(Served::is_idle);
    let gone = oldest.and_then(|oldest| served.remove(oldest));
    gone.inspect(|gone| gone.task.abort()).is_some()
}

/// Answers each request, for ever. Whoever hangs up is forgotten.
pub(crate) async fn serve<R, F>(mut listener: impl Listener, clients: Clients, respond: R) -> Infallible
where
    R: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let Clients { name, at_once, .. } = clients;
    let mut connections = JoinSet::new();
    let mut served = VecDeque::new();
    let mut waiting = None;
    loop {
        tokio::select! {
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended && !error.is_cancelled() {
                    tracing::error!(%error, "the task of {name} broke down");
                }
            }
            accepted = listener.next(), if waiting.is_none() => match accepted {
                Ok(stream) => waiting = Some(stream),
                Err(error) => {
                    tracing::error!(%error, "accepting {name} failed, trying again");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
        }
        // One that waits does so until another has its answer.
        if waiting.is_some()
            && make_room(&mut served, at_once)
            && let Some(stream) = waiting.take()
        {
            let asked = Arc::<AtomicUsize>::default();
            let task = connections.spawn(converse(stream, clients, respond.clone(), asked.clone()));
            served.push_back(Served { task, asked });
        }
    }
}

/// One connection, to its end.
async fn converse<R, F>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    clients: Clients,
    respond: R,
    asked: Arc<AtomicUsize>,
) where
    R: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<Full<Bytes>>>,
{
    let answer = service_fn(|request| {
        let response = respond(request);
        let asked = &asked;
        async move {
            asked.fetch_add(1, Ordering::Relaxed);
            let response = response.await;
            asked.fetch_sub(1, Ordering::Relaxed);
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .half_close(clients.are_heard_out)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(error) = served {
        tracing::debug!("the connection of {} ended: {}", clients.name, chain(&error));
    }
}

//! What becomes of a call of [`crate::ports::Proxy`], and how it is told to the caller.

use std::path::PathBuf;

use tokio::sync::oneshot;

use crate::ports::PortError;

/// Where the outcome of a call is awaited. Dropped unanswered when the connection ends.
pub(super) type Waiter = oneshot::Sender<Result<(), CallError>>;

/// The waiting end of a [`Waiter`].
pub(super) type Reply = oneshot::Receiver<Result<(), CallError>>;

/// Tells who waits, if they still do.
pub(super) fn answer(waiter: Option<Waiter>, outcome: Result<(), CallError>) {
    if let Some(waiter) = waiter {
        // A caller that gave up has no use for the answer.
        let _ = waiter.send(outcome);
    }
}

/// Why a proxy does not know of a pod what it should.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    /// Nobody is there.
    #[error(
        "no proxy is connected to {socket}: is ztunnel running on this node? It gets the pod as soon as it connects"
    )]
    NoProxy {
        /// Our socket.
        socket: PathBuf,
    },
    /// The gate is closed.
    #[error("the agent is still starting: proxies get the pod once all pods of the node are known")]
    Starting,
    /// The proxy answered with an error.
    #[error("the proxy refuses: {text}")]
    Refused {
        /// Its words.
        text: String,
    },
    /// The proxy did not answer.
    #[error(
        "{problem}: is ztunnel stuck or starved? Its connection was closed, it gets all pods when it connects again"
    )]
    TimedOut {
        /// What took too long.
        problem: String,
    },
    /// The connection ended before the answer.
    #[error("the proxy closed the connection before it answered; it hears the news when it connects again")]
    Closed,
    /// The pod was deleted while its add waited.
    #[error("the pod was deleted before the proxy heard of it")]
    Forgotten,
    /// The names are longer than a packet may be.
    #[error(
        "its names make a message of {bytes} bytes and the proxy reads {limit}: shorten name, namespace or service \
         account"
    )]
    TooLong {
        /// Size of the message.
        bytes: usize,
        /// Size of the proxy's buffer.
        limit: usize,
    },
}

impl CallError {
    /// The error as the port tells it.
    pub(super) fn into_port_error(self, operation: &'static str, object: String) -> PortError {
        let retryable = !matches!(self, Self::TooLong { .. });
        PortError {
            operation,
            object,
            cause: self.to_string(),
            retryable,
        }
    }
}

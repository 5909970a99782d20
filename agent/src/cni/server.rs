//! The socket of the plugin's events: each is answered when its pod is captured and served, or is not to be.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use agent_core::cni::event::{self, Event};
use hyper::StatusCode;
use hyper::body::Bytes;

use super::http::{Answer, HttpSocket, Service};
use super::stats::Counters;
use crate::chain::chain;
use crate::kept_socket::Tell;
use crate::socket_file::BindError;

/// Events are posted.
const SERVICE: Service = Service {
    path: event::PATH,
    longest: 64 << 10,
    is_a_report: false,
};

/// The socket, open.
#[derive(Debug)]
pub struct PluginSocket(HttpSocket);

impl PluginSocket {
    /// Opens it; plugins that connect wait for [`PluginSocket::serve`]. Needs a running Tokio runtime.
    ///
    /// # Errors
    /// When the path is in use, by istio-cni for example, or cannot be used.
    pub fn bind(path: &Path, tell: Tell) -> Result<Self, BindError> {
        let socket = HttpSocket::bind(path, tell)?;
        tracing::info!(socket = %path.display(), "waiting for the CNI plugin");
        Ok(Self(socket))
    }

    /// Answers each event by `admit`, for ever, and counts the answers.
    pub async fn serve<A, F, E>(self, counters: Counters, admit: A) -> Infallible
    where
        A: Fn(Event) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let admit = Arc::new(admit);
        let serve = move |body: Bytes| {
            let (admit, counters) = (admit.clone(), counters.clone());
            async move {
                let answer = answer(&body, &*admit).await;
                counters.answered(answer.0.as_u16());
                answer
            }
        };
        self.0.serve(SERVICE, serve).await
    }
}

async fn answer<A, F, E>(body: &[u8], admit: &A) -> Answer
where
    A: Fn(Event) -> F,
    F: Future<Output = Result<(), E>>,
    E: std::error::Error,
{
    match event::decode(body) {
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()),
        Ok(event) => match admit(event).await {
            Ok(()) => (StatusCode::OK, String::new()),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, chain(&error)),
        },
    }
}

#[cfg(test)]
mod tests;

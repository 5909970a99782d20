//! The socket of the plugin's log: what a plugin says on the node is said again in the agent's log, where people look.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;

use agent_core::cni::log::{self, Batch, Level, Line};
use hyper::StatusCode;
use hyper::body::Bytes;

use super::http::{Answer, HttpSocket, Service};
use super::stats::Counters;
use crate::socket_file::BindError;

/// Lists of lines are posted.
const SERVICE: Service = Service {
    path: log::PATH,
    longest: 1 << 20,
    is_a_report: true,
};

/// The socket, open.
#[derive(Debug)]
pub struct LogSocket(HttpSocket);

impl LogSocket {
    /// Opens it. Needs a running Tokio runtime.
    ///
    /// # Errors
    /// When the path is in use, by istio-cni for example, or cannot be used.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        HttpSocket::bind(path, Box::new(|_| ())).map(Self)
    }

    /// Says again what plugins say, for ever, and counts what cannot be read.
    pub async fn serve(self, counters: Counters) -> Infallible {
        let serve = move |body: Bytes| {
            let answer = take(&body, &counters);
            async move { answer }
        };
        self.0.serve(SERVICE, serve).await
    }
}

/// Without waiting in between: the lines of a batch stay together, and a plugin that does not wait for the answer has
/// been heard.
fn take(body: &[u8], counters: &Counters) -> Answer {
    match log::decode(body) {
        Err(error) => {
            tracing::debug!("a CNI plugin's log is dropped: {error}");
            counters.dropped_lines(1);
            (StatusCode::BAD_REQUEST, error.to_string())
        }
        Ok(Batch { lines, dropped }) => {
            if dropped > 0 {
                tracing::debug!(dropped, "lines of a CNI plugin's log are dropped");
                counters.dropped_lines(dropped);
            }
            lines.into_iter().for_each(say_again);
            (StatusCode::OK, String::new())
        }
    }
}

/// Says a line under the target that is called like Istio's scope, with the plugin's time and labels.
fn say_again(line: Line) {
    let Line {
        level,
        time,
        message,
        mut labels,
    } = line;
    let mut take = |key: &str| labels.remove(key);
    let (pod, namespace, uid) = (take("pod"), take("namespace"), take("uid"));
    let labels = others(&labels);
    macro_rules! again {
        ($level:ident) => {
            tracing::$level!(target: "cni-plugin", time, pod, namespace, uid, labels, "CNI plugin: {message}")
        };
    }
    match level {
        Level::Error => again!(error),
        Level::Warn => again!(warn),
        Level::Info => again!(info),
        Level::Debug => again!(debug),
    }
}

/// The labels that have no field of their own.
fn others(labels: &BTreeMap<String, String>) -> Option<String> {
    let pairs: Vec<_> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    (!pairs.is_empty()).then(|| pairs.join(" "))
}

#[cfg(test)]
mod tests;

//! The ports that are asked from outside: `/healthz` and `/readyz`, and `/metrics`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use hyper::StatusCode;
use tokio::net::TcpListener;

use super::exposition::{Exposition, Format};
use super::http::{self, Answer, TEXT};
use super::readiness::Readiness;

/// The ports, open: clients wait for [`Endpoints::serve`].
#[derive(Debug)]
pub struct Endpoints {
    health: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

/// A port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("listening on {address} for {paths}: {source}; {fix}")]
pub struct EndpointError {
    address: SocketAddr,
    paths: &'static str,
    source: io::Error,
    fix: String,
}

impl Endpoints {
    /// Opens the ports; `None` leaves one closed. Needs a running Tokio runtime.
    ///
    /// # Errors
    /// When a port is in use, or an address is not this node's.
    pub fn open(health: Option<SocketAddr>, metrics: Option<SocketAddr>) -> Result<Self, EndpointError> {
        Ok(Self {
            health: health
                .map(|address| open(address, "/healthz and /readyz", "health"))
                .transpose()?,
            metrics: metrics
                .map(|address| open(address, "/metrics", "monitoring"))
                .transpose()?,
        })
    }

    /// Answers for ever.
    pub async fn serve(self, readiness: Readiness, exposition: Exposition) -> Infallible {
        tokio::select! {
            never = tell_health(self.health, readiness) => never,
            never = tell_metrics(self.metrics, exposition) => never,
        }
    }
}

fn open(address: SocketAddr, paths: &'static str, flag: &str) -> Result<TcpListener, EndpointError> {
    let opened = http::open(address).map_err(|source| EndpointError {
        address,
        paths,
        fix: match source.kind() {
            io::ErrorKind::AddrInUse => format!(
                "stop what listens there (another agent, or istio-cni), or choose another port with --{flag}-port"
            ),
            io::ErrorKind::AddrNotAvailable => {
                format!("give an address of this node, or :: for all, with --{flag}-address")
            }
            _ => format!("choose with --{flag}-address and --{flag}-port"),
        },
        source,
    })?;
    tracing::info!(%address, "{paths} can be asked");
    Ok(opened)
}

async fn tell_health(listener: Option<TcpListener>, readiness: Readiness) -> Infallible {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    http::serve(listener, move |path, _| {
        let readiness = readiness.clone();
        async move {
            match path.as_str() {
                "/healthz" => ok(),
                "/readyz" => match readiness.check() {
                    Ok(()) => ok(),
                    Err(missing) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, missing),
                },
                _ => not_found("/healthz and /readyz"),
            }
        }
    })
    .await
}

async fn tell_metrics(listener: Option<TcpListener>, exposition: Exposition) -> Infallible {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    http::serve(listener, move |path, accept| {
        let exposition = exposition.clone();
        async move {
            if path != "/metrics" {
                return not_found("/metrics");
            }
            let format = Format::accepted(&accept);
            // Counting the entries of a full map takes milliseconds, in which pods must not wait.
            let text = tokio::task::spawn_blocking(move || exposition.text(format)).await;
            match text.map_err(|error| error.to_string()) {
                Ok(Ok(text)) => (StatusCode::OK, format.media_type(), text),
                Ok(Err(error)) => failed(&error.to_string()),
                Err(error) => failed(&error),
            }
        }
    })
    .await
}

fn ok() -> Answer {
    (StatusCode::OK, TEXT, "ok\n".to_owned())
}

fn not_found(there: &str) -> Answer {
    (StatusCode::NOT_FOUND, TEXT, format!("there is only {there}\n"))
}

fn failed(why: &str) -> Answer {
    (StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{why}\n"))
}

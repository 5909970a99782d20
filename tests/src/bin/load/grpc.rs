//! A gRPC server that is healthy (grpc.health.v1), which is all that kubelet asks of one.

use std::net::SocketAddr;

use anyhow::Result;
use clap::Args;
use tonic::transport::Server;
use tonic_health::ServingStatus;

/// Options of `grpc`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Where it listens. `[::]` takes IPv4 too.
    #[arg(long)]
    listen: SocketAddr,
}

/// Serves until SIGTERM.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(options: &Options) -> Result<()> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", ServingStatus::Serving).await;
    let mut server = Server::builder();
    let serving = server.add_service(health).serve(options.listen);
    tokio::select! {
        ended = serving => Ok(ended?),
        terminated = crate::terminated() => terminated,
    }
}

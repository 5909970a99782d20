//! `meshgate-load`: the applications of the tests. Servers, clients and load that run inside pods and print JSON.
//!
//! A client's failed connection is a result, not a failure of the tool: it exits with 0 and says which error it was.

mod connect;
mod dns;
mod grpc;
mod hold;
mod rates;
mod report;
mod reuse;
mod server;
mod socket;

use std::io::Read;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tests::tuning;
use tokio::signal::unix::{SignalKind, signal};

/// Servers, clients and load for pods.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example: meshgate-load server --listen [::]:8080 --reply echo\n         \
                        meshgate-load crr 10.1.0.3:8080 --count 10000"
)]
struct Options {
    /// Runs on one processor only.
    #[arg(long, global = true)]
    cpu: Option<usize>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Does nothing until stdin closes: keeps a pod's namespace and cgroup alive.
    Pause,
    /// Does nothing until SIGTERM: the pause of a container, whose stdin is closed.
    Sleep,
    /// Listens; prints `ready` once it does.
    Server(server::Options),
    /// Listens, and answers gRPC's health checks.
    Grpc(grpc::Options),
    /// Makes one connection and tells what both ends see.
    Connect(connect::Options),
    /// Asks name servers and tells what their answers look like.
    Dns(dns::Options),
    /// Connect, request, response, close, again and again.
    Crr(rates::CrrOptions),
    /// Requests and responses on one connection.
    Rr(rates::RrOptions),
    /// Questions to a name server by UDP and their answers, each on a socket of its own.
    Questions(rates::QuestionOptions),
    /// As many bytes as possible on one connection.
    Stream(rates::StreamOptions),
    /// Opens many connections and holds them until stdin closes.
    Hold(hold::Options),
    /// Two connections from one local port, the second at once after the first.
    Reuse(reuse::Options),
}

fn main() -> Result<()> {
    let options = Options::parse();
    options.cpu.map_or(Ok(()), tuning::pin)?;
    tuning::raise_open_files()?;
    match options.verb {
        Verb::Pause => Ok(std::io::stdin().read_to_end(&mut Vec::new()).map(drop)?),
        Verb::Sleep => sleep(),
        Verb::Server(options) => server::run(options),
        Verb::Grpc(options) => grpc::run(&options),
        Verb::Connect(options) => connect::run(&options),
        Verb::Dns(options) => dns::run(&options),
        Verb::Crr(options) => rates::crr(&options),
        Verb::Rr(options) => rates::rr(&options),
        Verb::Questions(options) => rates::questions(&options),
        Verb::Stream(options) => rates::stream(&options),
        Verb::Hold(options) => hold::run(&options),
        Verb::Reuse(options) => reuse::run(&options),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn sleep() -> Result<()> {
    terminated().await
}

/// Waits for SIGTERM, which the first process of a container does not hear unless it asks for it (pid_namespaces(7)).
async fn terminated() -> Result<()> {
    signal(SignalKind::terminate())?.recv().await;
    Ok(())
}

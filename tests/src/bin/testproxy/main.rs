//! `meshgate-testproxy`: a small real TCP proxy which behaves as ztunnel does towards the agent. It takes pods by ZDS,
//! listens within them, finds the original destination, and forwards in clear text.
//!
//! One thread. Unlike ztunnel it speaks no HBONE (its 15008 logs and resets), knows no policy, leaves a
//! removed pod's open connections alone, and dials the agent again within 250 ms at most.

mod acks;
mod dns;
mod exec;
mod forward;
mod log;
mod pods;
mod relay;
mod serve;
mod sockets;
mod zds;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use tests::tuning;
use tokio::signal::unix::{SignalKind, signal};

use crate::dns::Dns;
use crate::forward::Forward;
use crate::log::Log;
use crate::pods::Pods;
use crate::serve::Server;
use crate::sockets::Home;

/// How long open connections may go on after SIGTERM, as ztunnel's default grace.
const GRACE: Duration = Duration::from_secs(5);

/// A small proxy which behaves as ztunnel does towards the node agent.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example: meshgate-testproxy --zds-socket /var/run/ztunnel/ztunnel.sock --log /tmp/proxy.jsonl"
)]
struct Options {
    /// Socket on which the agent listens.
    #[arg(long, required_unless_present = "forward")]
    zds_socket: Option<PathBuf>,
    /// Takes no pods: listens on a port in a network namespace and forwards to this destination. For benchmarks.
    #[arg(long, value_name = "NETNS,PORT,DESTINATION", conflicts_with = "zds_socket")]
    forward: Vec<Forward>,
    /// Writes one JSON line for each event and connection, at once.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Refuses every Nth Add with an error in its ack; the agent must try again.
    #[arg(long, value_name = "N")]
    refuse_pod: Option<u32>,
    /// Waits before each ack.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    ack_delay: u64,
    /// Hangs up so long after each hello, and dials again.
    #[arg(long, value_name = "MS")]
    hang_up_after: Option<u64>,
    /// Takes nothing in clear text for pods of this Kubernetes namespace, as ztunnel where mutual TLS is strict.
    #[arg(long, value_name = "NAMESPACE")]
    strict: Vec<String>,
    /// Has a DNS server in each pod, which asks this one for names that are not of the mesh.
    #[arg(long, value_name = "NAME_SERVER")]
    dns: Option<SocketAddr>,
    /// Prints how many connections and bytes it forwarded, as JSON, when it ends.
    #[arg(long)]
    stats: bool,
    /// Runs on one processor only.
    #[arg(long)]
    cpu: Option<usize>,
    /// Listens nowhere: acks at once and does nothing else. For benchmarks of the agent.
    #[arg(long)]
    ack_only: bool,
    /// Listens nowhere: takes pods and acks them on behalf of the program after `--exec`, which it starts in the
    /// network namespace of the first pod, in its own cgroup.
    #[arg(long, requires = "exec")]
    zds_only: bool,
    /// The program and its arguments.
    #[arg(long, num_args = 1.., allow_hyphen_values = true, requires = "zds_only", value_name = "PROGRAM")]
    exec: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    tuning::raise_open_files()?;
    options.cpu.map_or(Ok(()), tuning::pin)?;
    let log = Arc::new(Log::open(options.log.as_deref())?);
    let mut terminate = signal(SignalKind::terminate())?;
    let settings = zds::Settings {
        socket: options.zds_socket.unwrap_or_default(),
        refuse_every: options.refuse_pod,
        ack_delay: Duration::from_millis(options.ack_delay),
        hang_up_after: options.hang_up_after.map(Duration::from_millis),
    };
    if !options.forward.is_empty() {
        return forward_until(&options.forward, terminate.recv()).await;
    }
    println!("started");
    if options.ack_only {
        let mut acks = acks::Acks::default();
        return tokio::select! {
            error = zds::follow(&settings, &mut acks, &log) => Err(error),
            _ = terminate.recv() => Ok(()),
        };
    }
    if options.zds_only {
        let mut program = exec::Program::new(options.exec);
        return tokio::select! {
            error = zds::follow(&settings, &mut program, &log) => Err(error),
            _ = terminate.recv() => Ok(()),
        };
    }
    let server = Arc::new(Server::new(log.clone())?);
    let dns = options.dns.map(|upstream| {
        let log = log.clone();
        Home::new().map(|home| Arc::new(Dns { upstream, home, log }))
    });
    let mut pods = Pods::new(server.clone(), options.strict, dns.transpose()?);
    let ended = tokio::select! {
        error = zds::follow(&settings, &mut pods, &log) => Err(error),
        _ = terminate.recv() => Ok(()),
    };
    pods.clear().await;
    server.drained(GRACE).await;
    if options.stats {
        println!("{}", server.stats());
    }
    ended
}

/// Forwards until `end`.
async fn forward_until(forwards: &[Forward], end: impl Future<Output = Option<()>>) -> Result<()> {
    let home = Arc::new(Home::new()?);
    forwards.iter().try_for_each(|forward| forward.start(&home))?;
    println!("started");
    end.await;
    Ok(())
}

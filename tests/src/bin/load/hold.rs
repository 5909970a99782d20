//! Many connections at a time, held open.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::report::Tally;
use crate::socket::Client;

/// Options of `hold`. Prints one line when all are open, and with `--check` another one after stdin has closed.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How many.
    connections: usize,
    /// Where to, in turns.
    #[arg(required = true)]
    destinations: Vec<SocketAddr>,
    /// Sends a byte on each and wants it back, when all are open and again at the end: for servers with `--reply echo`.
    #[arg(long)]
    check: bool,
    /// Does not wait for any of them: what counts as open has sent its SYN.
    #[arg(long, conflicts_with = "check")]
    half_open: bool,
    #[command(flatten)]
    client: Client,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let began = Instant::now();
    let mut tally = Tally::default();
    let mut held = Vec::with_capacity(options.connections);
    for destination in options.destinations.iter().cycle().take(options.connections) {
        let dialled = if options.half_open {
            options.client.begin(*destination)
        } else {
            options.client.dial(*destination)
        };
        match dialled {
            Ok(stream) => held.push(stream),
            Err(error) => tally.failure(&error),
        }
    }
    let alive = options
        .check
        .then(|| held.iter().filter(|stream| echoes(stream).is_ok()).count());
    println!(
        "{}",
        json!({
            "connected": held.len(),
            "failed": tally.failures(),
            "alive": alive,
            "seconds": began.elapsed().as_secs_f64(),
        })
    );
    io::stdin().read_to_end(&mut Vec::new())?;
    if options.check {
        println!(
            "{}",
            json!({ "alive": held.iter().filter(|stream| echoes(stream).is_ok()).count() })
        );
    }
    Ok(())
}

fn echoes(mut stream: &TcpStream) -> io::Result<()> {
    stream.write_all(b"?")?;
    stream.read_exact(&mut [0])
}

//! Two connections in a row from one local port: whatever the first one left behind must not catch the second.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rustix::net::connect_unspec;
use rustix::net::sockopt::set_socket_linger;
use serde_json::{Value, json};

use crate::connect::{Exchange, tell};
use crate::report::errno;
use crate::socket::Client;

/// Options of `reuse`. Give `--bind` a port, so that both connections have it; only one socket does without.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Where the first connection goes. It may fail.
    #[arg(long)]
    first: SocketAddr,
    /// Where the second one goes.
    #[arg(long)]
    second: SocketAddr,
    /// How the first one ends.
    #[arg(long, value_enum, default_value_t = End::Reset)]
    end: End,
    #[command(flatten)]
    client: Client,
    #[command(flatten)]
    exchange: Exchange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum End {
    /// Closed with a reset: the port is free at once.
    Reset,
    /// Closed with a FIN.
    Fin,
    /// Not closed: the same socket is disconnected (connect to `AF_UNSPEC`) and connected again.
    Disconnect,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.end != End::Disconnect {
        options.client.bind.context("two sockets need --bind ADDR:PORT")?;
    }
    let first = options.client.dial(options.first);
    let (stream, first) = tell(first, &options.exchange);
    let second = match (stream, options.end) {
        (Some(stream), End::Disconnect) => {
            let again = || {
                connect_unspec(&stream)?;
                options.client.connect(stream.try_clone()?.into(), options.second)
            };
            tell(again(), &options.exchange).1
        }
        (stream, end) => {
            if let Some(stream) = &stream
                && end == End::Reset
            {
                set_socket_linger(stream, Some(Duration::ZERO))?;
            }
            drop(stream);
            second(options)
        }
    };
    println!("{}", json!({ "first": first, "second": second }));
    Ok(())
}

/// The second connection on a socket of its own; a port that is still taken is reported as `bind`.
fn second(options: &Options) -> Value {
    match options.client.socket(options.second) {
        Ok(socket) => tell(options.client.connect(socket, options.second), &options.exchange).1,
        Err(error) => json!({ "bind": errno(&error) }),
    }
}

//! Escape, measured at the destination: every connection that a server accepted must be one that the proxy says it
//! made. The server knows its client's port, the proxy its own port on that connection, and no two connections of one
//! pod to one server have the same port at a time; so each port must have been seen as often by both.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::pod::{Pod, json_lines};
use crate::proxy::{Connection, Direction};

/// What `meshgate-load server --log` writes.
#[derive(Deserialize)]
struct Accepted {
    accept: SocketAddr,
}

/// How often a port was seen, for each family apart.
type Ports = BTreeMap<(bool, u16), i64>;

/// What both sides say of the connections to one server.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Connections that the server accepted from the clients in question.
    pub accepted: usize,
    /// Those that did not come from the proxy.
    pub escaped: usize,
}

/// Compares a server's log with the proxy's. `from` are the clients that count; on the way out (`pod` is the client) the
/// server sees the proxy's own address and port, on the way in (`pod` is the server) the client's address and the
/// proxy's port.
///
/// # Errors
/// When the server's log cannot be read.
pub fn verdict(
    server_log: &Path,
    from: &[&Pod],
    proxied: &[Connection],
    (direction, pod, port): (Direction, &Pod, u16),
) -> Result<Verdict> {
    let accepted: Vec<Accepted> = json_lines(server_log, &mut 0).context("the server's log")?;
    let counts = |accepted: &Accepted| {
        let ip = accepted.accept.ip().to_canonical();
        from.iter().any(|pod| pod.ips().contains(&ip))
    };
    let seen: Vec<_> = accepted
        .iter()
        .filter(|accepted| counts(accepted))
        .map(|accepted| accepted.accept)
        .collect();
    let made = proxied
        .iter()
        .filter(|c| c.direction == direction && c.pod == pod.uid() && c.destination.port() == port);
    let mut ports = Ports::new();
    for upstream in made.filter_map(|connection| connection.upstream) {
        *ports.entry(key(upstream)).or_default() += 1;
    }
    Ok(Verdict {
        accepted: seen.len(),
        escaped: seen
            .iter()
            .filter(|address| escaped(&mut ports, **address))
            .count(),
    })
}

/// Takes the proxy's connection with this port, and says whether there was none.
fn escaped(ports: &mut Ports, address: SocketAddr) -> bool {
    let left = ports.entry(key(address)).or_default();
    *left -= 1;
    *left < 0
}

fn key(address: SocketAddr) -> (bool, u16) {
    (address.ip().to_canonical().is_ipv4(), address.port())
}

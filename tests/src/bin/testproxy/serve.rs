//! What the proxy does with a connection: finds the destination, refuses what would loop, dials and forwards.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ::tests::proxy::{Answer, Connection, Direction, Event};
use agent_common::ports;
use anyhow::Result;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::log::Log;
use crate::relay::{relay, reset};
use crate::sockets::{Home, Pod, canonical, original_destination};

/// How long a destination may take to answer, as in ztunnel.
const DIAL_LIMIT: Duration = Duration::from_secs(10);

/// Serves the connections of all pods.
#[derive(Debug)]
pub(crate) struct Server {
    home: Home,
    log: Arc<Log>,
    open: AtomicUsize,
    idle: Notify,
    forwarded: AtomicU64,
    refused: AtomicU64,
    bytes: AtomicU64,
}

impl Server {
    pub(crate) fn new(log: Arc<Log>) -> Result<Self> {
        Ok(Self {
            home: Home::new()?,
            log,
            open: AtomicUsize::new(0),
            idle: Notify::new(),
            forwarded: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// The proxy's own namespace.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Accepts until it is aborted.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener, pod: Arc<Pod>, direction: Direction) {
        loop {
            match listener.accept().await {
                Ok((client, peer)) => {
                    tokio::spawn(
                        self.clone()
                            .serve(client, canonical(peer), pod.clone(), direction),
                    );
                }
                // Out of descriptors, most likely: others must close first.
                Err(error) => {
                    eprintln!("accepting in pod {}: {error}", pod.uid);
                    sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    async fn serve(
        self: Arc<Self>,
        client: TcpStream,
        peer: SocketAddr,
        pod: Arc<Pod>,
        direction: Direction,
    ) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.forward(client, peer, &pod, direction).await;
        if self.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.idle.notify_waiters();
        }
    }

    async fn forward(&self, client: TcpStream, peer: SocketAddr, pod: &Pod, direction: Direction) {
        let _ = client.set_nodelay(true);
        let found = match direction {
            Direction::Hbone => client.local_addr().map(|local| (canonical(local), Answer::Local)),
            Direction::Outbound | Direction::Inbound => original_destination(&client),
        };
        // A client that is gone already has no local address.
        let Ok((destination, answer)) = found else { return };
        let upstream = self.dial(pod, direction, destination, peer).await;
        self.log.write(|| {
            let result = upstream
                .as_ref()
                .map_or_else(ToString::to_string, |_| "ok".to_owned());
            Event::Connection(Connection {
                direction,
                pod: pod.uid.clone(),
                peer,
                destination,
                answer,
                upstream: upstream
                    .as_ref()
                    .ok()
                    .and_then(|stream| stream.local_addr().ok())
                    .map(canonical),
                result,
            })
        });
        if let Ok(upstream) = upstream {
            self.forwarded.fetch_add(1, Ordering::Relaxed);
            self.bytes
                .fetch_add(relay(client, upstream).await, Ordering::Relaxed);
        } else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            reset(client);
        }
    }

    async fn dial(
        &self,
        pod: &Pod,
        direction: Direction,
        destination: SocketAddr,
        peer: SocketAddr,
    ) -> Result<TcpStream, String> {
        if direction == Direction::Inbound && pod.strict {
            return Err("mutual TLS is strict here".to_owned());
        }
        if let Some(why) = refusal(direction, destination) {
            return Err(why.to_owned());
        }
        let client = source(direction, destination, peer);
        match timeout(DIAL_LIMIT, self.home.dial(pod, destination, client)).await {
            Ok(Ok(upstream)) => {
                let _ = upstream.set_nodelay(true);
                Ok(upstream)
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer from the destination".to_owned()),
        }
    }

    /// Waits until no connection is open, or the time is over.
    pub(crate) async fn drained(&self, limit: Duration) {
        let idle = self.idle.notified();
        if self.open.load(Ordering::Relaxed) > 0 {
            let _ = timeout(limit, idle).await;
        }
    }

    /// What it did, as JSON.
    pub(crate) fn stats(&self) -> serde_json::Value {
        json!({
            "forwarded": self.forwarded.load(Ordering::Relaxed),
            "refused": self.refused.load(Ordering::Relaxed),
            "bytes": self.bytes.load(Ordering::Relaxed),
        })
    }
}

/// Why a destination is not dialled: calls to the proxy's own ports would loop. ztunnel refuses them on the way in
/// always, on the way out only on loopback, where nothing but the proxy can be meant.
fn refusal(direction: Direction, destination: SocketAddr) -> Option<&'static str> {
    let own = [ports::OUTBOUND, ports::INBOUND, ports::HBONE].contains(&destination.port());
    match direction {
        Direction::Hbone => Some("HBONE is not spoken here"),
        Direction::Outbound if own && destination.ip().is_loopback() => Some("recursive call to the proxy"),
        Direction::Inbound if own => Some("illegal call to the proxy's own port"),
        Direction::Outbound | Direction::Inbound => None,
    }
}

/// The source address of the connection to the destination: on the way in it is the client's, unless the pod calls
/// itself; on the way out the kernel chooses.
fn source(direction: Direction, destination: SocketAddr, peer: SocketAddr) -> Option<SocketAddr> {
    (direction == Direction::Inbound && peer.ip() != destination.ip()).then_some(peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn own_ports_are_refused_where_they_would_loop() {
        let table = [
            (Direction::Outbound, "127.0.0.1:15001", true),
            (Direction::Outbound, "[::1]:15008", true),
            (Direction::Outbound, "127.0.0.1:8080", false),
            (Direction::Outbound, "10.1.0.3:15001", false),
            (Direction::Outbound, "10.1.0.3:80", false),
            (Direction::Inbound, "10.1.0.3:15006", true),
            (Direction::Inbound, "[fd00:1::3]:15001", true),
            (Direction::Inbound, "10.1.0.3:80", false),
            (Direction::Hbone, "10.1.0.3:15008", true),
        ];
        for (direction, destination, refused) in table {
            let got = refusal(direction, address(destination)).is_some();
            assert_eq!(got, refused, "{direction:?} {destination}");
        }
    }

    #[test]
    fn only_a_foreign_client_becomes_the_source() {
        let (pod, client) = (address("10.1.0.3:80"), address("10.1.0.2:4000"));
        assert_eq!(source(Direction::Inbound, pod, client), Some(client));
        assert_eq!(source(Direction::Inbound, pod, address("10.1.0.3:4000")), None);
        assert_eq!(source(Direction::Outbound, pod, client), None);
    }
}

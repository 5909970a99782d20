//! What the rest of the agent may know of the connections: events, a list, counters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use agent_core::ids::PodUid;

use crate::ports::ProxyPeer;

/// Number of a connection: grows by one with each, is never used again.
pub type Generation = u64;

/// What happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A proxy said hello and its programs are attached; its snapshot comes next.
    Connected {
        /// The connection.
        generation: Generation,
        /// The proxy.
        peer: ProxyPeer,
    },
    /// A proxy has answered for all pods that were remembered when its snapshot began.
    SnapshotDone {
        /// The connection.
        generation: Generation,
        /// Pods that it refused, and its words. It tries them again on its own, without telling.
        refused: Vec<(PodUid, String)>,
    },
    /// A connection that had been [`Event::Connected`] is over.
    Disconnected {
        /// The connection.
        generation: Generation,
        /// The proxy.
        peer: ProxyPeer,
    },
}

/// A connection, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// The connection.
    pub generation: Generation,
    /// The proxy.
    pub peer: ProxyPeer,
    /// It has answered for its whole snapshot.
    pub snapshot_done: bool,
}

/// Counters since the agent started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections closed because it cannot be told which process the peer is, or what its cgroup is.
    pub unknown_peers: u64,
    /// Connections closed because the peer sent what the protocol does not allow.
    pub protocol_errors: u64,
    /// Connections closed because the peer did not answer, or not read, in time.
    pub timeouts: u64,
    /// Connections closed because the proxy's programs could not be attached.
    pub attach_failures: u64,
    /// Pods that a proxy refused.
    pub refusals: u64,
}

/// [`Stats`] while they grow.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) accepted: AtomicU64,
    pub(super) unknown_peers: AtomicU64,
    pub(super) protocol_errors: AtomicU64,
    pub(super) timeouts: AtomicU64,
    pub(super) attach_failures: AtomicU64,
    pub(super) refusals: AtomicU64,
}

impl Counters {
    /// The values now.
    pub(super) fn read(&self) -> Stats {
        Stats {
            accepted: self.accepted.load(Relaxed),
            unknown_peers: self.unknown_peers.load(Relaxed),
            protocol_errors: self.protocol_errors.load(Relaxed),
            timeouts: self.timeouts.load(Relaxed),
            attach_failures: self.attach_failures.load(Relaxed),
            refusals: self.refusals.load(Relaxed),
        }
    }
}

/// Counts one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

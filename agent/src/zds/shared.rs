//! What the tasks of the server have in common.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use tokio::sync::{Semaphore, broadcast, watch};

use super::pace::Pace;
use super::registry::{Registry, Ticket};
use super::status::{Counters, Event};
use crate::ports::{PortError, ProxyPeer};

/// Called for each proxy that said hello, before it hears of its first pod: attaches the proxy's programs. On an error
/// the connection is closed, and the proxy tries again.
pub type OnConnect = Box<dyn Fn(ProxyPeer) -> BoxFuture<'static, Result<(), PortError>> + Send + Sync>;

/// Calls of the port that wait for a proxy at the same time; the others wait for their turn.
const CALLS: usize = 100;

/// Events that a reader may lag behind: more than a minute of connections at the fastest pace.
const EVENTS: usize = 1024;

/// Where the server listens, and where it looks for its peers.
#[derive(Clone, Debug)]
pub struct Config {
    /// The socket (`ZTUNNEL_UDS_ADDRESS` of the agent, `INPOD_UDS` of ztunnel).
    pub socket: PathBuf,
    /// The proc file system in which process ids of our PID namespace are found.
    pub proc_root: PathBuf,
    /// Mount of cgroup2.
    pub cgroup_root: PathBuf,
    /// How fast connections are accepted.
    pub pace: Pace,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            socket: PathBuf::from("/var/run/ztunnel/ztunnel.sock"),
            proc_root: PathBuf::from("/proc"),
            cgroup_root: PathBuf::from("/sys/fs/cgroup"),
            pace: Pace::default(),
        }
    }
}

/// State of the server.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) on_connect: OnConnect,
    pub(super) counters: Counters,
    pub(super) events: broadcast::Sender<Event>,
    /// True once snapshots may be sent.
    pub(super) gate: watch::Sender<bool>,
    /// Turns of the calls.
    pub(super) calls: Semaphore,
    registry: Mutex<Registry>,
}

impl Shared {
    /// No pod, no connection, gate closed.
    pub(super) fn new(config: Config, on_connect: OnConnect) -> Self {
        Self {
            config,
            on_connect,
            counters: Counters::default(),
            events: broadcast::Sender::new(EVENTS),
            gate: watch::Sender::new(false),
            calls: Semaphore::new(CALLS),
            registry: Mutex::default(),
        }
    }

    /// The registry, for a moment: never held across an await.
    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        // Each method leaves the registry whole, so that a panic elsewhere under the lock spoils nothing.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who listen.
    pub(super) fn tell(&self, event: Event) {
        // An error says only that nobody listens.
        let _ = self.events.send(event);
    }
}

/// The place of a connection in the registry, given back on drop.
pub(super) struct Registration<'a> {
    shared: &'a Shared,
    pub(super) peer: ProxyPeer,
    pub(super) ticket: Ticket,
    announced: bool,
}

impl<'a> Registration<'a> {
    /// Lists a connection.
    pub(super) fn new(shared: &'a Shared, peer: ProxyPeer) -> Self {
        let ticket = shared.registry().register(peer.clone());
        Self {
            shared,
            peer,
            ticket,
            announced: false,
        }
    }

    /// Tells that the proxy is a true one.
    pub(super) fn announce(&mut self) {
        self.announced = true;
        self.shared.tell(Event::Connected {
            generation: self.ticket.generation,
            peer: self.peer.clone(),
        });
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let generation = self.ticket.generation;
        self.shared.registry().remove(generation);
        if self.announced {
            self.shared.tell(Event::Disconnected {
                generation,
                peer: self.peer.clone(),
            });
        }
    }
}

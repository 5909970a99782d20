//! The server: the socket, the tasks of its connections, and the handle to it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::SocketType;
use tokio::sync::broadcast;
use tokio::task::{AbortHandle, JoinSet};

use super::connection;
use super::pace::Bucket;
use super::peer::{self, PeerError};
use super::seqpacket::Channel;
use super::shared::{Config, OnConnect, Registration, Shared};
use super::status::{ConnectionStatus, Event, Stats, count};
use crate::kept_socket::{KeptSocket, Place, Tell};
use crate::ports::ProxyPeer;
use crate::socket_file::BindError;

/// Connections at the same time. A node has one proxy, or two during an update; more wait in the backlog of the socket.
const CONNECTIONS: usize = 16;

/// Of the socket's folder. Proxies run as root or not; the socket itself says who may connect.
const FOLDER_MODE: u32 = 0o755;

/// Pause after an error of `accept`, which comes from a lack of descriptors or memory and not from a peer.
const ACCEPT_RETRY: Duration = Duration::from_secs(1);

/// Handle to the server. When the last clone is dropped, the socket and all connections are closed.
#[derive(Clone)]
pub struct Zds {
    pub(super) shared: Arc<Shared>,
    _accepting: Arc<Accepting>,
}

impl fmt::Debug for Zds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zds")
            .field("socket", &self.shared.config.socket)
            .finish_non_exhaustive()
    }
}

/// The accepting task; it holds the socket and, by its set of tasks, all connections.
struct Accepting(AbortHandle);

impl Drop for Accepting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Zds {
    /// Opens the socket and starts to accept, with the gate closed: see [`Zds::open_gate`]. Needs a running Tokio
    /// runtime.
    ///
    /// # Errors
    /// When the path of the socket is in use or cannot be used.
    pub fn bind(config: Config, on_connect: OnConnect, tell: Tell) -> Result<Self, BindError> {
        let place = Place {
            path: config.socket.clone(),
            kind: SocketType::SEQPACKET,
            folder_mode: FOLDER_MODE,
            mode: None,
        };
        let socket = KeptSocket::bind(place, tell)?;
        tracing::info!(socket = %config.socket.display(), "waiting for the proxy");
        let shared = Arc::new(Shared::new(config, on_connect));
        let task = tokio::spawn(accept_all(socket, shared.clone()));
        Ok(Self {
            shared,
            _accepting: Arc::new(Accepting(task.abort_handle())),
        })
    }

    /// Lets snapshots begin, now and ever after. Until then proxies wait: the end of a snapshot makes them drain all
    /// pods that it did not name, so that it must not be sent before all pods of the node are remembered.
    pub fn open_gate(&self) {
        self.shared.gate.send_replace(true);
    }

    /// Events from now on. A reader that lags more than a thousand events behind is told so by
    /// [`broadcast::error::RecvError::Lagged`] and finds the truth in [`Zds::connections`].
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// All connections, oldest first; also those that have not said hello yet.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.shared.registry().connections()
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.counters.read()
    }
}

/// Accepts for ever, at the configured pace.
async fn accept_all(mut socket: KeptSocket, shared: Arc<Shared>) {
    let mut bucket = Bucket::new(shared.config.pace, Instant::now());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "the task of a ZDS connection broke down");
                }
            }
            accepted = socket.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok(stream) => {
                    connections.spawn(run(shared.clone(), Channel(stream)));
                    tokio::time::sleep(bucket.take(Instant::now())).await;
                }
                Err(error) => {
                    tracing::error!(%error, "accepting a proxy's connection failed, trying again");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
}

/// A connection from its acceptance to its end.
async fn run(shared: Arc<Shared>, channel: Channel) {
    count(&shared.counters.accepted);
    let peer = match identify(&shared, &channel) {
        Ok(peer) => peer,
        Err(error) => {
            count(&shared.counters.unknown_peers);
            tracing::error!(%error, "a proxy is turned away");
            return;
        }
    };
    let pid = peer.pid;
    let mut registration = Registration::new(&shared, peer);
    let generation = registration.ticket.generation;
    tracing::info!(generation, pid, "a proxy connects");
    let Err(ending) = connection::serve(&shared, channel, &mut registration).await;
    if ending.is_ordinary() {
        tracing::info!(generation, pid, "the proxy closed the connection");
    } else {
        ending.count_in(&shared.counters);
        tracing::warn!(generation, pid, "connection closed: {ending}");
    }
}

/// Who has connected.
fn identify(shared: &Shared, channel: &Channel) -> Result<ProxyPeer, PeerError> {
    let pid = channel.peer_pid().map_err(PeerError::Credentials)?;
    peer::identify(pid, &shared.config.proc_root, &shared.config.cgroup_root)
}

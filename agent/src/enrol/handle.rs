//! How the rest of the agent talks to the worker.

use agent_core::ids::{PodUid, SandboxPod};
use agent_core::problem::Problem;
use tokio::sync::{mpsc, oneshot, watch};

use super::admission::Admit;
use super::report::Reports;
use crate::ports::{PortError, ProxyPeer};

/// The worker has ended: the agent is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent is stopping")]
pub struct Stopped;

/// What the worker is asked or told, beside facts.
#[derive(Debug)]
pub(super) enum Command {
    AttachProxy {
        peer: ProxyPeer,
        reply: oneshot::Sender<Result<usize, PortError>>,
    },
    Proxies {
        alive: Vec<ProxyPeer>,
    },
    ProxyCgroupGone,
    LookAtPins {
        reply: oneshot::Sender<Result<(), PortError>>,
    },
    SnapshotDone {
        refused: Vec<(PodUid, String)>,
    },
    AwaitPod {
        pod: SandboxPod,
        reply: oneshot::Sender<()>,
    },
    Admit(Box<Admit>),
}

/// How much was found wrong in the kernel since the worker began, and put right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Links and maps that were missing.
    pub pins: u64,
    /// Rows of maps that belonged to no pod.
    pub rows: u64,
}

/// A handle to the worker.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) reports: watch::Receiver<Reports>,
    pub(super) problems: watch::Receiver<Vec<Problem>>,
    pub(super) adopted: watch::Receiver<bool>,
    pub(super) repairs: watch::Receiver<Repairs>,
}

impl Handle {
    /// Waits until all pods that were captured when the agent started are compared with their wishes and remembered for
    /// the proxies: before that, no proxy may get a snapshot.
    ///
    /// # Errors
    /// When the worker has ended.
    pub async fn adopted(&self) -> Result<(), Stopped> {
        self.adopted
            .clone()
            .wait_for(|adopted| *adopted)
            .await
            .map(|_| ())
            .map_err(|_| Stopped)
    }

    /// All pods, now and as they change.
    #[must_use]
    pub fn reports(&self) -> watch::Receiver<Reports> {
        self.reports.clone()
    }

    /// What an operator should look at, now and as it changes.
    #[must_use]
    pub fn problems(&self) -> watch::Receiver<Vec<Problem>> {
        self.problems.clone()
    }

    /// Attaches the programs of a proxy that has connected, before it hears of its first pod. Returns how many listeners
    /// were adopted.
    ///
    /// # Errors
    /// As [`crate::ports::Datapath::attach_proxy`], or when the worker has ended.
    pub async fn attach_proxy(&self, peer: ProxyPeer) -> Result<usize, PortError> {
        let stopped = |_| PortError {
            operation: "attaching the programs",
            object: "a proxy".to_owned(),
            cause: Stopped.to_string(),
            retryable: false,
        };
        let (reply, answer) = oneshot::channel();
        self.send(Command::AttachProxy { peer, reply })
            .await
            .map_err(stopped)?;
        answer.await.map_err(|_| stopped(Stopped))?
    }

    /// Tells which proxies are connected, after each change. Pods stay captured when the last one leaves, and keep
    /// their annotation, as in Istio: the proxy goes on serving, or the next one is on its way.
    ///
    /// # Errors
    /// When the worker has ended.
    pub async fn proxies(&self, alive: Vec<ProxyPeer>) -> Result<(), Stopped> {
        self.send(Command::Proxies { alive }).await
    }

    /// Tells that the cgroup of a proxy was removed, so that nothing of ours can stay attached to it.
    ///
    /// # Errors
    /// When the worker has ended.
    pub async fn proxy_cgroup_gone(&self) -> Result<(), Stopped> {
        self.send(Command::ProxyCgroupGone).await
    }

    /// Tells that somebody may have removed pins; returns whether all are there again.
    ///
    /// # Errors
    /// When the worker has ended.
    pub async fn look_at_pins(&self) -> Result<Result<(), PortError>, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::LookAtPins { reply }).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// How much was repaired, now and as it changes.
    #[must_use]
    pub fn repairs(&self) -> watch::Receiver<Repairs> {
        self.repairs.clone()
    }

    /// Tells that a proxy has answered for all pods that were remembered when it connected, and which it refused.
    ///
    /// # Errors
    /// When the worker has ended.
    pub async fn snapshot_done(&self, refused: Vec<(PodUid, String)>) -> Result<(), Stopped> {
        self.send(Command::SnapshotDone { refused }).await
    }

    pub(super) async fn send(&self, command: Command) -> Result<(), Stopped> {
        self.commands.send(command).await.map_err(|_| Stopped)
    }
}

//! From an event of the plugin to the worker and back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_core::cni::event::Event;
use agent_core::cni::policy::FailurePolicy;
use agent_core::ids::{PodUid, SandboxPod};
use tokio::sync::Semaphore;

use super::sandbox::{SandboxError, open_netns};
use super::stats::Counters;
use crate::blocking::blocking;
use crate::enrol::{Admission, AdmissionError, Handle, Patience, Sandbox};
use crate::netns::NetnsId;

/// Istio's plugin gives up after five seconds, and must hear before why.
const PATIENCE: Patience = Patience {
    known: Duration::from_secs(2),
    served: Duration::from_millis(4500),
};

/// Namespaces that are opened at the same time, each on a thread: many sandboxes at once must not mean many threads.
const OPENERS: usize = 4;

/// Why a sandbox must fail.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Its network namespace.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// Its pod.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
}

/// How a sandbox may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The pod is captured and served.
    Captured,
    /// The pod is not to be captured.
    Outside,
    /// The failure policy lets it start uncaptured, since it cannot be told whether it is to be captured.
    LetThrough,
}

impl Refusal {
    /// Whether nothing is known against the pod's start: it could not be told whether it belongs to the mesh.
    fn is_undecided(&self) -> bool {
        matches!(self, Self::Admission(AdmissionError::Undecided { .. }))
    }
}

/// Brings sandboxes to the worker.
#[derive(Clone, Debug)]
pub struct Admissions {
    handle: Handle,
    host_root: PathBuf,
    node: NetnsId,
    policy: FailurePolicy,
    counters: Counters,
    openers: Arc<Semaphore>,
}

impl Admissions {
    /// `host_root` is where the node's files are, as the agent sees them; `node` the node's own network namespace.
    #[must_use]
    pub fn new(
        handle: Handle,
        host_root: PathBuf,
        node: NetnsId,
        policy: FailurePolicy,
        counters: Counters,
    ) -> Self {
        Self {
            handle,
            host_root,
            node,
            policy,
            counters,
            openers: Arc::new(Semaphore::new(OPENERS)),
        }
    }

    /// Answers when the pod is captured and served, or is not to be captured, or when the failure policy lets it go on
    /// since that cannot be told. A pod outside the mesh is not an error, unlike in Istio, whose plugin asks only about
    /// pods that it found to be in the mesh: ours asks about all, and if a label went meanwhile, a pod of Istio's plugin
    /// need not fail either.
    ///
    /// # Errors
    /// When the pod should be captured and is not.
    pub async fn admit(&self, event: Event) -> Result<Admitted, Refusal> {
        let start = Instant::now();
        let SandboxPod {
            name: pod,
            namespace,
            uid,
        } = event.pod.clone();
        let answer = self.ask(event).await;
        let ms = start.elapsed().as_millis();
        let uid = uid.as_ref().map(PodUid::as_str);
        match answer {
            Ok(Admission::Captured) => {
                tracing::info!(pod, namespace, uid, ms, "CNI: captured");
                Ok(Admitted::Captured)
            }
            Ok(Admission::Outside(reason)) => {
                tracing::info!(pod, namespace, uid, ms, "CNI: the pod {reason}");
                Ok(Admitted::Outside)
            }
            Err(error) if error.is_undecided() && self.policy == FailurePolicy::Ignore => {
                self.counters.let_through();
                tracing::warn!(
                    pod,
                    namespace,
                    uid,
                    ms,
                    "CNI: the pod starts OUTSIDE THE MESH, because the failure policy is Ignore: {error}"
                );
                Ok(Admitted::LetThrough)
            }
            Err(error) => {
                tracing::warn!(pod, namespace, uid, ms, "CNI: {error}");
                Err(error)
            }
        }
    }

    async fn ask(&self, event: Event) -> Result<Admission, Refusal> {
        let (host_root, node) = (self.host_root.clone(), self.node);
        let (path, addresses) = (event.netns, event.addresses.clone());
        // It is never closed.
        let turn = self.openers.acquire().await.ok();
        let opened = blocking(move || open_netns(&host_root, &path, node, &addresses)).await;
        drop(turn);
        let sandbox = Sandbox {
            pod: event.pod,
            addresses: event.addresses,
            netns: opened?,
        };
        Ok(self.handle.admit(sandbox, PATIENCE).await?)
    }
}

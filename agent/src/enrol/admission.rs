//! Sandboxes that come by the CNI plugin, before they have a process: how long their plugin waits for what, and what it
//! is told.

use std::net::IpAddr;
use std::time::Duration;

use agent_core::catalog::Catalog;
use agent_core::enrolment::Reason;
use agent_core::entry::NetnsCookie;
use agent_core::ids::SandboxPod;
use agent_core::plan::State;
use agent_core::problem::ProblemKind;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::handle::{Command, Handle, Stopped};
use crate::ports::Netns;

/// The source works, and has not told of the pod.
const POD_UNKNOWN: &str = "the API server can be reached and has not told of the pod: is it slow, was the pod deleted, \
                           or does it belong to another node than the agent's (--node, NODE_NAME)?";
/// The source works, and has not told all that the decision needs.
const NAMESPACE_UNKNOWN: &str = "the labels of its namespace have not been told yet; `meshgate status` tells how the \
                                 source is";

/// A sandbox that has just been made.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// The pod that it is for.
    pub pod: SandboxPod,
    /// The addresses that the CNI plugins gave it: nobody else knows them yet.
    pub addresses: Vec<IpAddr>,
    /// Its network namespace.
    pub netns: Netns,
}

/// How long a plugin is kept waiting.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until the source has told of the pod: a runtime can be quicker than the API server.
    pub known: Duration,
    /// Until the pod is captured and the proxy serves it, from the start.
    pub served: Duration,
}

/// What a CNI plugin is told of its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is captured, and the proxy serves it.
    Captured,
    /// It is not to be captured.
    Outside(Reason),
}

/// Why a pod was not admitted. The sandbox must fail, and kubelet tries again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// A step failed.
    #[error("{0}")]
    Failed(String),
    /// The source has not told in time what the decision needs.
    #[error("it cannot be told within {limit:?} whether the pod belongs to the mesh: {why}")]
    Undecided {
        /// How long was waited.
        limit: Duration,
        /// What is missing and what to do.
        why: String,
    },
    /// It was there, and is gone.
    #[error("the pod was deleted meanwhile")]
    Gone,
    /// The chain of plugins gave it no address.
    #[error(
        "the CNI plugins before meshgate-cni gave the pod no address: is meshgate-cni behind the main plugin in the chain?"
    )]
    NoAddress,
    /// Something takes too long.
    #[error("the pod is not served after {limit:?}: {awaited}")]
    TooSlow {
        /// How long was waited.
        limit: Duration,
        /// For what.
        awaited: String,
    },
    /// The worker has ended.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A sandbox on its way to the worker.
#[derive(Debug)]
pub(super) struct Admit {
    pub(super) sandbox: Sandbox,
    pub(super) reply: oneshot::Sender<Result<Admission, AdmissionError>>,
}

impl Handle {
    /// Enrols the pod of a new sandbox. Waits until the pod is captured and the proxy serves it, also when that fails at
    /// first: a proxy that restarts costs the pod a moment then, and not a new sandbox.
    ///
    /// # Errors
    /// When that does not happen in time. What was done stays, and goes on being retried.
    pub async fn admit(&self, sandbox: Sandbox, patience: Patience) -> Result<Admission, AdmissionError> {
        let deadline = Instant::now() + patience.served;
        timeout(patience.known, self.until_known(&sandbox.pod))
            .await
            .map_err(|_| self.undecided(patience.known, POD_UNKNOWN))??;
        let cookie = sandbox.netns.cookie;
        match timeout_at(deadline, self.ask(sandbox)).await {
            Ok(Err(AdmissionError::Failed(why))) => {
                match timeout_at(deadline, self.until_served(cookie)).await {
                    Ok(served) => Ok(served.map(|()| Admission::Captured)?),
                    Err(_) => Err(AdmissionError::Failed(why)),
                }
            }
            Ok(answer) => answer,
            Err(_) => Err(self.too_slow(patience.served, cookie)),
        }
    }

    /// Waits until the source has told of the pod.
    async fn until_known(&self, pod: &SandboxPod) -> Result<(), Stopped> {
        let (reply, answer) = oneshot::channel();
        let pod = pod.clone();
        self.send(Command::AwaitPod { pod, reply }).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// Hands the sandbox to the worker, and waits for its first success or failure.
    async fn ask(&self, sandbox: Sandbox) -> Result<Admission, AdmissionError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Admit(Box::new(Admit { sandbox, reply })))
            .await?;
        answer.await.map_err(|_| AdmissionError::Stopped(Stopped))?
    }

    /// Waits until the pod in this namespace is captured and served.
    async fn until_served(&self, netns: NetnsCookie) -> Result<(), Stopped> {
        let mut reports = self.reports();
        let served = reports.wait_for(|reports| {
            reports
                .values()
                .any(|report| report.netns == Some(netns) && report.state == State::Enabled)
        });
        served.await.map(drop).map_err(|_| Stopped)
    }

    /// That the source has not told something, and why not, if it is known to be in trouble.
    fn undecided(&self, limit: Duration, missing: &str) -> AdmissionError {
        let problems = self.problems.borrow();
        let stale = problems
            .iter()
            .find(|problem| problem.kind == ProblemKind::SourceStale);
        AdmissionError::Undecided {
            limit,
            why: stale.map_or_else(|| missing.to_owned(), |stale| stale.problem.clone()),
        }
    }

    /// What the pod in this namespace waits for. A pod of which nothing is reported is not decided about.
    fn too_slow(&self, limit: Duration, netns: NetnsCookie) -> AdmissionError {
        let reports = self.reports.borrow();
        let of_pod = reports.values().find(|report| report.netns == Some(netns));
        let decided = of_pod.filter(|report| report.wish != Reason::NamespaceUnknown.as_str());
        let Some(report) = decided else {
            return self.undecided(limit, NAMESPACE_UNKNOWN);
        };
        let reason = report.reason.clone().unwrap_or_default();
        let waiting = reports.values().filter(|report| report.state == State::Waiting);
        AdmissionError::TooSlow {
            limit,
            awaited: match waiting.count() {
                0 | 1 => reason,
                count => format!(
                    "{reason}; {count} pods of this node wait for it, and it takes one after the other"
                ),
            },
        }
    }
}

/// Plugins that wait until the source tells of their pods.
#[derive(Debug, Default)]
pub(super) struct Expected(Vec<(SandboxPod, oneshot::Sender<()>)>);

impl Expected {
    /// One more.
    pub(super) fn add(&mut self, pod: SandboxPod, reply: oneshot::Sender<()>) {
        self.0.push((pod, reply));
    }

    /// Tells those whose pods are there now; forgets those who gave up.
    pub(super) fn look(&mut self, catalog: &Catalog) {
        let is_over = |(pod, reply): &mut (SandboxPod, oneshot::Sender<()>)| {
            reply.is_closed() || catalog.pod_of_sandbox(pod).is_some()
        };
        for (_, reply) in self.0.extract_if(.., is_over) {
            // Who gave up has no use for the answer.
            let _ = reply.send(());
        }
    }
}

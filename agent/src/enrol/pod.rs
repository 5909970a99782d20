//! One pod, as the worker knows it.

use std::net::IpAddr;
use std::time::Duration;

use agent_core::enrolment::Reason;
use agent_core::entry::PodEntry;
use agent_core::facts::PodFacts;
use agent_core::ids::PodRef;
use agent_core::plan::{Event, Have, Redirection, Rules, State, is_undecided};
use agent_core::predecessor::Cleared;
use agent_core::wish::Wish;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::admission::{Admission, AdmissionError, Sandbox};
use super::report::Report;
use crate::pod_log::pod_log;
use crate::ports::{Netns, PortError, Reconciled};

/// A pod that is on the node, or of which something is left.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) pod: PodRef,
    pub(super) service_account: String,
    /// Its containers, as the source told them last.
    containers: Vec<String>,
    pub(super) wish: Wish,
    pub(super) have: Have,
    /// Open as long as `have` names it.
    pub(super) netns: Option<Netns>,
    /// What went wrong last, until the pod is as wished.
    pub(super) error: Option<String>,
    /// Failed attempts since the pod was last as wished.
    pub(super) attempts: u32,
    /// Whether it was looked at before.
    pub(super) is_known: bool,
    /// Since when it could be captured: its namespace is there, and it is not served yet.
    pub(super) since: Option<Instant>,
    /// Addresses that the CNI plugin gave to the pod's sandbox, until the source tells the same.
    sandbox: Vec<IpAddr>,
    /// CNI plugins that wait for the pod.
    admissions: Vec<oneshot::Sender<Result<Admission, AdmissionError>>>,
}

/// What the source tells of a pod beside what decides about it.
pub(super) struct Told {
    pub(super) pod: PodRef,
    service_account: String,
    carries: Redirection,
    addresses: Vec<IpAddr>,
    containers: Vec<String>,
}

impl Told {
    pub(super) fn of(facts: &PodFacts) -> Self {
        Self {
            pod: facts.pod.clone(),
            service_account: facts.service_account.clone(),
            carries: Redirection::carried_by(&facts.annotations),
            addresses: facts.ips.clone(),
            containers: facts.containers.clone(),
        }
    }
}

impl Pod {
    /// A pod that the maps hold when the agent starts. It is taken for gone until the source tells of it.
    pub(super) fn adopted(entry: PodEntry) -> Self {
        Self {
            have: Have::adopted(entry.clone()),
            ..Self::new(entry.pod)
        }
    }

    /// A pod that nothing was done for.
    pub(super) fn new(pod: PodRef) -> Self {
        Self {
            pod,
            service_account: String::new(),
            containers: Vec::new(),
            wish: Wish::Gone,
            have: Have::default(),
            netns: None,
            error: None,
            attempts: 0,
            is_known: false,
            since: None,
            sandbox: Vec::new(),
            admissions: Vec::new(),
        }
    }

    /// The addresses that the source tells while the sandbox is newer than what kubelet has reported: none, or those of
    /// an earlier sandbox.
    pub(super) fn correct_addresses(&mut self, facts: &mut PodFacts) {
        let agrees = |ip: &IpAddr| facts.ips.contains(ip);
        if self.sandbox.iter().all(agrees) && self.sandbox.len() == facts.ips.len() {
            self.sandbox.clear();
        } else if !self.sandbox.is_empty() {
            facts.ips.clone_from(&self.sandbox);
        }
    }

    /// A new sandbox is coming: the addresses of the last one do not count any more.
    pub(super) fn forget_sandbox(&mut self) {
        self.sandbox.clear();
    }

    /// Takes in what the source tells of the pod beside the wish.
    pub(super) fn told(&mut self, told: Told) {
        self.pod = told.pod;
        self.service_account = told.service_account;
        self.have.apply(&Event::Told(told.carries));
        self.have.apply(&Event::Addresses(&told.addresses));
        if !self.containers.is_empty() && self.containers != told.containers {
            self.have.apply(&Event::ContainersChanged);
        }
        self.containers = told.containers;
    }

    /// Holds the namespace that was found by these addresses, or notes that there is none.
    pub(super) fn sought(&mut self, addresses: &[IpAddr], found: Option<Netns>) {
        let netns = found.as_ref().map(|netns| netns.cookie);
        self.have.apply(&Event::Sought { addresses, netns });
        self.netns = found.or(self.netns.take());
    }

    /// Takes in how much of another agent's rules is gone.
    pub(super) fn cleared(&mut self, cleared: Cleared) {
        match cleared {
            Cleared::Gone => tracing::info!(pod = %self.pod, "the rules of Istio's agent are removed"),
            Cleared::Draining(connections) if self.have.rules == Rules::Present => tracing::info!(
                pod = %self.pod, connections,
                "the rules of Istio's agent are removed but for those that open connections need"
            ),
            Cleared::Draining(connections) => tracing::debug!(pod = %self.pod, connections, "still draining"),
        }
        self.have.apply(&Event::Cleared(cleared));
    }

    /// Takes in a new sandbox, and who waits until the pod is admitted to the mesh.
    pub(super) fn admit(
        &mut self,
        sandbox: Sandbox,
        reply: oneshot::Sender<Result<Admission, AdmissionError>>,
    ) {
        self.sought(&sandbox.addresses, Some(sandbox.netns));
        self.have.apply(&Event::Fresh);
        self.sandbox = sandbox.addresses;
        self.error = None;
        self.admissions.push(reply);
    }

    /// Notes a failure.
    pub(super) fn failed(&mut self, error: &PortError) {
        let text = error.to_string();
        if self.error.as_ref() == Some(&text) {
            pod_log!(debug, self.pod, "again: {text}");
        } else {
            pod_log!(warn, self.pod, "{text}");
            self.error = Some(text);
        }
    }

    /// Notes that there is no proxy that could answer: no fault of the pod's, and nothing for the log.
    pub(super) fn unanswered(&mut self, error: &PortError) {
        pod_log!(debug, self.pod, "{error}");
        self.error = Some(error.to_string());
    }

    /// Whether nothing is left to do or to remember.
    pub(super) fn is_over(&self) -> bool {
        self.wish == Wish::Gone && self.have.is_clean()
    }

    /// Notes that nothing can be done now, and says whether all is as wished. Closes the namespace of a pod that has left
    /// the mesh.
    pub(super) fn settled(&mut self) -> bool {
        let is_as_wished = !self.have.owes_retry(&self.wish);
        if is_as_wished {
            self.attempts = 0;
        }
        let is_draining = self.have.rules == Rules::Draining;
        if (is_as_wished || is_draining) && matches!(self.state(), State::Enabled | State::Outside) {
            self.error = None;
        }
        let is_out = !matches!(self.wish, Wish::Captured(_)) && !is_undecided(&self.wish);
        if is_out && self.have.is_clean() {
            self.have.forget_netns();
            self.netns = None;
        }
        is_as_wished
    }

    /// Answers the CNI plugins that wait, if there is an answer.
    pub(super) fn answer_admissions(&mut self) {
        if self.admissions.is_empty() {
            return;
        }
        let answer = match (&self.wish, &self.error) {
            (Wish::Captured(_), _) if self.state() == State::Enabled => Ok(Admission::Captured),
            (_, Some(error)) => Err(AdmissionError::Failed(error.clone())),
            (Wish::Captured(_), None) => return,
            // Kubelet tells no addresses before the sandbox is ready.
            (Wish::Outside(Reason::NoAddress), None) => Err(AdmissionError::NoAddress),
            (wish, None) if is_undecided(wish) => return,
            (Wish::Outside(reason), None) => Ok(Admission::Outside(*reason)),
            (Wish::Gone, None) => Err(AdmissionError::Gone),
        };
        for waiting in self.admissions.drain(..) {
            // A plugin that gave up has no use for the answer.
            let _ = waiting.send(answer.clone());
        }
    }

    /// What had happened to the pod that is looked at now.
    pub(super) fn event(&mut self) -> Reconciled {
        match (&self.wish, std::mem::replace(&mut self.is_known, true)) {
            (Wish::Gone, _) => Reconciled::Delete,
            (_, false) => Reconciled::Add,
            (_, true) => Reconciled::Update,
        }
    }

    /// How long the pod's enrolment took, if it has just ended; `began` is when this look at the pod did. A pod that
    /// the last agent captured is not enrolled anew.
    pub(super) fn enrolled(&mut self, began: Instant) -> Option<Duration> {
        if self.state() == State::Enabled {
            return self.since.take().map(|since| since.elapsed());
        }
        let is_wanted = matches!(self.wish, Wish::Captured(_)) && self.have.netns.is_some();
        self.since = match self.since {
            Some(since) if is_wanted => Some(since),
            None if is_wanted && self.have.entry.is_none() => Some(began),
            _ => None,
        };
        None
    }

    pub(super) fn state(&self) -> State {
        State::of(&self.have, &self.wish)
    }

    /// The pod, for people.
    pub(super) fn report(&self) -> Report {
        Report::of(&self.pod, &self.wish, &self.have, self.error.as_deref())
    }
}

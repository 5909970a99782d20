//! What is true of one pod, and how each event changes it.

use std::net::IpAddr;

use crate::entry::{NetnsCookie, PodEntry};
use crate::plan::{Redirection, Step};
use crate::predecessor::Cleared;
use crate::wish::Wish;

/// What is true of a pod. The default is a pod that nothing was done for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Have {
    /// The pod's network namespace, which is held open.
    pub netns: Option<NetnsCookie>,
    /// The addresses by which the namespace was last sought, sorted, whether it was found or not.
    pub sought_for: Option<Vec<IpAddr>>,
    /// What is attached.
    pub link: Link,
    /// What the maps hold.
    pub entry: Option<PodEntry>,
    /// What the proxy knows.
    pub proxy: ProxyView,
    /// What the pod's annotation says.
    pub carries: Redirection,
    /// Whether the annotation is being written.
    pub write: Write,
    /// What is known of rules that Istio's agent left in the namespace.
    pub rules: Rules,
    /// The addresses that the source told last, sorted.
    pub told_addresses: Vec<IpAddr>,
}

/// Rules that Istio's agent left in a pod's network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Nobody has looked.
    #[default]
    Unknown,
    /// They could not be looked for, or not be removed.
    Failed,
    /// There are some.
    Present,
    /// Those that new connections see are gone; the others stay for connections that were open before.
    Draining,
    /// It is time to look whether these connections are still open.
    Due,
    /// There are none.
    Gone,
}

impl Rules {
    /// Whether new connections see none of them.
    pub(super) fn are_harmless(self) -> bool {
        matches!(self, Self::Draining | Self::Due | Self::Gone)
    }
}

/// What is attached to a pod's network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Nothing.
    #[default]
    None,
    /// Something that an earlier agent left.
    Adopted(NetnsCookie),
    /// What these options need.
    Attached {
        /// The namespace.
        netns: NetnsCookie,
        /// As [`PodEntry::wire`].
        wire: bool,
        /// As [`PodEntry::inbound`].
        inbound: bool,
    },
}

impl Link {
    /// What an entry needs.
    pub(super) fn of(entry: &PodEntry) -> Self {
        Self::Attached {
            netns: entry.netns,
            wire: entry.wire,
            inbound: entry.inbound,
        }
    }

    /// The namespace.
    #[must_use]
    pub fn netns(self) -> Option<NetnsCookie> {
        match self {
            Self::None => None,
            Self::Adopted(netns) | Self::Attached { netns, .. } => Some(netns),
        }
    }
}

/// What the proxy knows of a pod, and what it said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyView {
    /// It was never told of the pod, or has let it go.
    #[default]
    Untold,
    /// It is being told.
    Asked,
    /// It could not be told: the next one that connects will be.
    Awaited,
    /// It did not take the pod.
    Refused,
    /// It is to be told again.
    Retry,
    /// It serves the pod. Stays so when it disconnects, since it goes on serving.
    Accepted,
    /// It is being told to let the pod go.
    Leaving,
}

/// Writing of the annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Write {
    /// None.
    #[default]
    Idle,
    /// One is under way.
    Running,
    /// The last one failed.
    Failed,
}

/// What happened to a pod.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// The source told of the pod, which carries this annotation.
    Told(Redirection),
    /// The source told these addresses of the pod.
    Addresses(&'a [IpAddr]),
    /// The namespace is that of a new sandbox, which no agent has seen before.
    Fresh,
    /// Rules of another agent were looked for, and were there or not.
    Looked(bool),
    /// They were removed as far as they can be now.
    Cleared(Cleared),
    /// The network namespace was sought by these addresses, or told together with them.
    Sought {
        /// The addresses.
        addresses: &'a [IpAddr],
        /// What was found.
        netns: Option<NetnsCookie>,
    },
    /// A step whose outcome comes later has begun.
    Started(&'a Step),
    /// A step succeeded.
    Done(&'a Step),
    /// A step failed.
    Failed(&'a Step),
    /// There was no proxy that could be told of the pod.
    NoProxy,
    /// A proxy has answered for all pods that it was told of when it connected.
    Snapshot {
        /// It did not take this one.
        refused: bool,
    },
    /// Containers of the pod were made anew, and maybe its network namespace.
    ContainersChanged,
    /// Somebody has removed what was attached.
    LinkLost,
    /// It is time to try again what failed.
    RetryDue,
}

impl Have {
    /// A pod that the maps hold when the agent starts.
    #[must_use]
    pub fn adopted(mut entry: PodEntry) -> Self {
        entry.addresses = super::sorted(entry.addresses.drain(..));
        Self {
            link: Link::Adopted(entry.netns),
            entry: Some(entry),
            ..Self::default()
        }
    }

    /// Whether the captured pod's entry says that the proxy serves it; `None` when it is not captured.
    #[must_use]
    pub fn is_enabled(&self) -> Option<bool> {
        self.entry.as_ref().map(|entry| entry.enabled)
    }

    /// Whether nothing of the pod is left in kernel and proxy.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.entry.is_none() && self.link == Link::None && self.proxy == ProxyView::Untold
    }

    /// The namespace is not held any more.
    pub fn forget_netns(&mut self) {
        self.netns = None;
        self.sought_for = None;
        self.rules = Rules::Unknown;
    }

    /// Whether something of the pod is in another namespace than this one.
    pub(super) fn is_elsewhere(&self, netns: NetnsCookie) -> bool {
        let entry = self.entry.as_ref().map(|entry| entry.netns);
        [entry, self.link.netns()]
            .into_iter()
            .flatten()
            .any(|other| other != netns)
    }

    /// Whether a settled pod is not yet as wished, and [`Event::RetryDue`] may change that. Without a proxy it cannot.
    #[must_use]
    pub fn owes_retry(&self, wish: &Wish) -> bool {
        let unwritten = self.write == Write::Failed;
        match wish {
            Wish::Captured(capture) => {
                let unfound = self.netns.is_none() && !capture.addresses.is_empty();
                let undone = matches!(self.rules, Rules::Failed | Rules::Draining);
                unfound || unwritten || undone || self.proxy == ProxyView::Refused
            }
            Wish::Outside(_) => unwritten || self.rules == Rules::Failed,
            Wish::Gone => false,
        }
    }

    /// Takes in what happened.
    pub fn apply(&mut self, event: &Event<'_>) {
        match *event {
            Event::Told(carries) => self.told(carries),
            Event::Addresses(addresses) => self.told_addresses = super::sorted(addresses.iter().copied()),
            Event::Looked(true) => self.rules = Rules::Present,
            Event::Looked(false) | Event::Fresh | Event::Cleared(Cleared::Gone) => self.rules = Rules::Gone,
            Event::Cleared(Cleared::Draining(_)) => self.rules = Rules::Draining,
            Event::Sought { addresses, netns } => self.sought(addresses, netns),
            Event::Started(step) => self.started(step),
            Event::Done(step) => self.done(step),
            Event::Failed(step) => self.failed(step),
            Event::NoProxy => self.proxy = ProxyView::Awaited,
            Event::Snapshot { refused } => self.proxy = self.after_snapshot(refused),
            Event::ContainersChanged => self.sought_for = None,
            Event::LinkLost => self.link = Link::None,
            Event::RetryDue => self.retry_due(),
        }
    }

    fn told(&mut self, carries: Redirection) {
        // What was told while a write is under way may be older than it.
        if self.write != Write::Running {
            self.carries = carries;
        }
        self.seek_again();
    }

    fn seek_again(&mut self) {
        if self.netns.is_none() {
            self.sought_for = None;
        }
    }

    /// What was found by other addresses before and is not found now stays: nothing contradicts it.
    fn sought(&mut self, addresses: &[IpAddr], netns: Option<NetnsCookie>) {
        self.sought_for = Some(super::sorted(addresses.iter().copied()));
        let is_first = netns.is_some() && self.netns.is_none();
        let was_told = !matches!(
            self.proxy,
            ProxyView::Untold | ProxyView::Asked | ProxyView::Leaving
        );
        if is_first && was_told {
            // So far the proxy could only be asked to keep the pod, for want of a descriptor.
            self.proxy = ProxyView::Retry;
        }
        if self.netns.is_some() && netns.is_some() && netns != self.netns {
            self.rules = Rules::Unknown;
        }
        self.netns = netns.or(self.netns);
    }

    fn started(&mut self, step: &Step) {
        match step {
            Step::ProxyAdd => self.proxy = ProxyView::Asked,
            Step::ProxyDel => self.proxy = ProxyView::Leaving,
            Step::Annotate(_) => self.write = Write::Running,
            Step::FindNetns(_)
            | Step::Attach(_)
            | Step::Capture(_)
            | Step::Look
            | Step::Clear(..)
            | Step::Release
            | Step::Detach(_) => {}
        }
    }

    fn done(&mut self, step: &Step) {
        match step {
            Step::FindNetns(_) => {}
            // Unless an event told otherwise.
            Step::Look if self.rules == Rules::Present => {}
            Step::Clear(_, clearing) if clearing.waits && self.rules == Rules::Draining => {}
            Step::Look | Step::Clear(..) => self.rules = Rules::Gone,
            Step::Attach(entry) => self.link = Link::of(entry),
            Step::Capture(entry) => self.entry = Some((**entry).clone()),
            Step::Release => self.entry = None,
            Step::Detach(_) => self.link = Link::None,
            // A pod without a descriptor is only remembered, and named in the next snapshot.
            Step::ProxyAdd if self.netns.is_none() => self.proxy = ProxyView::Awaited,
            Step::ProxyAdd => self.proxy = ProxyView::Accepted,
            Step::ProxyDel => self.proxy = ProxyView::Untold,
            Step::Annotate(state) => (self.carries, self.write) = (*state, Write::Idle),
        }
    }

    fn failed(&mut self, step: &Step) {
        match step {
            Step::ProxyAdd => self.proxy = ProxyView::Refused,
            // Whether the proxy heard of it is not known: it may be told either way again.
            Step::ProxyDel => self.proxy = ProxyView::Retry,
            Step::Annotate(_) => self.write = Write::Failed,
            Step::Look | Step::Clear(..) => self.rules = Rules::Failed,
            Step::FindNetns(_) | Step::Attach(_) | Step::Capture(_) | Step::Release | Step::Detach(_) => {}
        }
    }

    fn after_snapshot(&self, refused: bool) -> ProxyView {
        match self.proxy {
            ProxyView::Awaited | ProxyView::Accepted | ProxyView::Refused if refused => ProxyView::Refused,
            // It was served before the snapshot began, so it was in the snapshot.
            ProxyView::Awaited if self.is_enabled() == Some(true) => ProxyView::Accepted,
            // Whether this one was in the snapshot is not known; to add it twice does no harm.
            ProxyView::Awaited | ProxyView::Refused => ProxyView::Retry,
            other => other,
        }
    }

    fn retry_due(&mut self) {
        if self.proxy == ProxyView::Refused {
            self.proxy = ProxyView::Retry;
        }
        if self.write == Write::Failed {
            self.write = Write::Idle;
        }
        self.rules = match self.rules {
            Rules::Failed => Rules::Unknown,
            Rules::Draining => Rules::Due,
            other => other,
        };
        self.seek_again();
    }
}

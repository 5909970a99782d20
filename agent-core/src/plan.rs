//! What is to be done next for one pod, from what is true of it and what should be. Asked again after each step, so
//! that a step which failed, or a wish which changed half-way, needs no case of its own.

use std::net::IpAddr;

use crate::enrolment::Reason;
use crate::entry::{NetnsCookie, PodEntry};
use crate::facts::StringMap;
use crate::labels::{REDIRECTION, REDIRECTION_ENABLED, REDIRECTION_PENDING};
use crate::predecessor::Clearing;
use crate::wish::{Capture, Wish};

mod have;

pub use have::{Event, Have, Link, ProxyView, Rules, Write};

/// What the annotation `ambient.istio.io/redirection` says of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redirection {
    /// Captured and served: `enabled`.
    Enabled,
    /// Captured, but the proxy has not accepted it yet: `pending`.
    Pending,
    /// Not captured: no annotation.
    #[default]
    Absent,
}

impl Redirection {
    /// What a pod with these annotations carries.
    #[must_use]
    pub fn carried_by(annotations: &StringMap) -> Self {
        match annotations.get(REDIRECTION).map(String::as_str) {
            Some(REDIRECTION_ENABLED) => Self::Enabled,
            Some(REDIRECTION_PENDING) => Self::Pending,
            _ => Self::Absent,
        }
    }
}

/// One thing to do for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Find the pod's network namespace, which owns one of these addresses.
    FindNetns(Vec<IpAddr>),
    /// Attach the programs that capture needs in the namespace of this entry.
    Attach(Box<PodEntry>),
    /// Make the proxy serve the pod.
    ProxyAdd,
    /// Write the pod's entry: from here on the pod is captured.
    Capture(Box<PodEntry>),
    /// Look whether Istio's agent left rules in the namespace, which is held.
    Look,
    /// Remove what Istio's agent left in this namespace.
    Clear(NetnsCookie, Clearing),
    /// Write the annotation, or clear it.
    Annotate(Redirection),
    /// Remove the pod's entry: its connections are direct again.
    Release,
    /// Make the proxy let the pod go.
    ProxyDel,
    /// Detach the programs from this namespace.
    Detach(NetnsCookie),
}

/// Answer of [`next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This is to be done.
    Do(Step),
    /// A call is under way whose answer decides.
    Wait,
    /// Nothing can be done now; [`Have::owes_retry`] says whether all is as wished.
    Settled,
}

impl Next {
    fn or_else(self, then: impl FnOnce() -> Self) -> Self {
        if self == Self::Settled { then() } else { self }
    }
}

/// The next step for a pod.
///
/// A pod is enrolled make-before-break: the proxy listens in it before its connections go there. Only if no proxy takes
/// it, it is captured all the same, and its connections are refused instead of leaving uncaptured. It leaves the mesh
/// the other way round: peers learn it first, then its traffic is direct, then the proxy goes. When it has ended, peers
/// come last, because its address may belong to another pod already.
#[must_use]
pub fn next(have: &Have, wish: &Wish) -> Next {
    match wish {
        Wish::Captured(capture) => enrol(have, capture),
        wish if is_undecided(wish) => stay(have),
        Wish::Outside(Reason::Terminal) => remove(have).or_else(|| annotate(have, Redirection::Absent)),
        Wish::Outside(_) => leave(have),
        Wish::Gone => remove(have),
    }
}

/// Whether something that the wish depends on is not known yet: no reason to capture a pod, nor to let it go.
#[must_use]
pub fn is_undecided(wish: &Wish) -> bool {
    matches!(wish, Wish::Outside(Reason::NoAddress | Reason::NamespaceUnknown))
}

/// All steps that lie ahead if each succeeds, as far as they can be foretold.
#[must_use]
pub fn plan(have: &Have, wish: &Wish) -> Vec<Step> {
    let mut have = have.clone();
    let mut steps = Vec::new();
    while let Next::Do(step) = next(&have, wish) {
        have.apply(&Event::Done(&step));
        let is_a_question = matches!(step, Step::FindNetns(_));
        steps.push(step);
        if is_a_question {
            break;
        }
    }
    steps
}

fn enrol(have: &Have, capture: &Capture) -> Next {
    // The namespace has also what counts for a newer pod: a pod that has lost all is captured too, not left alone.
    let lost = capture.lost.iter().map(|(ip, _)| *ip);
    let addresses = sorted(capture.addresses.iter().copied().chain(lost));
    if !addresses.is_empty() && have.sought_for.as_ref() != Some(&addresses) {
        return Next::Do(Step::FindNetns(addresses));
    }
    let captured = have.entry.as_ref();
    let Some(netns) = have.netns.or(captured.map(|entry| entry.netns)) else {
        return Next::Settled;
    };
    if have.is_elsewhere(netns) {
        return remove(have);
    }
    stay(have)
        .or_else(|| look(have))
        .or_else(|| attach(have, capture, netns))
        .or_else(|| update(have, capture, netns))
        .or_else(|| clear(have))
        .or_else(|| ask(have))
        .or_else(|| tell(have))
}

/// The proxy must know a captured pod whatever else fails: what the first snapshot does not name, it stops to serve.
fn stay(have: &Have) -> Next {
    match have.proxy {
        ProxyView::Untold | ProxyView::Retry if have.entry.is_some() => Next::Do(Step::ProxyAdd),
        _ => Next::Settled,
    }
}

fn look(have: &Have) -> Next {
    match have.rules {
        Rules::Unknown if have.netns.is_some() => Next::Do(Step::Look),
        _ => Next::Settled,
    }
}

/// Without a descriptor of the namespace, what is attached there stays as it is.
fn attach(have: &Have, capture: &Capture, netns: NetnsCookie) -> Next {
    let entry = have.entry_for(capture, netns, have.is_enabled().unwrap_or_default());
    if have.netns.is_none() || have.link == Link::of(&entry) {
        return Next::Settled;
    }
    Next::Do(Step::Attach(Box::new(entry)))
}

/// Writes the entry unless the pod is not captured yet and the proxy may still take it. A captured pod is updated in
/// place, whatever the proxy does. A pod that rules of another agent capture is captured by us when the proxy takes it, and
/// by these until then.
fn update(have: &Have, capture: &Capture, netns: NetnsCookie) -> Next {
    let enabled = match have.proxy {
        ProxyView::Accepted => Some(true),
        ProxyView::Refused | ProxyView::Awaited if have.is_held_by_rules() => None,
        ProxyView::Refused => Some(false),
        ProxyView::Awaited => Some(have.is_enabled().unwrap_or_default()),
        // Announced by an agent that died then: not captured yet, and so it stays until the proxy takes it.
        ProxyView::Untold | ProxyView::Retry | ProxyView::Asked | ProxyView::Leaving => {
            have.is_enabled().filter(|_| !have.is_blank())
        }
    };
    let entry = enabled.map(|enabled| have.entry_for(capture, netns, enabled));
    match entry {
        Some(entry) if have.entry.as_ref() != Some(&entry) => Next::Do(Step::Capture(Box::new(entry))),
        _ => Next::Settled,
    }
}

/// Removes the rules of an agent that was here before us, now that the pod is captured without them.
fn clear(have: &Have) -> Next {
    let (Some(netns), Some(entry)) = (have.netns, &have.entry) else {
        return Next::Settled;
    };
    match have.rules {
        _ if have.is_held_by_rules() => Next::Settled,
        Rules::Present | Rules::Due => Next::Do(Step::Clear(
            netns,
            Clearing {
                keeps_routes: entry.wire,
                waits: true,
            },
        )),
        Rules::Unknown | Rules::Failed | Rules::Draining | Rules::Gone => Next::Settled,
    }
}

fn ask(have: &Have) -> Next {
    match have.proxy {
        ProxyView::Untold | ProxyView::Retry => Next::Do(Step::ProxyAdd),
        ProxyView::Asked | ProxyView::Leaving => Next::Wait,
        ProxyView::Awaited | ProxyView::Refused | ProxyView::Accepted => Next::Settled,
    }
}

/// Tells the state, but an adopted pod's only when a proxy has confirmed or denied it, and another agent's only when it is
/// ours.
fn tell(have: &Have) -> Next {
    match (have.is_enabled(), have.proxy) {
        _ if have.is_held_by_rules() => Next::Settled,
        (Some(true), ProxyView::Awaited) => Next::Settled,
        (Some(true), _) => annotate(have, Redirection::Enabled),
        _ => annotate(have, Redirection::Pending),
    }
}

fn annotate(have: &Have, wanted: Redirection) -> Next {
    match have.write {
        Write::Running => Next::Wait,
        Write::Idle if have.carries != wanted => Next::Do(Step::Annotate(wanted)),
        // An API server that does not answer holds nothing up; the retry comes by itself.
        Write::Idle | Write::Failed => Next::Settled,
    }
}

/// Lets a pod go that is to go on without the mesh. Rules go first: without the proxy they would lead nowhere.
fn leave(have: &Have) -> Next {
    let has_rules = have.rules != Rules::Gone;
    let known = have.entry.as_ref().map(|entry| entry.netns).or(have.link.netns());
    let was_enrolled = known.is_some() || have.carries != Redirection::Absent;
    match (have.rules, known.or(have.netns)) {
        // It is tried again, and the pod stays as it is until then.
        (Rules::Failed, _) => Next::Settled,
        (_, Some(netns)) if has_rules && was_enrolled => Next::Do(Step::Clear(
            netns,
            Clearing {
                keeps_routes: false,
                waits: false,
            },
        )),
        // Enrolled by another agent, it seems.
        (_, None) if has_rules && was_enrolled && have.may_be_sought() => {
            Next::Do(Step::FindNetns(have.told_addresses.clone()))
        }
        _ => annotate(have, Redirection::Absent).or_else(|| remove(have)),
    }
}

/// Removes the pod from kernel and proxy.
fn remove(have: &Have) -> Next {
    if have.entry.is_some() {
        return Next::Do(Step::Release);
    }
    match (have.proxy, have.link.netns()) {
        // Proxies answer in order, but a call that is under way may not have been sent yet.
        (ProxyView::Asked | ProxyView::Leaving, _) => Next::Wait,
        (ProxyView::Untold, Some(netns)) => Next::Do(Step::Detach(netns)),
        (ProxyView::Untold, None) => Next::Settled,
        _ => Next::Do(Step::ProxyDel),
    }
}

impl Have {
    /// The entry of a pod as it can be now: rules of another agent would lead the packets of `wire` mode round in a circle,
    /// so it comes when these are gone.
    fn entry_for(&self, capture: &Capture, netns: NetnsCookie, enabled: bool) -> PodEntry {
        let is_wire = self.entry.as_ref().is_some_and(|entry| entry.wire);
        let entry = entry(capture, netns, enabled);
        PodEntry {
            wire: entry.wire && (is_wire || self.rules.are_harmless()),
            ..entry
        }
    }

    /// Whether rules of another agent capture the pod, and we do not: not yet, or we had only begun when the agent died.
    fn is_held_by_rules(&self) -> bool {
        self.rules == Rules::Present && self.is_blank()
    }

    /// Whether the maps hold no address of the pod.
    fn is_blank(&self) -> bool {
        self.entry.as_ref().is_none_or(PodEntry::is_blank)
    }

    /// Whether the namespace was not sought by the addresses that were told.
    fn may_be_sought(&self) -> bool {
        !self.told_addresses.is_empty() && self.sought_for.as_ref() != Some(&self.told_addresses)
    }
}

/// The entry of a pod. Connections leave from the pod's first address of a family, in the order of its status.
fn entry(capture: &Capture, netns: NetnsCookie, enabled: bool) -> PodEntry {
    let first = |of_family: fn(&IpAddr) -> bool| capture.addresses.iter().copied().find(of_family);
    PodEntry {
        pod: capture.pod.clone(),
        netns,
        network: capture.network.clone(),
        addresses: sorted(capture.addresses.iter().copied()),
        source4: first(IpAddr::is_ipv4),
        source6: first(IpAddr::is_ipv6),
        wire: capture.options.wire,
        dns: capture.options.dns_capture,
        inbound: capture.options.inbound,
        enabled,
    }
}

/// Addresses as entries hold them, so that another order is no other set.
fn sorted(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut addresses: Vec<_> = addresses.collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Where a pod is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not captured, as it should be.
    Outside,
    /// To be captured, and not yet: its network namespace is missing or the proxy has not answered.
    Waiting,
    /// Captured; no proxy has confirmed it: without a proxy that listens its connections are refused.
    Pending,
    /// Captured and served.
    Enabled,
    /// To be released, and not yet.
    Leaving,
}

impl State {
    /// The state of a pod.
    #[must_use]
    pub fn of(have: &Have, wish: &Wish) -> Self {
        let is_wanted = matches!(wish, Wish::Captured(_));
        match have.is_enabled() {
            None if is_wanted => Self::Waiting,
            None => Self::Outside,
            Some(_) if !is_wanted && !is_undecided(wish) => Self::Leaving,
            Some(true) if have.proxy == ProxyView::Accepted => Self::Enabled,
            Some(_) => Self::Pending,
        }
    }

    /// A name that does not change between versions, for JSON and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::Waiting => "waiting",
            Self::Pending => "pending",
            Self::Enabled => "enabled",
            Self::Leaving => "leaving",
        }
    }
}

#[cfg(test)]
mod tests;

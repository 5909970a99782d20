//! What people are told of each pod.

use std::collections::BTreeMap;
use std::net::IpAddr;

use agent_core::entry::NetnsCookie;
use agent_core::ids::{PodRef, PodUid};
use agent_core::plan::{Have, ProxyView, Rules, State};
use agent_core::wish::{Capture, Wish};

use crate::pod_log::pod_log;

/// All pods of the node, and those of which something is left.
pub type Reports = BTreeMap<PodUid, Report>;

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// UID, namespace and name.
    pub pod: PodRef,
    /// What should be: `captured`, `gone`, or the name of the [`agent_core::enrolment::Reason`] why it is outside.
    pub wish: &'static str,
    /// What is.
    pub state: State,
    /// Why: the last error, else the reason of the wish, else what is awaited.
    pub reason: Option<String>,
    /// The last error of a step that is being tried again. That a pod waits for a proxy is told by its state alone.
    pub error: Option<String>,
    /// The network namespace, when known.
    pub netns: Option<NetnsCookie>,
    /// The addresses that are captured, or should be.
    pub addresses: Vec<IpAddr>,
}

impl Report {
    pub(super) fn of(pod: &PodRef, wish: &Wish, have: &Have, error: Option<&str>) -> Self {
        let state = State::of(have, wish);
        let entry = have.entry.as_ref();
        Self {
            pod: pod.clone(),
            wish: match wish {
                Wish::Captured(_) => "captured",
                Wish::Outside(reason) => reason.as_str(),
                Wish::Gone => "gone",
            },
            state,
            error: error
                .filter(|_| have.proxy != ProxyView::Awaited)
                .map(str::to_owned),
            reason: error.map(str::to_owned).or_else(|| reason(wish, have, state)),
            netns: have.netns.or(entry.map(|entry| entry.netns)),
            addresses: match wish {
                Wish::Captured(capture) => capture.addresses.clone(),
                _ => entry.map(|entry| entry.addresses.clone()).unwrap_or_default(),
            },
        }
    }
}

impl Report {
    /// Says in the log which state the pod has come into.
    pub(super) fn log(&self) {
        let state = self.state.as_str();
        let reason = self.reason.as_deref().unwrap_or_default();
        if self.state == State::Enabled {
            pod_log!(info, self.pod, state, "captured and served");
        } else {
            pod_log!(debug, self.pod, state, "{reason}");
        }
    }
}

fn reason(wish: &Wish, have: &Have, state: State) -> Option<String> {
    match (wish, state) {
        (Wish::Outside(reason), _) => Some(format!("the pod {reason}")),
        (Wish::Captured(capture), State::Waiting) if have.netns.is_none() => lost(capture).or_else(|| Some("no process of the pod is running yet".to_owned())),
        (Wish::Captured(_), State::Waiting) => Some(
            "the proxy has not answered yet: it is slow or busy, see its log and its CPU limit".to_owned(),
        ),
        (Wish::Captured(_), State::Pending) if have.proxy == ProxyView::Awaited => Some(
            "no proxy has confirmed the pod since the agent started; is ztunnel running on this node?"
                .to_owned(),
        ),
        (Wish::Captured(_), State::Enabled) if matches!(have.rules, Rules::Draining | Rules::Due) => Some(
            "connections from before the switch-over are open: the rules of Istio's agent that they need stay \
             until they end"
                .to_owned(),
        ),
        (Wish::Captured(capture), _) => lost(capture),
        _ => None,
    }
}

fn lost(capture: &Capture) -> Option<String> {
    let (ip, owner) = capture.lost.first()?;
    Some(format!("its address {ip} belongs to the newer pod {owner}"))
}

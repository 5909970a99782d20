//! News of the proxies: one came or went, or has answered for all pods.

use std::collections::BTreeMap;

use agent_core::ids::{PodRef, PodUid};
use agent_core::plan::Event;

use super::Enrolment;
use crate::ports::{Datapath, FindNetns, PodStatus, Proxy, ProxyPeer};

/// The proxy's words, and which of the pod's processes have the ports that it needs: it tells only that it cannot listen.
pub(super) fn refusal(finder: &mut impl FindNetns, pod: &PodRef, words: String) -> String {
    let holders = finder.holders(pod);
    holders
        .iter()
        .fold(words, |words, holder| format!("{words}; {holder}"))
}

impl<D, P, S, F> Enrolment<D, P, S, F>
where
    D: Datapath,
    P: Proxy + 'static,
    S: PodStatus + 'static,
    F: FindNetns,
{
    pub(super) fn proxies_changed(&mut self, alive: Vec<ProxyPeer>) {
        let is_over = |peer: &ProxyPeer| !alive.contains(peer);
        let one_left = self.proxies.iter().any(is_over);
        self.proxies = alive;
        if one_left {
            self.retire_proxies();
        }
    }

    pub(super) fn retire_proxies(&mut self) {
        if let Err(error) = self.ports.datapath.retire_proxies(&self.proxies) {
            tracing::warn!("{error}");
        }
    }

    pub(super) fn snapshot_done(&mut self, refused: Vec<(PodUid, String)>) {
        let mut refused: BTreeMap<_, _> = refused.into_iter().collect();
        for (uid, pod) in &mut self.pods {
            let refusal = refused.remove(uid);
            pod.have.apply(&Event::Snapshot {
                refused: refusal.is_some(),
            });
            if let Some(text) = refusal {
                let text = self::refusal(&mut self.ports.finder, &pod.pod, text);
                pod.error = Some(format!("the proxy refuses the pod: {text}"));
            }
            self.queue.push(uid);
        }
    }
}

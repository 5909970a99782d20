//! What the plugin was answered since the agent started, counted.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// The numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Answers to the plugin's events by HTTP status (Istio's `istio_cni_plugin_requests_total`).
    pub answers: BTreeMap<u16, u64>,
    /// Pods that were let through uncaptured, because it could not be told whether they belong to the mesh and the
    /// failure policy is Ignore.
    pub let_through: u64,
    /// Lines of the plugin's log that could not be read.
    pub dropped_lines: u64,
}

/// Counts.
#[derive(Clone, Debug, Default)]
pub struct Counters(watch::Sender<Stats>);

impl Counters {
    /// The numbers, now and as they change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Stats> {
        self.0.subscribe()
    }

    pub(super) fn answered(&self, status: u16) {
        self.0
            .send_modify(|stats| *stats.answers.entry(status).or_default() += 1);
    }

    pub(super) fn let_through(&self) {
        self.0.send_modify(|stats| stats.let_through += 1);
    }

    pub(super) fn dropped_lines(&self, count: usize) {
        self.0
            .send_modify(|stats| stats.dropped_lines += u64::try_from(count).unwrap_or(u64::MAX));
    }
}

//! Keeps `status.json` true: gathers what the parts say, and writes it when something changed.

use std::path::PathBuf;
use std::time::Duration;

use agent_core::facts::Place;
use agent_core::plan::State;

use crate::config::Paths;
use crate::enrol::{self, Handle};
use crate::report::{PodReport, Problem, ProxyReport, Report, ZdsErrors};
use crate::zds::Zds;

/// Changes within this time are written once.
const TOGETHER: Duration = Duration::from_millis(20);

/// The writer.
pub(super) struct Account {
    run_dir: PathBuf,
    about: Report,
    zds: Zds,
    handle: Handle,
}

impl Account {
    pub(super) fn new(paths: &Paths, place: &Place, source: &str, zds: Zds, handle: Handle) -> Self {
        let about = Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            cluster: place.cluster().0.clone(),
            node: place.node.name.clone(),
            source: source.to_owned(),
            ..Report::default()
        };
        Self {
            run_dir: paths.run_dir.clone(),
            about,
            zds,
            handle,
        }
    }

    /// Writes at once and after each change.
    ///
    /// # Errors
    /// When the run dir cannot be written.
    pub(super) async fn keep(self) -> anyhow::Result<()> {
        let (mut pods, mut problems) = (self.handle.reports(), self.handle.problems());
        let mut events = self.zds.events();
        let mut written = Report::default();
        loop {
            let now = self.gather();
            if now != written {
                now.write(&self.run_dir)?;
                written = now;
            }
            tokio::select! {
                changed = pods.changed() => changed?,
                changed = problems.changed() => changed?,
                // A reader that lags has missed nothing that the next gathering does not see.
                _ = events.recv() => {}
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    fn gather(&self) -> Report {
        let stats = self.zds.stats();
        let proxies = self.zds.connections().into_iter().map(|connection| ProxyReport {
            pid: connection.peer.pid,
            cgroup: connection.peer.cgroup.display().to_string(),
            synced: connection.snapshot_done,
        });
        let problems = self
            .handle
            .problems()
            .borrow()
            .iter()
            .map(|problem| Problem {
                object: problem.object.clone(),
                problem: problem.problem.clone(),
                fix: problem.fix.clone(),
            })
            .collect();
        Report {
            proxies: proxies.collect(),
            zds_errors: ZdsErrors {
                protocol: stats.protocol_errors,
                timeout: stats.timeouts,
                unknown_peer: stats.unknown_peers,
                attach: stats.attach_failures,
            },
            pods: self.handle.reports().borrow().values().map(pod).collect(),
            problems,
            ..self.about.clone()
        }
    }
}

fn pod(report: &enrol::Report) -> PodReport {
    PodReport {
        uid: report.pod.uid.0.clone(),
        namespace: report.pod.namespace.clone(),
        name: report.pod.name.clone(),
        state: state(report.state).to_owned(),
        reason: report.reason.clone().unwrap_or_default(),
    }
}

/// The state in the words of docs/cli.md.
const fn state(state: State) -> &'static str {
    match state {
        State::Outside => "outside",
        State::Waiting => "waiting",
        State::Pending => "pending",
        State::Enabled => "enabled",
        State::Leaving => "leaving",
    }
}

//! Keeps `status.json` true: gathers what the parts say, and writes it when something changed.

use std::path::PathBuf;
use std::time::Duration;

use agent_core::plan::State;

use tokio::sync::{Notify, watch};

use crate::blocking::blocking;
use crate::cni::Stats;
use crate::config::{Paths, RunArgs};
use crate::enrol::{self, Handle};
use crate::install;
use crate::ops::{self, Control};
use crate::report::{
    self, CniReport, ConditionReport, PodReport, Problem, ProxyReport, RepairReport, Report, ZdsErrors,
};
use crate::zds::Zds;

/// Changes within this time are written once.
const TOGETHER: Duration = Duration::from_millis(20);

/// Pause after a write that failed.
const RETRY: Duration = Duration::from_secs(5);

/// The writer.
pub(super) struct Account {
    run_dir: PathBuf,
    about: Report,
    parts: Parts,
}

/// The parts that have something to say.
pub(super) struct Parts {
    pub(super) zds: Zds,
    pub(super) handle: Handle,
    pub(super) turned_away: watch::Receiver<Vec<Problem>>,
    pub(super) cni: watch::Receiver<Stats>,
    pub(super) conditions: watch::Receiver<ops::State>,
    pub(super) install: watch::Receiver<install::Stats>,
}

impl Account {
    pub(super) fn new(paths: &Paths, args: &RunArgs, source: &str, parts: Parts) -> Self {
        let place = args.place();
        let about = Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            cluster: place.cluster().0.clone(),
            node: place.node.name.clone(),
            source: source.to_owned(),
            sockets: vec![
                args.zds_socket.clone(),
                args.plugin_socket(),
                args.log_socket(),
                Control::path(&paths.run_dir),
            ],
            ..Report::default()
        };
        Self {
            run_dir: paths.run_dir.clone(),
            about,
            parts,
        }
    }

    /// With what the start has put right.
    pub(super) fn after(mut self, repairs: RepairReport) -> Self {
        self.about.repairs = repairs;
        self
    }

    /// Writes at once, after each change, and when the file was `lost`. One that cannot be written is said in the log and
    /// tried again: the pods must not suffer from a full disk.
    ///
    /// # Errors
    /// When the worker has ended.
    pub(super) async fn keep(self, lost: &Notify) -> anyhow::Result<()> {
        let (mut pods, mut problems) = (self.parts.handle.reports(), self.parts.handle.problems());
        let (mut events, mut turned_away) = (self.parts.zds.events(), self.parts.turned_away.clone());
        let (mut cni, mut conditions) = (self.parts.cni.clone(), self.parts.conditions.clone());
        let mut install = self.parts.install.clone();
        let mut repairs = self.parts.handle.repairs();
        let mut written = None;
        loop {
            let now = self.gather();
            if written.as_ref() != Some(&now) {
                written = self.write(now).await;
            }
            tokio::select! {
                changed = pods.changed() => changed?,
                changed = problems.changed() => changed?,
                changed = turned_away.changed() => changed?,
                changed = cni.changed() => changed?,
                changed = install.changed() => changed?,
                changed = conditions.changed() => changed?,
                changed = repairs.changed() => changed?,
                () = lost.notified() => written = None,
                () = tokio::time::sleep(RETRY), if written.is_none() => {}
                // A reader that lags has missed nothing that the next gathering does not see.
                _ = events.recv() => {}
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// On a thread of its own: a slow disk must not keep pods waiting. Returns what is there now.
    async fn write(&self, report: Report) -> Option<Report> {
        let run_dir = self.run_dir.clone();
        match blocking(move || report.write(&run_dir).map(|()| report)).await {
            Ok(report) => Some(report),
            Err(error) => {
                tracing::warn!("writing {}: {error}", report::path(&self.run_dir).display());
                None
            }
        }
    }

    fn gather(&self) -> Report {
        let stats = self.parts.zds.stats();
        let proxies = self
            .parts
            .zds
            .connections()
            .into_iter()
            .map(|connection| ProxyReport {
                pid: connection.peer.pid,
                cgroup: connection.peer.cgroup.display().to_string(),
                synced: connection.snapshot_done,
            });
        let mut problems = self.parts.turned_away.borrow().clone();
        let known = self
            .parts
            .handle
            .problems()
            .borrow()
            .iter()
            .map(|problem| Problem {
                object: problem.object.clone(),
                problem: problem.problem.clone(),
                fix: problem.fix.clone(),
            })
            .collect::<Vec<_>>();
        problems.extend(known);
        problems.extend(self.parts.install.borrow().problem.clone());
        problems.extend(self.parts.handle.reports().borrow().values().filter_map(failed));
        let repaired = *self.parts.handle.repairs().borrow();
        let at_start = self.about.repairs;
        Report {
            conditions: self.parts.conditions.borrow().iter().map(condition).collect(),
            repairs: RepairReport {
                pins: repaired.pins,
                rows: repaired.rows,
                ..at_start
            },
            proxies: proxies.collect(),
            zds_errors: ZdsErrors {
                protocol: stats.protocol_errors,
                timeout: stats.timeouts,
                unknown_peer: stats.unknown_peers,
                attach: stats.attach_failures,
            },
            cni: CniReport::from(&*self.parts.cni.borrow()),
            pods: self.parts.handle.reports().borrow().values().map(pod).collect(),
            problems,
            ..self.about.clone()
        }
    }
}

impl From<&Stats> for CniReport {
    fn from(stats: &Stats) -> Self {
        Self {
            answers: stats.answers.clone(),
            let_through: stats.let_through,
            dropped_log_lines: stats.dropped_lines,
        }
    }
}

/// A step for a pod fails again and again.
fn failed(report: &enrol::Report) -> Option<Problem> {
    Some(Problem {
        object: format!("pod {}", report.pod),
        problem: report.error.clone()?,
        fix: "it is tried again by itself, at least every 5 s".to_owned(),
    })
}

fn condition((name, missing): (&&'static str, &Option<String>)) -> ConditionReport {
    ConditionReport {
        name: (*name).to_owned(),
        ready: missing.is_none(),
        missing: missing.clone().unwrap_or_default(),
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

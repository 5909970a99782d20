//! Tells the owners of pods what keeps their pods from being captured, where the source has a place for it.

use std::time::Duration;

use agent_core::announce::{Announcer, Reason, Trouble};
use agent_core::plan::State;
use agent_core::problem::ProblemKind;
use tokio::time::{Instant, sleep, sleep_until};

use crate::enrol::{Handle, Report};
use crate::ports::{PodEvents, PortError};

/// Changes within this time are looked at together: nothing is told within seconds anyway.
const TOGETHER: Duration = Duration::from_millis(200);

/// Announces until the worker ends.
///
/// # Errors
/// When the worker has ended.
pub(super) async fn announce(handle: &Handle, events: &impl PodEvents, node: &str) -> anyhow::Result<()> {
    let (mut reports, mut problems) = (handle.reports(), handle.problems());
    let mut announcer = Announcer::default();
    let mut trouble_with_events = None;
    let start = Instant::now();
    // Before all pods are compared with their wishes nothing is wrong, but unfinished.
    handle.adopted().await?;
    loop {
        reports.mark_unchanged();
        problems.mark_unchanged();
        let is_served = |uid: &_| {
            let report = handle.reports().borrow().get(uid).map(|report| report.state);
            report == Some(State::Enabled)
        };
        announcer.update(start.elapsed(), troubles(handle, node), is_served);
        for announcement in announcer.due(start.elapsed()) {
            let written = events.publish(&announcement).await;
            if written.is_err() {
                announcer.failed(start.elapsed(), &announcement);
            }
            note(&mut trouble_with_events, written.err());
        }
        let next = announcer.next().map(|at| start + at);
        tokio::select! {
            changed = reports.changed() => changed?,
            changed = problems.changed() => changed?,
            () = alarm(next) => continue,
        }
        sleep(TOGETHER).await;
    }
}

/// Says in the log that events cannot be written, once for each cause.
fn note(known: &mut Option<String>, error: Option<PortError>) {
    let cause = error.map(|error| error.cause);
    if let Some(cause) = cause.as_ref().filter(|cause| known.as_ref() != Some(cause)) {
        tracing::warn!("events about pods cannot be written, pods are captured all the same: {cause}");
    }
    *known = cause;
}

/// What is wrong with pods now.
fn troubles(handle: &Handle, node: &str) -> Vec<Trouble> {
    let mut troubles: Vec<Trouble> = handle
        .reports()
        .borrow()
        .values()
        .filter_map(|report| capture_failed(report, node))
        .collect();
    for problem in handle.problems().borrow().iter() {
        let reason = match problem.kind {
            ProblemKind::AnnotationIgnored => Reason::AnnotationIgnored,
            ProblemKind::AddressConflict => Reason::AddressConflict,
            ProblemKind::SourceStale | ProblemKind::BadObject => continue,
        };
        let Some(pod) = &problem.pod else { continue };
        let note = format!("{}; {}", problem.problem, problem.fix);
        let known = troubles
            .iter_mut()
            .find(|known| known.reason == reason && known.pod.uid == pod.uid);
        match known {
            Some(known) => known.note = format!("{}; {note}", known.note),
            None => troubles.push(Trouble {
                pod: pod.clone(),
                reason,
                note,
            }),
        }
    }
    troubles
}

/// Why a pod that should be captured is not, or is and is not served.
fn capture_failed(report: &Report, node: &str) -> Option<Trouble> {
    let reason = report.reason.as_deref().unwrap_or("no proxy serves it");
    let note = match (report.state, &report.error) {
        _ if report.wish != "captured" => return None,
        (State::Pending, _) => format!(
            "captured, and its connections are refused: {reason}; look whether ztunnel runs on node {node} and what it \
             logs; it is tried again by itself"
        ),
        (State::Waiting, Some(error)) => format!(
            "not captured yet: {error}; it is tried again by itself; on node {node} `meshgate status` tells more"
        ),
        _ => return None,
    };
    Some(Trouble {
        pod: report.pod.clone(),
        reason: Reason::CaptureFailed,
        note,
    })
}

/// Waits until then; for ever without a time.
async fn alarm(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

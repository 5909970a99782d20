//! The proxies, between the ZDS server and the worker: programs are attached before a proxy hears of its first pod, and
//! go with its cgroup.

use std::sync::{Arc, OnceLock};

use tokio::sync::{broadcast, watch};

use super::cgroups::Cgroups;
use crate::enrol::{Handle, Stopped};
use crate::ports::{PortError, ProxyPeer};
use crate::report::Problem;
use crate::zds::{self, Event, Zds};

/// Why proxies were turned away, until one is attached: the operator's proxy that tries again and again.
pub(super) type TurnedAway = watch::Sender<Vec<Problem>>;

/// Attaches a proxy's programs before it hears of its first pod.
pub(super) fn on_connect(worker: Arc<OnceLock<Handle>>, turned_away: TurnedAway) -> zds::OnConnect {
    Box::new(move |peer: ProxyPeer| {
        let (worker, turned_away) = (worker.clone(), turned_away.clone());
        Box::pin(async move {
            let Some(handle) = worker.get() else { return Ok(()) };
            let described = format!("pid {} in {}", peer.pid, peer.cgroup.display());
            let attached = handle.attach_proxy(peer).await;
            match &attached {
                Ok(adopted) => {
                    tracing::info!(adopted, "a proxy is attached: {described}");
                    turned_away.send_if_modified(|problems| !std::mem::take(problems).is_empty());
                }
                Err(error) => note(&turned_away, problem(error)),
            }
            attached.map(drop)
        })
    })
}

fn note(turned_away: &TurnedAway, problem: Problem) {
    turned_away.send_if_modified(|problems| {
        let same = |known: &Problem| known.problem == problem.problem;
        let is_new = !problems.contains(&problem);
        // A proxy that tries again has another process id when it was restarted meanwhile.
        problems.retain(|known| !same(known));
        problems.push(problem);
        is_new
    });
}

fn problem(error: &PortError) -> Problem {
    Problem {
        object: error.object.clone(),
        problem: format!("turned away, {} failed: {}", error.operation, error.cause),
        fix: "correct this; the proxy connects again by itself".to_owned(),
    }
}

/// Passes the news of the proxies on to the worker; returns when there will be none any more.
pub(super) async fn follow(zds: &Zds, mut events: broadcast::Receiver<Event>, handle: &Handle) {
    let mut cgroups = Cgroups::new()
        .inspect_err(|error| tracing::warn!("links of removed proxies stay until the next proxy: {error}"))
        .ok();
    loop {
        let told = tokio::select! {
            event = events.recv() => match event {
                Ok(event) => news(event, zds, handle, cgroups.as_mut()).await,
                Err(broadcast::error::RecvError::Lagged(_)) => tell_alive(zds, handle).await,
                Err(broadcast::error::RecvError::Closed) => return,
            },
            () = gone(&mut cgroups) => handle.proxy_cgroup_gone().await,
        };
        if told.is_err() {
            return;
        }
    }
}

async fn news(
    event: Event,
    zds: &Zds,
    handle: &Handle,
    cgroups: Option<&mut Cgroups>,
) -> Result<(), Stopped> {
    match event {
        Event::SnapshotDone { refused, .. } => handle.snapshot_done(refused).await,
        Event::Connected { peer, .. } => {
            tell_alive(zds, handle).await?;
            if cgroups.is_none_or(|cgroups| cgroups.watch(&peer.cgroup)) {
                return Ok(());
            }
            handle.proxy_cgroup_gone().await
        }
        Event::Disconnected { .. } => tell_alive(zds, handle).await,
    }
}

async fn tell_alive(zds: &Zds, handle: &Handle) -> Result<(), Stopped> {
    let connections = zds.connections().into_iter();
    handle
        .proxies(connections.map(|connection| connection.peer).collect())
        .await
}

/// Waits until the cgroup of a proxy is gone; for ever when that cannot be noticed.
async fn gone(cgroups: &mut Option<Cgroups>) {
    if let Some(watching) = cgroups {
        match watching.gone().await {
            Ok(()) => return,
            Err(error) => tracing::warn!("links of removed proxies stay until the next proxy: {error}"),
        }
        *cgroups = None;
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turned(pid: u32, cause: &str) -> Problem {
        Problem {
            object: format!("proxy {pid}"),
            problem: cause.to_owned(),
            fix: String::new(),
        }
    }

    #[test]
    fn a_proxy_that_tries_again_is_one_problem() {
        let turned_away = TurnedAway::default();
        for (pid, cause) in [(1, "root"), (2, "root"), (2, "root"), (3, "gone")] {
            note(&turned_away, turned(pid, cause));
        }
        assert_eq!(*turned_away.borrow(), [turned(2, "root"), turned(3, "gone")]);
    }
}

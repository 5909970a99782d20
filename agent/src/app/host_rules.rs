//! Istio's rules in the node's own network namespace go when the pods are ours: until then, rules in pods know probes by
//! them. Nobody needs them afterwards, and no agent of Istio's can make them anew: the plugin's socket is ours.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use agent_core::plan::State;

use crate::config::Paths;
use crate::enrol::{self, Handle};
use crate::netns::enter::enter;
use crate::predecessor::host::{self, Removed};

/// Pause before the next attempt when somebody else changes the tables at the same time.
const PAUSE: Duration = Duration::from_secs(5);

/// Waits until each pod of the mesh that runs is captured by us, and removes them; never ends.
///
/// # Errors
/// When the worker has ended.
pub(super) async fn remove(handle: &Handle, paths: &Paths) -> anyhow::Result<()> {
    handle.adopted().await?;
    let mut reports = handle.reports();
    reports.wait_for(|pods| !pods.values().any(may_need_them)).await?;
    loop {
        let netns = paths.host_netns();
        match tokio::task::spawn_blocking(|| remove_in(netns)).await? {
            Ok(removed) => {
                tell(&removed);
                break;
            }
            Err(error) => {
                tracing::warn!(
                    "removing the rules of Istio's agent from the node's network namespace: {error}"
                );
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    std::future::pending().await
}

/// A pod that runs and is not captured yet.
fn may_need_them(pod: &enrol::Report) -> bool {
    pod.state == State::Waiting && pod.netns.is_some()
}

fn remove_in(netns: PathBuf) -> io::Result<Removed> {
    enter(File::open(netns)?, host::remove).map_err(io::Error::other)?
}

fn tell(removed: &Removed) {
    if removed.anything {
        tracing::info!("the rules of Istio's agent in the node's network namespace are without effect");
    }
    for command in &removed.left {
        tracing::info!(
            "something of Istio's agent stays in the node's network namespace, without effect; to remove it: {command}"
        );
    }
}

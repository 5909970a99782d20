//! Setting up: the node, its pods, the agent and the proxy, with a line for each.

use std::path::Path;
use std::time::{Duration, Instant};

use ::tests::{Cluster, Node, Proxy};
use anyhow::Result;

use crate::scene::{Family, Ground, Scene};
use crate::screen::Screen;
use crate::trial::Place;

/// Sets up everything, until client and server are captured.
pub(crate) fn set_up(screen: &Screen, assets: Option<&Path>) -> Result<Scene> {
    screen.section(
        "A node with three pods",
        "Network namespaces and cgroups of their own; no container runtime.",
    );
    let ground = lay(screen, assets)?;
    for (pod, label) in [
        (&ground.client, "istio.io/dataplane-mode: ambient"),
        (&ground.server, "istio.io/dataplane-mode: ambient"),
        (&ground.outside, "no label: outside the mesh"),
    ] {
        screen.done(pod.name(), &format!("{}  {}  {label}", pod.v4(), pod.v6()));
    }
    let (agent, took) = timed(|| ground.start_agent())?;
    screen.timed("agent", "attached its programs, and knows the pods", took);
    let began = Instant::now();
    let proxy = Proxy::start(&ground.node, "proxy", &[])?;
    let mut scene = Scene { agent, proxy, ground };
    scene.wait_until_captured()?;
    screen.timed(
        "proxy",
        "has the network namespaces of client and server: both captured",
        began.elapsed(),
    );
    if scene.wait_for_annotations()? {
        screen.done(
            "status",
            "both pods are annotated ambient.istio.io/redirection: enabled",
        );
    }
    Ok(scene)
}

/// The node, the API server if it is wanted, and the pods.
fn lay(screen: &Screen, assets: Option<&Path>) -> Result<Ground> {
    let node = Node::new()?;
    let (cluster, took) = timed(|| assets.map(|assets| Cluster::start(&node, assets)).transpose())?;
    let with_cluster = cluster.is_some();
    let ground = Ground::new(node, cluster)?;
    let [v4, v6] = [Family::V4, Family::V6].map(|family| ground.address(Place::Node, family));
    screen.done("node", &format!("{v4}  {v6}"));
    if with_cluster {
        screen.timed("cluster", "a real etcd and kube-apiserver tell of the pods", took);
    }
    Ok(ground)
}

/// What `work` returns, and how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let began = Instant::now();
    let value = work()?;
    Ok((value, began.elapsed()))
}

//! A node with as many pods as kubelet takes by default.

use std::time::Instant;

use anyhow::{Result, ensure};
use tests::Pins;

use crate::namespaces::many;
use crate::scene::MODE;
use crate::shared::Shared;

/// Kubelet's default `maxPods`.
const PODS: usize = 110;

#[test]
fn a_node_takes_as_many_pods_as_kubelet_does() -> Result<()> {
    let Some(shared) = Shared::get("a_node_takes_as_many_pods_as_kubelet_does")? else {
        return Ok(());
    };
    // It needs the whole machine.
    let scene = shared.alone();
    let shop = scene.namespace("crowd", &[(MODE, "ambient")])?;
    let began = Instant::now();
    let pods = many(&shop, PODS)?;
    println!("{PODS} pods were ready after {:?}", began.elapsed());
    // No pod started before it was captured.
    let status = scene.agent().status()?;
    let enabled = |uid: &str| {
        status
            .pods
            .iter()
            .any(|pod| pod.uid == uid && pod.state == "enabled")
    };
    for pod in &pods {
        ensure!(enabled(&pod.uid), "{pod:?}: {:?}", status.pods);
    }
    ensure!(status.problems.is_empty(), "{:?}", status.problems);
    ensure!(Pins::of(&scene.one.node).link_names("pod").len() >= PODS);
    scene.captured(&pods[0])?;
    scene.captured(&pods[PODS - 1])?;

    let began = Instant::now();
    shop.kubectl(&["delete", "deployment/many", "--cascade=foreground"])?;
    for pod in &pods {
        scene.gone(pod)?;
    }
    println!("{PODS} pods were gone after {:?}", began.elapsed());
    Ok(())
}

//! Pods that are made while the agent is away: no pod starts uncaptured, and kubelet's next try succeeds.

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::scene::{MODE, Scene, container, pod, spec};
use crate::shared::Shared;

#[test]
fn a_pod_made_while_the_agent_is_dead_starts_when_it_is_back() -> Result<()> {
    let Some(shared) = Shared::get("a_pod_made_while_the_agent_is_dead_starts_when_it_is_back")? else {
        return Ok(());
    };
    let scene = shared.alone();
    let shop = scene.namespace("dead", &[(MODE, "ambient")])?;
    scene.agent().kill9();
    shop.apply(&mut [pod("web", &spec(&[container("application", &["sleep"])]))])?;
    let said = refusal(&scene, &shop.name)?;
    ensure!(said.contains("meshgate"), "{said}");
    scene.agent().restart()?;
    let web = shop.ready("web")?;
    scene.captured(&web)
}

#[test]
fn a_pod_that_is_being_added_when_the_agent_is_killed_starts_captured() -> Result<()> {
    let Some(shared) = Shared::get("a_pod_that_is_being_added_when_the_agent_is_killed_starts_captured")?
    else {
        return Ok(());
    };
    let scene = shared.alone();
    // The proxy confirms nothing, so that the agent waits and the plugin with it.
    scene.proxy.signal(Signal::STOP)?;
    let shop = scene.namespace("killed", &[(MODE, "ambient")])?;
    shop.apply(&mut [pod("web", &spec(&[container("application", &["sleep"])]))])?;
    let waiting = scene.agent().wait_for("the plugin to ask", |status| {
        let asked = status.pods.iter().find(|pod| pod.namespace == "killed");
        asked.filter(|pod| pod.state != "outside").cloned()
    });
    scene.agent().kill9();
    scene.proxy.signal(Signal::CONT)?;
    waiting?;
    scene.agent().restart()?;
    let web = shop.ready("web")?;
    scene.captured(&web)
}

/// Waits until kubelet tells that a pod's sandbox could not be made, and why.
fn refusal(scene: &Scene, namespace: &str) -> Result<String> {
    let namespace = format!("--namespace={namespace}");
    let mut events = scene.cluster().kubectl_talking(&[
        "get",
        "events",
        "--watch",
        &namespace,
        "--field-selector=reason=FailedCreatePodSandBox",
        "--output=custom-columns=MESSAGE:.message",
        "--no-headers",
    ])?;
    events.line()
}

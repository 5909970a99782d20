//! No process of a pod runs before the pod is captured, and an agent or proxy that restarts costs a pod a moment.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use tests::cni::Plugin;
use tests::{Node, PodSpec, Proxy, requires};

use crate::scene::{QUICK, Scene, assert_passed};

#[test]
fn a_pod_is_captured_before_add_returns() -> Result<()> {
    if !requires::root("a_pod_is_captured_before_add_returns") {
        return Ok(());
    }
    let mut scene = Scene::new()?;
    let server = scene.node.pod("server")?;
    let _server = server.serve(&["--listen", "[::]:80", "--listen", "[::]:81"])?;
    let mut pod = scene.sandbox("web")?;
    let answer = scene.plugin.add(&pod)?;
    assert_passed(&answer, &pod);
    // Not awaited: it was so before ADD returned.
    let served = scene.served()?;
    assert!(served.contains(pod.uid()), "{served:?}");
    pod.start()?;
    scene.assert_captured(&pod, &server, 80)?;
    // Kubelet reports the addresses now, and the agent has seen that when it has seen what came after it.
    let marker = scene.node.pod("marker")?;
    scene.node.apply(&[&pod, &marker])?;
    scene.agent.wait_for_pod_state(marker.uid(), "outside")?;
    scene.assert_captured(&pod, &server, 81)
}

#[test]
fn a_pod_that_the_source_tells_late_is_captured_too() -> Result<()> {
    if !requires::root("a_pod_that_the_source_tells_late_is_captured_too") {
        return Ok(());
    }
    let scene = Scene::new()?;
    let pod = scene.node.sandbox(PodSpec::new("web").ambient())?;
    let call = scene.plugin.start_add(&pod)?;
    scene.node.apply(&[&pod])?;
    assert_passed(&call.wait()?, &pod);
    let unknown = scene.node.sandbox(PodSpec::new("unknown").ambient())?;
    let answer = scene.plugin.add(&unknown)?;
    assert!(!answer.success);
    assert!(
        answer.error().contains("has not told of the pod"),
        "{}",
        answer.error()
    );
    Ok(())
}

#[test]
fn without_an_agent_add_fails_in_time_and_succeeds_after_its_start() -> Result<()> {
    if !requires::root("without_an_agent_add_fails_in_time_and_succeeds_after_its_start") {
        return Ok(());
    }
    let mut scene = Scene::new()?;
    let pod = scene.sandbox("web")?;
    scene.agent.kill9();
    let (start, hasty) = (
        Instant::now(),
        scene.plugin.clone().with("agent_timeout_seconds", 1),
    );
    let answer = hasty.add(&pod)?;
    assert!(!answer.success);
    assert_eq!(answer.printed["code"], 11, "{}", answer.printed);
    assert!(
        answer.error().contains("is its pod running on this node?"),
        "{}",
        answer.error()
    );
    assert!(start.elapsed() < Duration::from_secs(1) + QUICK);
    assert_eq!(
        hasty.clone().with("cniVersion", "1.1.0").call("STATUS")?.printed["code"],
        50
    );
    // This one waits for the agent.
    let call = scene.plugin.start_add(&pod)?;
    scene.agent.restart()?;
    assert_passed(&call.wait()?, &pod);
    assert!(scene.plugin.with("cniVersion", "1.1.0").call("STATUS")?.success);
    Ok(())
}

#[test]
fn an_agent_that_dies_in_the_middle_of_add_is_asked_again() -> Result<()> {
    if !requires::root("an_agent_that_dies_in_the_middle_of_add_is_asked_again") {
        return Ok(());
    }
    let mut scene = Scene::without_proxy()?;
    let server = scene.node.pod("server")?;
    let _server = server.serve(&["--listen", "[::]:80"])?;
    let mut pod = scene.sandbox("web")?;
    let call = scene.plugin.start_add(&pod)?;
    // It is captured, and waits for a proxy: the agent has the event and has not answered.
    scene.agent.wait_for("the sandbox to come", |status| {
        let waits = |pod: &tests::agent::PodStatus| pod.reason.to_string().contains("no proxy is connected");
        status.pods.iter().any(waits).then_some(())
    })?;
    scene.agent.kill9();
    scene.proxy = Some(Proxy::start(&scene.node, "proxy", &[])?);
    scene.agent.restart()?;
    assert_passed(&call.wait()?, &pod);
    pod.start()?;
    scene.assert_captured(&pod, &server, 80)
}

#[test]
fn pods_outside_the_mesh_pass_quickly_and_some_without_the_agent() -> Result<()> {
    if !requires::root("pods_outside_the_mesh_pass_quickly_and_some_without_the_agent") {
        return Ok(());
    }
    let mut scene = Scene::without_proxy()?;
    let outside = scene.node.sandbox(PodSpec::new("outside"))?;
    scene.node.apply(&[&outside])?;
    let start = Instant::now();
    assert_passed(&scene.plugin.add(&outside)?, &outside);
    assert!(start.elapsed() < QUICK);
    scene.agent.kill9();
    for spec in [
        PodSpec::new("coredns").namespace("kube-system").ambient(),
        PodSpec::new("istio-cni-node-x7k2p").namespace("istio-system"),
        PodSpec::new("meshgate-x7k2p").namespace("istio-system"),
    ] {
        let pod = scene.node.sandbox(spec)?;
        assert_passed(&scene.plugin.add(&pod)?, &pod);
    }
    let no_pod = scene.plugin.call("ADD")?;
    assert!(no_pod.success, "{}", no_pod.error());
    assert_eq!(no_pod.printed, json!({"cniVersion": "1.0.0", "dns": {}}));
    Ok(())
}

#[test]
fn other_commands_and_garbage_are_answered_without_an_agent() -> Result<()> {
    if !requires::root("other_commands_and_garbage_are_answered_without_an_agent") {
        return Ok(());
    }
    let node = Node::new()?;
    let plugin = Plugin::new(&node)?.with("agent_timeout_seconds", 1);
    for command in ["DEL", "CHECK"] {
        let answer = plugin.call(command)?;
        assert!(
            answer.success && answer.printed.is_null(),
            "{command}: {answer:?}"
        );
    }
    let newest = plugin.clone().with("cniVersion", "1.1.0");
    assert!(newest.call("GC")?.success);
    for (version, command) in [("1.0.0", "GC"), ("1.0.0", "STATUS"), ("0.3.1", "CHECK")] {
        let answer = plugin.clone().with("cniVersion", version).call(command)?;
        assert_eq!(answer.printed["code"], 1, "{command} of {version}: {answer:?}");
        assert_eq!(answer.printed["cniVersion"], version);
    }
    for (command, input, code) in [
        ("ADD", &b"\xff\x00 garbage"[..], 6),
        ("ADD", b"", 6),
        ("DEL", b"[]", 6),
        ("ADD", br#"{"cniVersion": "9.0.0", "name": "n"}"#, 1),
        ("ADD", br#"{"cniVersion": "1.0.0"}"#, 7),
        (
            "ADD",
            br#"{"cniVersion": "1.0.0", "name": "n", "prevResult": 7}"#,
            6,
        ),
        ("FLY", br#"{"cniVersion": "1.0.0", "name": "n"}"#, 4),
    ] {
        let answer = plugin.call_with(command, input)?;
        assert!(!answer.success, "{command}: {answer:?}");
        assert_eq!(answer.printed["code"], code, "{command}: {answer:?}");
    }
    let versions = plugin.call("VERSION")?;
    assert!(versions.success);
    assert_eq!(versions.printed["cniVersion"], "1.0.0");
    assert_eq!(versions.printed["supportedVersions"][6], "1.1.0");
    Ok(())
}

#[test]
fn the_plugin_is_the_same_under_istios_name_and_in_every_version() -> Result<()> {
    if !requires::root("the_plugin_is_the_same_under_istios_name_and_in_every_version") {
        return Ok(());
    }
    let scene = Scene::new()?;
    let alias = scene
        .plugin
        .clone()
        .called(&scene.node.run_dir().join("bin"), "istio-cni")?;
    let pod = scene.sandbox("web")?;
    let versions = alias.call("VERSION")?.printed["supportedVersions"].clone();
    for version in versions.as_array().context("a list of versions")? {
        let version = version.as_str().context("a version")?;
        let answer = alias
            .clone()
            .with("cniVersion", version)
            .with("type", "meshgate-cni")
            .add(&pod)?;
        assert!(answer.success, "{version}: {}", answer.error());
        assert_eq!(answer.printed["cniVersion"], version);
        let v4 = format!("{}/24", pod.v4());
        let told = [&answer.printed["ips"][0]["address"], &answer.printed["ip4"]["ip"]];
        assert!(
            told.into_iter().any(|told| *told == json!(v4)),
            "{version}: {}",
            answer.printed
        );
    }
    assert!(scene.served()?.contains(pod.uid()));
    Ok(())
}

#[test]
fn fifty_sandboxes_at_once_are_all_captured() -> Result<()> {
    if !requires::root("fifty_sandboxes_at_once_are_all_captured") {
        return Ok(());
    }
    let mut scene = Scene::new()?;
    let server = scene.node.pod("server")?;
    let _server = server.serve(&["--listen", "[::]:80"])?;
    let mut pods = (0..50)
        .map(|number| scene.sandbox(&format!("web-{number}")))
        .collect::<Result<Vec<_>>>()?;
    let calls = pods
        .iter()
        .map(|pod| scene.plugin.start_add(pod))
        .collect::<Result<Vec<_>>>()?;
    for (call, pod) in calls.into_iter().zip(&pods) {
        assert_passed(&call.wait()?, pod);
    }
    let served = scene.served()?;
    assert!(pods.iter().all(|pod| served.contains(pod.uid())), "{served:?}");
    for pod in pods.iter_mut().step_by(10) {
        pod.start()?;
        scene.assert_captured(pod, &server, 80)?;
    }
    Ok(())
}

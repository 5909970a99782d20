//! The agent is killed at any moment: nothing escapes, no connection fails, and the next start puts everything right.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tests::moments::Moments;
use tests::steady::Steady;
use tests::{Mesh, Pins, Pod, PodSpec, requires, wait};

#[test]
fn nothing_escapes_and_nothing_fails_while_the_agent_is_killed_fifty_times() -> Result<()> {
    if !requires::root("nothing_escapes_and_nothing_fails_while_the_agent_is_killed_fifty_times") {
        return Ok(());
    }
    let mut moments = Moments::new(50);
    let mut mesh = Mesh::new()?;
    let mut load = Steady::start(&mesh)?;
    let destination = SocketAddr::new(mesh.outside.v6(), 8080).to_string();
    let mut held = mesh.client.spawn(&["hold", "20", &destination, "--check"])?;
    assert_eq!(held.json::<Value>()?["alive"], 20);
    for kill in 0..50 {
        moments.pass(Duration::from_millis(400));
        mesh.agent.kill9();
        mesh.agent.spawn()?;
        if kill % 10 == 9 {
            mesh.agent.wait_until_ready()?;
        }
    }
    mesh.agent.wait_until_ready()?;
    held.close_stdin();
    assert_eq!(
        held.json::<Value>()?["alive"],
        20,
        "connections that were open live on"
    );
    for report in load.stop()? {
        assert_eq!(report["failed"], json!({}), "{report}");
    }
    for verdict in load.verdicts(&mesh)? {
        assert!(verdict.accepted > 500, "{verdict:?}");
        assert_eq!(verdict.escaped, 0, "{verdict:?}");
    }
    let log = mesh.agent.log();
    let starts: Vec<_> = log
        .lines()
        .filter(|line| line.contains("the programs are attached"))
        .collect();
    assert!(starts.len() > 6, "{log}");
    for start in &starts[1..] {
        assert!(start.contains("attached=0"), "not adopted: {start}");
    }
    Ok(())
}

#[test]
fn an_agent_that_is_told_to_stop_while_it_starts_ends_in_order() -> Result<()> {
    if !requires::root("an_agent_that_is_told_to_stop_while_it_starts_ends_in_order") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    for _ in 0..5 {
        mesh.agent.kill9();
        mesh.agent.spawn()?;
        // The first that it says; programs are not loaded yet.
        mesh.agent.wait_for_log("/healthz and /readyz can be asked")?;
        let status = mesh.agent.stop()?;
        assert!(status.success(), "{status}: {}", mesh.agent.log());
        let log = mesh.agent.log();
        let last = log.lines().last().unwrap_or_default();
        assert!(last.contains("stopping"), "{log}");
        mesh.check()?;
    }
    mesh.agent.spawn()?;
    mesh.agent.wait_until_ready()?;
    mesh.check()
}

#[test]
fn an_escape_would_be_seen() -> Result<()> {
    if !requires::root("an_escape_would_be_seen") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let mut load = Steady::start(&mesh)?;
    mesh.proxy.wait_for_connections(100)?;
    // Pulls the rug from under a running agent: no pod is captured from here on.
    mesh.agent.kill9();
    let pods = Pins::of(&mesh.node).map("PODS")?;
    for key in pods.keys()? {
        pods.remove(&key)?;
    }
    load.wait_for_more(50)?;
    load.stop()?;
    for verdict in load.verdicts(&mesh)? {
        assert!(verdict.escaped >= 20, "{verdict:?}");
    }
    Ok(())
}

#[test]
fn pods_that_join_and_leave_while_the_agent_is_killed_end_as_their_manifests_say() -> Result<()> {
    if !requires::root("pods_that_join_and_leave_while_the_agent_is_killed_end_as_their_manifests_say") {
        return Ok(());
    }
    let mut moments = Moments::new(7);
    let mut mesh = Mesh::new()?;
    let mut pods = Vec::new();
    for number in 0..6 {
        pods.push((
            mesh.node.pod_with(PodSpec::new(&format!("flip-{number}")))?,
            false,
        ));
    }
    let proxy = mesh.proxy.process().id();
    let before = descriptors(proxy);
    for kill in 0..40 {
        let chosen = moments.below(pods.len() as u64) as usize;
        let (pod, ambient) = &mut pods[chosen];
        *ambient = !*ambient;
        pod.set_ambient(*ambient);
        mesh.node.apply(&[pod])?;
        // Kills fall into starts, enrolments and quiet times alike.
        moments.pass(Duration::from_millis(if kill % 4 == 0 { 900 } else { 300 }));
        mesh.agent.kill9();
        mesh.agent.spawn()?;
    }
    agree(&mut mesh, &pods)?;
    for (pod, ambient) in &mut pods {
        *ambient = false;
        pod.set_ambient(false);
        mesh.node.apply(&[pod])?;
    }
    agree(&mut mesh, &pods)?;
    assert_eq!(
        descriptors(proxy),
        before,
        "the proxy holds nothing of pods that left"
    );
    Ok(())
}

/// Waits until all pods are as their manifests say, and compares every map and link with them.
fn agree(mesh: &mut Mesh, pods: &[(Pod, bool)]) -> Result<()> {
    mesh.agent.wait_until_ready()?;
    let mut captured: Vec<u64> = vec![mesh.client.netns().cookie()?, mesh.server.netns().cookie()?];
    for pod in [mesh.client.uid(), mesh.server.uid()] {
        mesh.agent.wait_for_pod_state(pod, "enabled")?;
    }
    for (pod, ambient) in pods {
        let state = if *ambient { "enabled" } else { "outside" };
        // A pod whose manifest was never written while an agent lived is not known at all.
        if *ambient {
            captured.push(pod.netns().cookie()?);
            mesh.agent.wait_for_pod_state(pod.uid(), state)?;
        } else {
            mesh.agent.wait_for("the pod to be outside", |status| {
                let found = status.pods.iter().find(|told| told.uid == pod.uid());
                found.is_none_or(|told| told.state == state).then_some(())
            })?;
        }
    }
    let pins = Pins::of(&mesh.node);
    let mut links: Vec<_> = captured.iter().map(ToString::to_string).collect();
    links.sort();
    wait::for_file(
        &pins.links("pod").join("any"),
        None,
        &format!("links {links:?}"),
        || Ok((pins.link_names("pod") == links).then_some(())),
    )?;
    let pods = captured.len();
    for (map, entries) in [
        ("PODS", pods),
        ("NAMES", pods),
        ("ADDRESSES", 2 * pods),
        ("COUNTERS", pods + 2),
        ("LISTENERS", pods),
        ("NETWORKS", 1),
        ("HANDOVER", 0),
        ("TRUSTED", 0),
    ] {
        assert_eq!(pins.count(map)?, entries, "{map} with {pods} pods");
    }
    Ok(())
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

//! Proxies come and go in any order, alone or two side by side, and connections go to whichever lives.

use std::path::Path;

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::process::Process;
use tests::proxy::Event;
use tests::traffic::{check, serve, ways};
use tests::{Agent, Mesh, Node, Pins, PodSpec, Proxy, cgroup, requires, wait};

fn snapshot(proxy: &mut Proxy) -> Result<()> {
    proxy.wait_for("its snapshot", |event| {
        matches!(event, Event::Snapshot).then_some(())
    })
}

/// Waits until so many proxies have links.
fn until_attached(pins: &Pins, proxies: usize) -> Result<()> {
    let folder = pins.links("proxy");
    wait::for_file(
        &folder.join("any"),
        None,
        &format!("{proxies} attached proxies"),
        || Ok((pins.link_names("proxy").len() == proxies).then_some(())),
    )
}

#[test]
fn proxy_and_agent_start_and_end_in_any_order() -> Result<()> {
    if !requires::root("proxy_and_agent_start_and_end_in_any_order") {
        return Ok(());
    }
    let node = Node::new()?;
    let client = node.pod_with(PodSpec::new("client").ambient())?;
    let server = node.pod_with(PodSpec::new("server").ambient())?;
    let outside = node.pod("outside")?;
    let _servers = serve(&server, &outside)?;
    node.apply(&[&client, &server, &outside])?;
    let ways = ways(&client, &server, &outside);
    let enabled = |agent: &mut Agent| {
        [&client, &server]
            .iter()
            .try_for_each(|pod| agent.wait_for_pod_state(pod.uid(), "enabled").map(drop))
    };
    // The proxy first.
    let first = Proxy::start(&node, "first", &[])?;
    let mut agent = Agent::start(&node)?;
    enabled(&mut agent)?;
    check(&ways, &[&first])?;
    // The proxy is killed; its successor finds everything as it was.
    drop(first);
    let refused = client.load(&["connect", &ways[0].1.to_string()])?;
    assert_eq!(refused["connect"], "ECONNREFUSED", "fails closed: {refused}");
    let refused = outside.load(&["connect", &ways[3].1.to_string()])?;
    assert_eq!(refused["connect"], "ECONNREFUSED", "fails closed: {refused}");
    let mut second = Proxy::start(&node, "second", &[])?;
    snapshot(&mut second)?;
    enabled(&mut agent)?;
    check(&ways, &[&second])?;
    // Both die; the agent is there first.
    agent.kill9();
    drop(second);
    agent.restart()?;
    let mut third = Proxy::start(&node, "third", &[])?;
    snapshot(&mut third)?;
    check(&ways, &[&third])?;
    // Both die; the proxy is there first, and waits for the agent.
    agent.kill9();
    drop(third);
    let mut fourth = Proxy::start(&node, "fourth", &[])?;
    agent.restart()?;
    snapshot(&mut fourth)?;
    enabled(&mut agent)?;
    check(&ways, &[&fourth])
}

/// Two proxies side by side, of which one goes; new connections go to the other at once, whatever the agent does.
fn one_of_two_goes(newer_goes: bool, end: fn(Proxy) -> Result<Proxy>) -> Result<()> {
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let mut newer = Proxy::start(&mesh.node, "newer", &[])?;
    snapshot(&mut newer)?;
    let ways = ways(&mesh.client, &mesh.server, &mesh.outside);
    check(&ways, &[&mesh.proxy, &newer])?;
    let joining = mesh.node.pod_with(PodSpec::new("joining").ambient())?;
    mesh.node.apply(&[&joining])?;
    mesh.agent.wait_for_pod_state(joining.uid(), "enabled")?;
    newer.wait_for_pod(&joining)?;
    let older_knows = |event: &Event| matches!(event, Event::Add { uid, .. } if uid == joining.uid());
    assert!(
        !mesh.proxy.events()?.iter().any(older_knows),
        "adds go to the newest"
    );
    let (going, mut staying) = if newer_goes {
        (newer, mesh.proxy)
    } else {
        (mesh.proxy, newer)
    };
    let gone = end(going)?;
    check(&ways, &[&staying])?;
    if newer_goes {
        staying.wait_for_pod(&joining)?;
    }
    // Its pins go with its cgroup, with no other proxy coming or going.
    let pins = Pins::of(&mesh.node);
    assert_eq!(pins.link_names("proxy").len(), 2);
    drop(gone);
    until_attached(&pins, 1)?;
    check(&ways, &[&staying])
}

fn killed(mut proxy: Proxy) -> Result<Proxy> {
    proxy.process().kill();
    Ok(proxy)
}

fn terminated(mut proxy: Proxy) -> Result<Proxy> {
    proxy.process().signal(Signal::TERM)?;
    proxy.process().wait()?;
    Ok(proxy)
}

#[test]
fn the_newer_proxy_takes_over_from_the_older() -> Result<()> {
    if !requires::root("the_newer_proxy_takes_over_from_the_older") {
        return Ok(());
    }
    one_of_two_goes(false, killed)?;
    one_of_two_goes(false, terminated)
}

#[test]
fn the_older_proxy_takes_over_from_the_newer() -> Result<()> {
    if !requires::root("the_older_proxy_takes_over_from_the_newer") {
        return Ok(());
    }
    one_of_two_goes(true, killed)?;
    one_of_two_goes(true, terminated)
}

/// Load all four ways while one of two proxies goes: the numbers of failures by error.
fn failures_while_one_goes(migrate: &str, end: fn(Proxy) -> Result<Proxy>) -> Result<Vec<Value>> {
    let mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    for pod in [&mesh.client, &mesh.server] {
        pod.netns().sysctl("net.ipv4.tcp_migrate_req", migrate)?;
    }
    let mut newer = Proxy::start(&mesh.node, "newer", &[])?;
    snapshot(&mut newer)?;
    let ways = ways(&mesh.client, &mesh.server, &mesh.outside);
    let loads = ways
        .iter()
        .map(|(from, to)| from.spawn(&["crr", &to.to_string(), "--stdin", "--concurrency", "4"]));
    let mut loads = loads.collect::<Result<Vec<_>>>()?;
    newer.wait_for_connections(300)?;
    let _gone = end(mesh.proxy)?;
    newer.wait_for_connections(newer.connections()?.len() + 300)?;
    loads.iter_mut().for_each(Process::close_stdin);
    let reports = loads.iter_mut().map(Process::json::<Value>);
    reports.map(|report| Ok(report?["failed"].clone())).collect()
}

#[test]
fn no_connection_fails_when_one_of_two_proxies_is_stopped_and_queues_migrate() -> Result<()> {
    if !requires::root("no_connection_fails_when_one_of_two_proxies_is_stopped_and_queues_migrate") {
        return Ok(());
    }
    for failed in failures_while_one_goes("1", terminated)? {
        assert_eq!(failed, json!({}));
    }
    Ok(())
}

#[test]
fn only_connections_that_a_killed_proxy_had_are_lost() -> Result<()> {
    if !requires::root("only_connections_that_a_killed_proxy_had_are_lost") {
        return Ok(());
    }
    for failed in failures_while_one_goes("0", killed)? {
        let lost: u64 = failed
            .as_object()
            .context("an object")?
            .values()
            .filter_map(Value::as_u64)
            .sum();
        // Each of the four threads has one connection open at a time, and its next one may wait in the accept queue of
        // a port that the kernel closes a moment later than the first.
        assert!(lost <= 8, "{failed}");
    }
    Ok(())
}

#[test]
fn listeners_that_the_maps_lost_are_adopted_again() -> Result<()> {
    if !requires::root("listeners_that_the_maps_lost_are_adopted_again") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let ways = ways(&mesh.client, &mesh.server, &mesh.outside);
    let listeners = Pins::of(&mesh.node).map("LISTENERS")?;
    for key in listeners.keys()? {
        listeners.remove(&key)?;
    }
    drop(listeners);
    let refused = mesh.outside.load(&["connect", &ways[2].1.to_string()])?;
    assert_eq!(refused["connect"], "ECONNREFUSED", "fails closed: {refused}");
    // The proxy connects to the agent again; its listeners are older than that.
    mesh.agent.restart()?;
    mesh.agent.wait_for_pod_state(mesh.server.uid(), "enabled")?;
    check(&ways, &[&mesh.proxy])?;
    // Everything removed, with a proxy that goes on: programs, maps and listeners come back.
    mesh.agent.stop()?;
    let cleaned = mesh.agent.cli_json(&["cleanup"])?;
    assert_eq!(cleaned["left"], json!([]), "{cleaned}");
    mesh.agent.restart()?;
    mesh.agent.wait_for_pod_state(mesh.server.uid(), "enabled")?;
    check(&ways, &[&mesh.proxy])
}

#[test]
fn a_proxy_in_the_nodes_root_cgroup_is_turned_away() -> Result<()> {
    if !requires::root("a_proxy_in_the_nodes_root_cgroup_is_turned_away") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let root = mesh.node.cgroup().to_owned();
    let rooted = Proxy::start_in(&mesh.node, "rooted", Some(&root), &[])?;
    let told = mesh.agent.wait_for("the proxy to be turned away", |status| {
        let about = |problem: &&Value| {
            problem["object"]
                .to_string()
                .contains(&root.display().to_string())
        };
        status.problems.iter().find(about).cloned()
    })?;
    assert!(told["problem"].to_string().contains("root cgroup"), "{told}");
    let ways = ways(&mesh.client, &mesh.server, &mesh.outside);
    check(&ways, &[&mesh.proxy])?;
    assert_eq!(Pins::of(&mesh.node).link_names("proxy").len(), 1);
    drop(rooted);
    let _better = Proxy::start(&mesh.node, "better", &[])?;
    mesh.agent.wait_for("the problem to be over", |status| {
        status.problems.is_empty().then_some(())
    })
}

#[test]
fn a_proxy_may_have_cgroups_of_its_own() -> Result<()> {
    if !requires::root("a_proxy_may_have_cgroups_of_its_own") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let ways = ways(&mesh.client, &mesh.server, &mesh.outside);
    // It moves below the cgroup in which it connected.
    let below = cgroup::create(mesh.proxy.pod().cgroup().join("workers"))?;
    move_to(&below, mesh.proxy.process().id())?;
    check(&ways, &[&mesh.proxy])?;
    // It connects from below: the programs are attached there.
    mesh.proxy.process().kill();
    let mut second = Proxy::start_in(&mesh.node, "second", Some(&below), &[])?;
    snapshot(&mut second)?;
    check(&ways, &[&second])
}

fn move_to(cgroup: &Path, process: u32) -> Result<()> {
    let procs = cgroup.join("cgroup.procs");
    std::fs::write(&procs, process.to_string()).with_context(|| procs.display().to_string())
}

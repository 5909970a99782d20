//! The agent with the real ztunnel and with real Envoy behind it: both ways, IPv4 and IPv6, and both ends are told the
//! truth.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::envoy::{self, Envoy};
use tests::ztunnel::{self, Workload, Ztunnel};
use tests::{Agent, Node, Pod, PodSpec, requires};

/// Client and server of each family.
fn families(from: &Pod, to: &Pod) -> [(IpAddr, SocketAddr); 2] {
    [
        (from.v4(), SocketAddr::new(to.v4(), 80)),
        (from.v6(), SocketAddr::new(to.v6(), 80)),
    ]
}

/// The connection worked, and both ends see each other.
fn both_ends_see_each_other(seen: &Value, client: IpAddr, destination: SocketAddr) -> Result<()> {
    ensure!(
        seen["read"] == "ok" && seen["peer"] == destination.to_string(),
        "{seen}"
    );
    let address = |text: &Value| -> Result<IpAddr> {
        let address: SocketAddr = text.as_str().context("no address")?.parse()?;
        Ok(address.ip().to_canonical())
    };
    ensure!(
        address(&seen["local"])? == client && address(&seen["reply"]["accept"])? == client,
        "{seen}"
    );
    Ok(())
}

#[test]
fn ztunnel_carries_everything_with_its_addresses() -> Result<()> {
    let name = "ztunnel_carries_everything_with_its_addresses";
    let (true, Some(program)) = (requires::root(name), requires::program(name, ztunnel::VARIABLE)) else {
        return Ok(());
    };
    let node = Node::new()?;
    let client = node.pod_with(PodSpec::new("client").ambient())?;
    let server = node.pod_with(PodSpec::new("server").ambient())?;
    let outside = node.pod("outside")?;
    node.apply(&[&client, &server, &outside])?;
    let mut agent = Agent::start(&node)?;
    let workloads = [(&client, true), (&server, true), (&outside, false)];
    let workloads = workloads.map(|(pod, mesh)| Workload { pod, mesh });
    let ztunnel = Ztunnel::start(&node, "ztunnel", &program, &workloads)?;
    for pod in [&client, &server] {
        agent.wait_for_pod_state(pod.uid(), "enabled")?;
    }
    let _servers = (
        server.serve(&["--listen", "[::]:80"])?,
        outside.serve(&["--listen", "[::]:80"])?,
    );
    for (from, to) in [(&client, &server), (&client, &outside), (&outside, &server)] {
        for (ip, destination) in families(from, to) {
            let any = if ip.is_ipv4() { "0.0.0.0:4000" } else { "[::]:4000" };
            for kind in [&[] as &[&str], &["--bind", any, "--rst"], &["--mptcp"]] {
                let seen = from.load(&[&["connect", &destination.to_string()], kind].concat())?;
                both_ends_see_each_other(&seen, ip, destination)
                    .with_context(|| format!("{kind:?} log of ztunnel:\n{}", ztunnel.log()))?;
            }
        }
    }
    Ok(())
}

#[test]
fn envoy_finds_original_destinations_both_ways() -> Result<()> {
    let name = "envoy_finds_original_destinations_both_ways";
    let (true, Some(program)) = (requires::root(name), requires::program(name, envoy::VARIABLE)) else {
        return Ok(());
    };
    let node = Node::new()?;
    let inside = node.pod_with(PodSpec::new("inside").ambient())?;
    let outside = node.pod("outside")?;
    node.apply(&[&inside, &outside])?;
    let mut agent = Agent::start(&node)?;
    let mut envoy = Envoy::start(&node, &program)?;
    agent.wait_for_pod_state(inside.uid(), "enabled")?;
    let _servers = (
        inside.serve(&["--listen", "[::]:80"])?,
        outside.serve(&["--listen", "[::]:80"])?,
    );
    for (from, to, listener) in [(&inside, &outside, "outbound"), (&outside, &inside, "inbound")] {
        for (client, destination) in families(from, to) {
            let seen = from.load(&["connect", &destination.to_string()])?;
            assert_eq!(seen["read"], "ok", "{listener} {destination}: {seen}");
            let access = envoy.wait_for(listener, destination)?;
            assert_eq!(
                (access.peer.ip(), access.upstream),
                (client, destination.to_string())
            );
        }
    }
    Ok(())
}

//! Real Envoy and the real ztunnel, started by the fixtures and led to by iptables rules: what the tests of the agent
//! build on.

use std::net::SocketAddr;

use anyhow::Result;
use tests::envoy::{self, Envoy};
use tests::zds::ZdsServer;
use tests::ztunnel::{self, Workload, Ztunnel};
use tests::{Node, iptables, requires};

#[test]
fn envoy_serves_a_pod_in_both_directions() -> Result<()> {
    let name = "envoy_serves_a_pod_in_both_directions";
    let (true, Some(program)) = (requires::root(name), requires::program(name, envoy::VARIABLE)) else {
        return Ok(());
    };
    let node = Node::new()?;
    let (inside, outside) = (node.pod("inside")?, node.pod("outside")?);
    let server = ZdsServer::bind(&node.zds_socket())?;
    let mut envoy = Envoy::start(&node, &program)?;
    let zds = server.accept()?;
    iptables::enrol(inside.netns(), false)?;
    zds.add(&inside)?;
    zds.snapshot_sent()?;
    let _servers = (
        inside.serve(&["--listen", "[::]:80"])?,
        outside.serve(&["--listen", "[::]:80"])?,
    );
    for (from, to, listener) in [(&inside, &outside, "outbound"), (&outside, &inside, "inbound")] {
        for (client, ip) in [(from.v4(), to.v4()), (from.v6(), to.v6())] {
            let destination = SocketAddr::new(ip, 80);
            let seen = from.load(&["connect", &destination.to_string()])?;
            assert_eq!(seen["read"], "ok", "{listener} {destination}: {seen}");
            let access = envoy.wait_for(listener, destination)?;
            assert_eq!(access.peer.ip(), client);
            assert_eq!(access.upstream, destination.to_string());
        }
    }
    zds.del(&inside)
}

#[test]
fn ztunnel_carries_pod_to_pod_over_hbone() -> Result<()> {
    let name = "ztunnel_carries_pod_to_pod_over_hbone";
    let (true, Some(program)) = (requires::root(name), requires::program(name, ztunnel::VARIABLE)) else {
        return Ok(());
    };
    let node = Node::new()?;
    let (client, server) = (node.pod("client")?, node.pod("server")?);
    let workloads = [&client, &server].map(|pod| Workload { pod, mesh: true });
    let zds_server = ZdsServer::bind(&node.zds_socket())?;
    let ztunnel = Ztunnel::start(&node, "ztunnel", &program, &workloads)?;
    let zds = zds_server.accept()?;
    for pod in [&client, &server] {
        iptables::enrol(pod.netns(), false)?;
        zds.add(pod)?;
    }
    zds.snapshot_sent()?;
    let _server = server.serve(&["--listen", "[::]:80"])?;
    for (from, to) in [(client.v4(), server.v4()), (client.v6(), server.v6())] {
        let seen = client.load(&["connect", &SocketAddr::new(to, 80).to_string()])?;
        assert_eq!(seen["read"], "ok", "{seen}\n{}", ztunnel.log());
        let peer: SocketAddr = seen["reply"]["accept"].as_str().unwrap_or_default().parse()?;
        assert_eq!(peer.ip().to_canonical(), from, "{seen}");
    }
    Ok(())
}

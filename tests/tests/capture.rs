//! The main job: connections of a pod in the mesh go through the proxy, both ways, and nobody sees a difference.

use std::net::SocketAddr;

use anyhow::Result;
use tests::proxy::Direction;
use tests::{Agent, Maps, Mesh, Node, PodSpec, Proxy, requires};

#[test]
fn the_older_of_two_pods_with_one_address_is_captured_too() -> Result<()> {
    if !requires::root("the_older_of_two_pods_with_one_address_is_captured_too") {
        return Ok(());
    }
    let node = Node::new()?;
    let twin = |name: &str| node.pod_with(PodSpec::new(name).ambient().host(77));
    let (older, newer, outside) = (twin("older")?, twin("newer")?, node.pod("outside")?);
    assert_eq!(older.v6(), newer.v6());
    node.apply(&[&older, &newer, &outside])?;
    // The agent starts when both are there.
    let mut agent = Agent::start(&node)?;
    let _proxy = Proxy::start(&node, "proxy", &[])?;
    for pod in [&older, &newer] {
        agent.wait_for_pod_state(pod.uid(), "enabled")?;
    }
    agent.wait_for("the conflict to be told", |status| {
        let told = status
            .problems
            .iter()
            .find(|problem| problem["object"].to_string().contains("older"))?;
        told["problem"]
            .to_string()
            .contains("belongs to the newer pod")
            .then_some(())
    })?;
    // It has no address to speak from, so that it cannot speak: closed, not direct.
    let destination = SocketAddr::new(outside.v6(), 8080).to_string();
    let refused = older.load(&["connect", &destination])?;
    assert_eq!(refused["connect"], "ENETUNREACH", "{refused}");
    assert_eq!(Maps::of(&node).counter(&older, "outbound_no_address")?, 1);
    Ok(())
}

#[test]
fn outbound_and_inbound_connections_go_through_the_proxy() -> Result<()> {
    if !requires::root("outbound_and_inbound_connections_go_through_the_proxy") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = (
        mesh.outside.serve(&["--listen", "[::]:80"])?,
        mesh.server.serve(&["--listen", "[::]:80"])?,
    );
    for (client, ip) in [
        (mesh.client.v4(), mesh.outside.v4()),
        (mesh.client.v6(), mesh.outside.v6()),
    ] {
        let destination = SocketAddr::new(ip, 80);
        let seen = mesh.client.load(&["connect", &destination.to_string()])?;
        assert_eq!(seen["read"], "ok", "{seen}");
        let through = mesh.proxy.wait_for_connection(Direction::Outbound, destination)?;
        assert_eq!(through.peer.ip(), client);
    }
    for (client, ip) in [
        (mesh.outside.v4(), mesh.server.v4()),
        (mesh.outside.v6(), mesh.server.v6()),
    ] {
        let destination = SocketAddr::new(ip, 80);
        let seen = mesh.outside.load(&["connect", &destination.to_string()])?;
        assert_eq!(seen["read"], "ok", "{seen}");
        let through = mesh.proxy.wait_for_connection(Direction::Inbound, destination)?;
        assert_eq!(through.peer.ip(), client);
    }
    Ok(())
}

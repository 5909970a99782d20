//! The main job: connections of a pod in the mesh go through the proxy, both ways, and nobody sees a difference.

use std::net::SocketAddr;

use anyhow::Result;
use tests::proxy::Direction;
use tests::{Mesh, requires};

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

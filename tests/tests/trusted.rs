//! Trusted flows: the node's own processes, which probe pods, pass by the proxy; nobody else does.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use serde_json::Value;
use tests::process::Process;
use tests::proxy::Direction;
use tests::{Mesh, programs, requires};

/// The node and a pod of the mesh, in each family.
fn families(mesh: &Mesh) -> Result<[(IpAddr, SocketAddr); 2]> {
    let x = mesh.node.subnet();
    Ok([
        (
            format!("10.{x}.0.1").parse()?,
            SocketAddr::new(mesh.server.v4(), 80),
        ),
        (
            format!("fd00:{x}::1").parse()?,
            SocketAddr::new(mesh.server.v6(), 80),
        ),
    ])
}

#[test]
fn probes_of_the_node_pass_with_their_true_source() -> Result<()> {
    if !requires::root("probes_of_the_node_pass_with_their_true_source") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _server = mesh.server.serve(&["--listen", "[::]:80"])?;
    for (node, pod) in families(&mesh)? {
        let seen = mesh.node.load(&["connect", &pod.to_string()])?;
        assert_eq!(seen["read"], "ok", "{seen}");
        let peer: SocketAddr = seen["reply"]["accept"].as_str().unwrap_or_default().parse()?;
        let local: SocketAddr = seen["local"].as_str().unwrap_or_default().parse()?;
        assert_eq!(
            (peer.ip().to_canonical(), peer.port()),
            (node, local.port()),
            "{seen}"
        );
        let closed = mesh
            .node
            .load(&["connect", &SocketAddr::new(pod.ip(), 9).to_string()])?;
        assert_eq!(closed["connect"], "ECONNREFUSED", "{closed}");
    }
    assert_eq!(mesh.proxy.connections()?, []);
    // Not because the proxy saw nothing of anybody, and not because it was there.
    let (_, pod) = families(&mesh)?[0];
    mesh.outside.load(&["connect", &pod.to_string()])?;
    mesh.proxy.wait_for_connection(Direction::Inbound, pod)?;
    mesh.proxy.process().kill();
    for (_, pod) in families(&mesh)? {
        assert_eq!(mesh.node.load(&["connect", &pod.to_string()])?["read"], "ok");
    }
    Ok(())
}

#[test]
fn a_flow_is_trusted_as_long_as_its_socket_is_open() -> Result<()> {
    if !requires::root("a_flow_is_trusted_as_long_as_its_socket_is_open") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh.server.serve(&["--listen", "[::]:80", "--reply", "echo"])?;
    for (node, pod) in families(&mesh)? {
        let mut command = mesh.node.command("load", &programs::find("meshgate-load")?)?;
        let mut open =
            Process::start_talking("probes", command.args(["hold", "3", &pod.to_string(), "--rst"]))?;
        assert_eq!(open.json::<Value>()?["connected"], 3);
        let trusted = mesh.maps().dump("TRUSTED")?;
        assert_eq!(trusted.len(), 3);
        for entry in trusted {
            assert_eq!(entry["flow"]["netns_cookie"], mesh.server.netns().cookie()?);
            assert_eq!(entry["flow"]["destination"], pod.to_string());
            let source: SocketAddr = entry["flow"]["source"].as_str().unwrap_or_default().parse()?;
            assert_eq!(source.ip(), node);
        }
        open.close_stdin();
        assert!(open.wait()?.success());
        mesh.maps().wait_for_count("TRUSTED", 0)?;
        // Whoever does not get through leaves nothing either.
        mesh.node
            .load(&["connect", &SocketAddr::new(pod.ip(), 9).to_string()])?;
        mesh.maps().wait_for_count("TRUSTED", 0)?;
    }
    Ok(())
}

#[test]
fn what_the_node_forwards_for_others_is_captured() -> Result<()> {
    if !requires::root("what_the_node_forwards_for_others_is_captured") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _server = mesh.server.serve(&["--listen", "[::]:80"])?;
    let clients = [mesh.outside.v4(), mesh.outside.v6()];
    for (client, (node, pod)) in clients.into_iter().zip(families(&mesh)?) {
        let prefix = if pod.is_ipv4() { 32 } else { 128 };
        mesh.outside
            .netns()
            .ip(&format!("route add {}/{prefix} via {node} dev eth0\n", pod.ip()))?;
        let seen = mesh.outside.load(&["connect", &pod.to_string()])?;
        assert_eq!(seen["read"], "ok", "{seen}");
        let through = mesh.proxy.wait_for_connection(Direction::Inbound, pod)?;
        assert_eq!(through.peer.ip(), client);
    }
    assert_eq!(mesh.maps().counter(&mesh.server, "inbound_trusted")?, 0);
    Ok(())
}

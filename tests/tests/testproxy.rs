//! The test proxy, proved without the agent: the iptables rules of a classic ambient pod lead connections to it.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use tests::proxy::{Answer, Direction, Event};
use tests::zds::{Peer, ZdsServer};
use tests::{Node, Pod, Proxy, iptables, requires};

/// A node with a client in the mesh, a server in the mesh and one outside, the proxy serving both.
struct Mesh {
    client: Pod,
    inside: Pod,
    outside: Pod,
    proxy: Proxy,
    zds: Peer,
    _server: ZdsServer,
    node: Node,
}

impl Mesh {
    fn new() -> Result<Self> {
        let node = Node::new()?;
        let (client, inside, outside) = (node.pod("client")?, node.pod("inside")?, node.pod("outside")?);
        let server = ZdsServer::bind(&node.zds_socket())?;
        let proxy = Proxy::start(&node, "proxy", &[])?;
        let zds = server.accept()?;
        for pod in [&client, &inside] {
            iptables::enrol(pod.netns(), false)?;
            zds.add(pod)?;
        }
        zds.snapshot_sent()?;
        Ok(Self {
            client,
            inside,
            outside,
            proxy,
            zds,
            _server: server,
            node,
        })
    }
}

fn at(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}

#[test]
fn outbound_connections_keep_their_destination() -> Result<()> {
    if !requires::root("outbound_connections_keep_their_destination") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _server = mesh.outside.serve(&["--listen", "[::]:8080"])?;
    let (v4, v6) = (at(mesh.outside.v4(), 8080), at(mesh.outside.v6(), 8080));
    let mapped = format!("[::ffff:{}]:8080", v4.ip());
    let cases = [
        (v4.to_string(), v4, mesh.client.v4(), Answer::SolIp),
        (v6.to_string(), v6, mesh.client.v6(), Answer::SolIpv6),
        (mapped, v4, mesh.client.v4(), Answer::SolIp),
    ];
    for (number, (dialled, destination, client, answer)) in cases.into_iter().enumerate() {
        let seen = mesh.client.load(&["connect", &dialled])?;
        assert_eq!(seen["read"], "ok", "{dialled}: {seen}");
        let logged = mesh.proxy.connections()?;
        let connection = &logged[number];
        assert_eq!(logged.len(), number + 1);
        assert_eq!(connection.direction, Direction::Outbound);
        assert_eq!(connection.pod, mesh.client.uid());
        assert_eq!(
            (connection.destination, connection.answer),
            (destination, answer),
            "{dialled}"
        );
        assert_eq!(connection.peer.ip(), client);
        assert_eq!(connection.result, "ok");
    }
    // A pod outside the mesh does not meet the proxy.
    let plain = mesh
        .outside
        .load(&["connect", &at(mesh.outside.v4(), 8080).to_string()])?;
    assert_eq!(plain["read"], "ok");
    assert_eq!(mesh.proxy.connections()?.len(), 3);
    mesh.zds.del(&mesh.client)?;
    mesh.proxy.wait_for("the pod to go", |event| {
        matches!(event, Event::Del { uid } if uid == mesh.client.uid()).then_some(())
    })
}

#[test]
fn inbound_connections_show_the_application_its_client() -> Result<()> {
    if !requires::root("inbound_connections_show_the_application_its_client") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _server = mesh.inside.serve(&["--listen", "[::]:8080"])?;
    for (client, destination) in [
        (mesh.outside.v4(), at(mesh.inside.v4(), 8080)),
        (mesh.outside.v6(), at(mesh.inside.v6(), 8080)),
    ] {
        let seen = mesh.outside.load(&["connect", &destination.to_string()])?;
        let peer: SocketAddr = seen["reply"]["accept"].as_str().unwrap_or_default().parse()?;
        assert_eq!(peer.ip().to_canonical(), client, "{seen}");
        let connection = mesh.proxy.wait_for_connection(Direction::Inbound, destination)?;
        assert_eq!(
            (connection.peer.ip(), connection.pod.as_str()),
            (client, mesh.inside.uid())
        );
        assert_eq!(connection.result, "ok");
    }
    // From pod to pod within the mesh a connection passes the proxy twice, and both ends are told the truth.
    let seen = mesh
        .client
        .load(&["connect", &at(mesh.inside.v6(), 8080).to_string()])?;
    let peer: SocketAddr = seen["reply"]["getpeername"]
        .as_str()
        .unwrap_or_default()
        .parse()?;
    assert_eq!(peer.ip(), mesh.client.v6(), "{seen}");
    let directions: Vec<_> = mesh.proxy.connections()?.iter().map(|c| c.direction).collect();
    assert_eq!(directions[2..], [Direction::Outbound, Direction::Inbound]);
    Ok(())
}

#[test]
fn half_closed_connections_bring_everything_and_failures_reset() -> Result<()> {
    if !requires::root("half_closed_connections_bring_everything_and_failures_reset") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh.outside.serve(&["--listen", "[::]:8080"])?;
    let _rude = mesh
        .outside
        .serve(&["--listen", "[::]:8081", "--reply", "reset"])?;
    let open = at(mesh.outside.v4(), 8080).to_string();
    let seen = mesh
        .client
        .load(&["connect", &open, "--send", "to the end", "--half-close"])?;
    assert_eq!(seen["rest"], "to the end\n", "{seen}");
    for port in [8081, 9] {
        let seen = mesh
            .client
            .load(&["connect", &at(mesh.outside.v4(), port).to_string()])?;
        assert_eq!(seen["read"], "ECONNRESET", "port {port}: {seen}");
    }
    Ok(())
}

#[test]
fn calls_to_the_proxys_own_ports_are_refused() -> Result<()> {
    if !requires::root("calls_to_the_proxys_own_ports_are_refused") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    for (pod, destination) in [
        (&mesh.client, "127.0.0.1:15001".to_owned()),
        (&mesh.client, "[::1]:15001".to_owned()),
        (&mesh.outside, at(mesh.inside.v4(), 15001).to_string()),
        (&mesh.outside, at(mesh.inside.v6(), 15006).to_string()),
        (&mesh.outside, at(mesh.inside.v6(), 15008).to_string()),
    ] {
        let seen = pod.load(&["connect", &destination])?;
        assert_eq!(seen["read"], "ECONNRESET", "{destination}: {seen}");
    }
    let refused: Vec<_> = mesh
        .proxy
        .connections()?
        .into_iter()
        .map(|c| (c.direction, c.result))
        .collect();
    assert_eq!(refused.len(), 5, "{refused:?}");
    assert!(refused.iter().all(|(_, result)| result != "ok"), "{refused:?}");
    assert_eq!(refused[4].0, Direction::Hbone);
    Ok(())
}

#[test]
fn a_proxy_is_replaced_without_a_failed_connection() -> Result<()> {
    if !requires::root("a_proxy_is_replaced_without_a_failed_connection") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh
        .outside
        .serve(&["--listen", "[::]:8080", "--reply", "echo"])?;
    let target = at(mesh.outside.v4(), 8080).to_string();
    // Without this, connections that wait in the older proxy's accept queue when it closes its port are reset
    // (ip-sysctl.rst), whatever the proxy does.
    mesh.client.netns().sysctl("net.ipv4.tcp_migrate_req", "1")?;
    let mut load = mesh.client.spawn(&["crr", &target, "--stdin", "--rst"])?;
    let mut newer = Proxy::start(&mesh.node, "newer", &[])?;
    let zds = mesh._server.accept()?;
    zds.add(&mesh.client)?;
    zds.keep(&mesh.inside)?;
    zds.snapshot_sent()?;
    newer.wait_for_connections(100)?;
    mesh.proxy.stop()?;
    newer.wait_for_connections(newer.connections()?.len() + 100)?;
    load.close_stdin();
    let result: serde_json::Value = load.json()?;
    assert_eq!(result["failed"], serde_json::json!({}), "{result}");
    Ok(())
}

#[test]
fn refused_adds_and_lost_agents_are_survived() -> Result<()> {
    if !requires::root("refused_adds_and_lost_agents_are_survived") {
        return Ok(());
    }
    let node = Node::new()?;
    let (a, b) = (node.pod("a")?, node.pod("b")?);
    let server = ZdsServer::bind(&node.zds_socket())?;
    let mut proxy = Proxy::start(&node, "proxy", &["--refuse-pod", "2"])?;
    let zds = server.accept()?;
    zds.add(&a)?;
    assert!(zds.add(&b).is_err());
    zds.add(&b)?;
    zds.snapshot_sent()?;
    drop((zds, server));
    proxy.wait_for("the loss", |event| {
        matches!(event, Event::Disconnected { .. }).then_some(())
    })?;
    let server = ZdsServer::bind(&node.zds_socket())?;
    let zds = server.accept()?;
    zds.keep(&a)?;
    zds.snapshot_sent()?;
    let gone = proxy.wait_for(
        "the pod that the snapshot did not name to go",
        |event| match event {
            Event::Del { uid } => Some(uid.clone()),
            _ => None,
        },
    )?;
    assert_eq!(gone, b.uid());
    Ok(())
}

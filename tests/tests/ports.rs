//! Ports: captured connections need no more of them than connections without a mesh, and take none from applications.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use serde_json::{Value, json};
use tests::crowd::Crowd;
use tests::tuning::open_files;
use tests::zds::ZdsServer;
use tests::{Mesh, Node, Pod, Proxy, iptables, requires};

fn at(ip: IpAddr, port: u16) -> String {
    SocketAddr::new(ip, port).to_string()
}

/// Connections of one pod at a time: more than there are ports.
const CROWD: usize = 40_000;
const PARTS: usize = 8;

#[test]
fn one_pod_has_more_connections_at_a_time_than_there_are_ports() -> Result<()> {
    if !requires::root("one_pod_has_more_connections_at_a_time_than_there_are_ports") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    // A proxy needs two descriptors for each connection; those that listen in one pod share its connections evenly.
    let proxies = (CROWD * 5 / 2).div_ceil(open_files());
    let mut more = Vec::new();
    for number in 1..proxies {
        let mut proxy = Proxy::start(&mesh.node, &format!("proxy-{number}"), &[])?;
        proxy.wait_for_pod(&mesh.client)?;
        more.push(proxy);
    }
    let ports = [81, 82, 83, 84];
    let mut servers = Vec::new();
    for port in ports {
        let listen = at(mesh.outside.v4(), port);
        servers.push(mesh.outside.serve(&["--listen", &listen, "--reply", "echo"])?);
    }
    let to = ports.map(|port| at(mesh.outside.v4(), port));
    // In parts, each of which is done well within the time that a fixture waits for a line.
    let mut crowds = Vec::new();
    for _ in 0..PARTS {
        let crowd = Crowd::open(&mesh.client, CROWD / PARTS, &to.each_ref().map(String::as_str))?;
        assert_eq!((crowd.connected, crowd.alive), (CROWD / PARTS, CROWD / PARTS));
        crowds.push(crowd);
    }
    assert_eq!(
        mesh.maps().counter(&mesh.client, "outbound_handed_over")?,
        CROWD as u64
    );
    let mut seen = mesh.proxy.connections()?.len();
    for proxy in &more {
        seen += proxy.connections()?.len();
    }
    assert_eq!(seen, CROWD);
    let alive = crowds.into_iter().map(Crowd::close).sum::<Result<usize>>()?;
    assert_eq!(alive, CROWD);
    Ok(())
}

/// Short connections, and local ports of the pod that they go to.
const SHORT: u64 = 800;

/// From one client to one port of a server which has 200 local ports, 130 a second: a port in TIME_WAIT comes up again
/// after one and a half seconds.
fn short_connections(client: &Pod, server: &Pod, ip: IpAddr) -> Result<Value> {
    server
        .netns()
        .sysctl("net.ipv4.ip_local_port_range", "40000 40199")?;
    server.netns().sysctl("net.ipv4.tcp_max_tw_buckets", "100000")?;
    let count = SHORT.to_string();
    client.load(&["crr", &at(ip, 80), "--count", &count, "--rate", "130"])
}

#[test]
fn many_short_connections_from_one_client_need_few_ports() -> Result<()> {
    if !requires::root("many_short_connections_from_one_client_need_few_ports") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh.server.serve(&["--listen", "[::]:80", "--reply", "echo"])?;
    for ip in [mesh.server.v4(), mesh.server.v6()] {
        let seen = short_connections(&mesh.outside, &mesh.server, ip)?;
        assert_eq!(
            (&seen["ok"], &seen["failed"]),
            (&json!(SHORT), &json!({})),
            "{ip}: {seen}"
        );
    }
    Ok(())
}

#[test]
fn by_iptables_many_short_connections_run_out_of_ports() -> Result<()> {
    if !requires::root("by_iptables_many_short_connections_run_out_of_ports") {
        return Ok(());
    }
    let node = Node::new()?;
    let (client, server) = (node.pod("client")?, node.pod("server")?);
    let agent = ZdsServer::bind(&node.zds_socket())?;
    let _proxy = Proxy::start(&node, "proxy", &[])?;
    let zds = agent.accept()?;
    iptables::enrol(server.netns(), false)?;
    zds.add(&server)?;
    zds.snapshot_sent()?;
    let _server = server.serve(&["--listen", "[::]:80", "--reply", "echo"])?;
    let seen = short_connections(&client, &server, server.v4())?;
    let failed: u64 = seen["failed"]
        .as_object()
        .map_or(0, |by_name| by_name.values().filter_map(Value::as_u64).sum());
    assert!(failed > SHORT / 2, "this comparison is out of date: {seen}");
    Ok(())
}

#[test]
fn one_client_port_reaches_two_ports_of_a_pod_at_once() -> Result<()> {
    if !requires::root("one_client_port_reaches_two_ports_of_a_pod_at_once") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh
        .server
        .serve(&["--listen", "[::]:81", "[::]:82", "--reply", "echo"])?;
    for (client, server) in [
        (mesh.outside.v4(), mesh.server.v4()),
        (mesh.outside.v6(), mesh.server.v6()),
    ] {
        let (bind, first, second) = (at(client, 4000), at(server, 81), at(server, 82));
        let mut held = mesh
            .outside
            .spawn(&["hold", "2", &first, &second, "--check", "--rst", "--bind", &bind])?;
        let opened: Value = held.json()?;
        assert_eq!(
            (&opened["connected"], &opened["alive"]),
            (&json!(2), &json!(2)),
            "{opened}"
        );
        held.close_stdin();
        assert_eq!(held.json::<Value>()?["alive"], 2);
    }
    Ok(())
}

#[test]
fn an_application_starts_again_while_its_connections_live() -> Result<()> {
    if !requires::root("an_application_starts_again_while_its_connections_live") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    for (listen, ip) in [("[::]:80", mesh.server.v4()), ("[::]:81", mesh.server.v6())] {
        let to = listen.replace("[::]", "");
        let to = at(ip, to.trim_start_matches(':').parse()?);
        for more in [&[] as &[&str], &["--no-reuse-address"]] {
            // Nobody listens yet: the proxy's end of this connection is what an application may meet.
            mesh.outside.load(&["connect", &to])?;
            let start = || {
                mesh.server
                    .serve(&[&["--listen", listen, "--reply", "echo"], more].concat())
            };
            let mut first = start()?;
            let mut held = mesh.outside.spawn(&["hold", "10", &to, "--check"])?;
            assert_eq!(held.json::<Value>()?["alive"], 10);
            first.kill();
            let _second = start()?;
            let seen = mesh.outside.load(&["crr", &to, "--count", "1"])?;
            assert_eq!(seen["ok"], 1, "{more:?}: {seen}");
        }
    }
    Ok(())
}

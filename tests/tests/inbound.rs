//! Inbound TCP: the application sees its true clients, a client sees at once when nobody is there, and only the proxy's
//! HBONE port is passed by.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::proxy::{Direction, Event};
use tests::wait::patient;
use tests::{Maps, Mesh, requires};

/// What must take no time at all; generous, because the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(1);

fn at(ip: IpAddr, port: u16) -> String {
    SocketAddr::new(ip, port).to_string()
}

/// The client and the server of each family.
fn families(mesh: &Mesh) -> [(IpAddr, IpAddr); 2] {
    [
        (mesh.outside.v4(), mesh.server.v4()),
        (mesh.outside.v6(), mesh.server.v6()),
    ]
}

/// The application sees this client by each way to ask.
fn shows_client(seen: &Value, client: IpAddr, mapped: bool) -> Result<()> {
    ensure!(seen["read"] == "ok", "{seen}");
    for way in ["accept", "getpeername", "so_peername"] {
        let peer: SocketAddr = seen["reply"][way].as_str().context("no address")?.parse()?;
        ensure!(peer.ip().to_canonical() == client, "{way}: {seen}");
        ensure!(client.is_ipv6() || peer.is_ipv6() == mapped, "{way}: {seen}");
    }
    Ok(())
}

#[test]
fn the_application_sees_its_true_client_by_each_way_to_ask() -> Result<()> {
    if !requires::root("the_application_sees_its_true_client_by_each_way_to_ask") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _dual = mesh.server.serve(&["--listen", "[::]:80"])?;
    let _v4 = mesh.server.serve(&["--listen", "0.0.0.0:81"])?;
    let _v6 = mesh.server.serve(&["--listen", "[::]:81", "--v6-only"])?;
    let _mptcp = mesh.server.serve(&["--listen", "[::]:82", "--mptcp"])?;
    let _own = mesh
        .server
        .serve(&["--listen", &at(mesh.server.v4(), 83), &at(mesh.server.v6(), 83)])?;
    for (client, server) in families(&mesh) {
        for (port, mapped) in [(80, true), (81, false), (82, true), (83, false)] {
            let destination = SocketAddr::new(server, port);
            let seen = mesh.outside.load(&["connect", &destination.to_string()])?;
            shows_client(&seen, client, mapped).with_context(|| destination.to_string())?;
            let through = mesh.proxy.wait_for_connection(Direction::Inbound, destination)?;
            assert_eq!(
                (through.peer.ip(), through.pod.as_str()),
                (client, mesh.server.uid())
            );
            let local: SocketAddr = seen["reply"]["local"].as_str().unwrap_or_default().parse()?;
            assert_eq!(
                (local.ip().to_canonical(), local.port()),
                (server, port),
                "{seen}"
            );
        }
    }
    Ok(())
}

#[test]
fn a_client_of_a_closed_port_is_reset_at_once() -> Result<()> {
    if !requires::root("a_client_of_a_closed_port_is_reset_at_once") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    for (_, server) in families(&mesh) {
        let began = Instant::now();
        let seen = mesh.outside.load(&["connect", &at(server, 9)])?;
        assert_eq!(seen["read"], "ECONNRESET", "{seen}");
        assert!(
            began.elapsed() < patient(AT_ONCE),
            "{server}: {:?}",
            began.elapsed()
        );
    }
    Ok(())
}

#[test]
fn a_client_that_writes_to_an_application_which_has_closed_is_reset_at_once() -> Result<()> {
    if !requires::root("a_client_that_writes_to_an_application_which_has_closed_is_reset_at_once") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _closes = mesh.server.serve(&["--listen", "[::]:80", "--reply", "close"])?;
    let _resets = mesh.server.serve(&["--listen", "[::]:81", "--reply", "reset"])?;
    for (_, server) in families(&mesh) {
        for port in [80, 81] {
            let began = Instant::now();
            let seen = mesh
                .outside
                .load(&["connect", &at(server, port), "--no-read", "--flood"])?;
            let told = seen["flood"].as_str().unwrap_or_default();
            assert!(["ECONNRESET", "EPIPE"].contains(&told), "{server}:{port}: {seen}");
            assert!(
                began.elapsed() < patient(AT_ONCE),
                "{server}:{port}: {:?}",
                began.elapsed()
            );
        }
    }
    Ok(())
}

#[test]
fn without_a_proxy_clients_are_refused_at_once() -> Result<()> {
    if !requires::root("without_a_proxy_clients_are_refused_at_once") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let log = mesh.node.run_dir().join("server.jsonl");
    let _server = mesh
        .server
        .serve(&["--listen", "[::]:80", "--log", &log.to_string_lossy()])?;
    mesh.proxy.process().kill();
    for (_, server) in families(&mesh) {
        let began = Instant::now();
        let seen = mesh.outside.load(&["connect", &at(server, 80)])?;
        assert_eq!(seen["connect"], "ECONNREFUSED", "{seen}");
        assert!(
            began.elapsed() < patient(AT_ONCE),
            "{server}: {:?}",
            began.elapsed()
        );
    }
    assert_eq!(std::fs::read_to_string(&log)?, "", "somebody got through");
    Ok(())
}

#[test]
fn the_proxy_refuses_calls_to_its_own_ports_and_its_hbone_port_is_passed_by() -> Result<()> {
    if !requires::root("the_proxy_refuses_calls_to_its_own_ports_and_its_hbone_port_is_passed_by") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    for (client, server) in families(&mesh) {
        for (port, direction) in [
            (15001, Direction::Inbound),
            (15006, Direction::Inbound),
            (15008, Direction::Hbone),
        ] {
            let destination = SocketAddr::new(server, port);
            let seen = mesh.outside.load(&["connect", &destination.to_string()])?;
            // A slow client hears of it before connect() returns.
            assert!(
                [&seen["read"], &seen["connect"]].contains(&&Value::from("ECONNRESET")),
                "{seen}"
            );
            let refused = mesh.proxy.wait_for_connection(direction, destination)?;
            assert_eq!(refused.peer.ip(), client);
            assert_ne!(refused.result, "ok");
        }
    }
    assert_eq!(mesh.maps().counter(&mesh.server, "inbound_hbone")?, 2);
    Ok(())
}

#[test]
fn an_address_that_kubernetes_does_not_know_is_captured_too() -> Result<()> {
    if !requires::root("an_address_that_kubernetes_does_not_know_is_captured_too") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _server = mesh.server.serve(&["--listen", "[::]:80"])?;
    let x = mesh.node.subnet();
    mesh.server.netns().ip(&format!(
        "addr add 10.{x}.0.200/24 dev eth0\naddr add fd00:{x}::2:1/64 dev eth0 nodad\n"
    ))?;
    for (client, second) in [
        (mesh.outside.v4(), format!("10.{x}.0.200")),
        (mesh.outside.v6(), format!("fd00:{x}::2:1")),
    ] {
        let destination = SocketAddr::new(second.parse()?, 80);
        let seen = mesh.outside.load(&["connect", &destination.to_string()])?;
        shows_client(&seen, client, true)?;
        let through = mesh.proxy.wait_for_connection(Direction::Inbound, destination)?;
        assert_eq!(through.peer.ip(), client);
        // A pod may call itself by it, whoever carries the connection.
        let own = mesh.server.load(&["connect", &destination.to_string()])?;
        assert_eq!(own["read"], "ok", "{own}");
    }
    Ok(())
}

#[test]
fn listeners_that_are_older_than_the_agent_are_adopted() -> Result<()> {
    if !requires::root("listeners_that_are_older_than_the_agent_are_adopted") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _server = mesh.server.serve(&["--listen", "[::]:80"])?;
    mesh.agent.kill9();
    let cleaned = Maps::of(&mesh.node).meshgate(&["cleanup"])?;
    assert_eq!(cleaned["left"], serde_json::json!([]), "{cleaned}");
    for (_, server) in families(&mesh) {
        let seen = mesh.outside.load(&["connect", &at(server, 80)])?;
        assert_eq!(seen["read"], "ok", "{seen}");
    }
    assert_eq!(mesh.proxy.connections()?, [], "there is no capture between");
    mesh.agent.restart()?;
    for pod in [&mesh.client, &mesh.server] {
        mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
    }
    let closed = |event: &Event| matches!(event, Event::Del { .. });
    assert!(
        !mesh.proxy.events()?.iter().any(closed),
        "the listeners are the old ones"
    );
    for (client, server) in families(&mesh) {
        let destination = SocketAddr::new(server, 80);
        let seen = mesh.outside.load(&["connect", &destination.to_string()])?;
        shows_client(&seen, client, true)?;
        mesh.proxy.wait_for_connection(Direction::Inbound, destination)?;
    }
    assert_eq!(mesh.maps().dump("LISTENERS")?.len(), 2);
    Ok(())
}

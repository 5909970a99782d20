//! Outbound TCP: whatever kind of application connects, the proxy learns where to and from whom, and the application
//! sees no difference.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests::proxy::{Connection, Direction};
use tests::spec::Families;
use tests::wait::patient;
use tests::{Mesh, Pod, PodSpec, Proxy, requires};

/// What must take no time at all; generous, because the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(1);

fn at(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}

/// The connection that the proxy saw last.
fn newest(proxy: &Proxy) -> Result<Connection> {
    proxy.connections()?.pop().context("the proxy saw no connection")
}

/// The families of a destination: the text that an application dials, where that is, and the wildcard and own address
/// of such a socket in `from`.
fn dialled(from: &Pod, to: &Pod, port: u16) -> [(String, SocketAddr, String, String); 3] {
    let (v4, v6) = (at(to.v4(), port), at(to.v6(), port));
    [
        (v4.to_string(), v4, "0.0.0.0".into(), from.v4().to_string()),
        (v6.to_string(), v6, "[::]".into(), format!("[{}]", from.v6())),
        (
            format!("[::ffff:{}]:{port}", to.v4()),
            v4,
            "[::]".into(),
            format!("[::ffff:{}]", from.v4()),
        ),
    ]
}

/// An application's connection is captured, and each of the names that it asks for is what it would be without a mesh.
fn captured(mesh: &Mesh, dialled: &str, destination: SocketAddr, own: &str, more: &[&str]) -> Result<Value> {
    let before = mesh.proxy.connections()?.len();
    let seen = mesh.client.load(&[&["connect", dialled], more].concat())?;
    assert_eq!(seen["read"], "ok", "{dialled} {more:?}: {seen}");
    assert_eq!(mesh.proxy.connections()?.len(), before + 1, "{dialled} {more:?}");
    let through = newest(&mesh.proxy)?;
    assert_eq!(
        (through.direction, through.destination),
        (Direction::Outbound, destination),
        "{dialled} {more:?}"
    );
    let own: SocketAddr = format!("{own}:0").parse()?;
    assert_eq!(through.peer.ip(), own.ip().to_canonical(), "{dialled} {more:?}");
    let local: SocketAddr = seen["local"].as_str().unwrap_or_default().parse()?;
    assert_eq!(local.ip(), own.ip(), "{dialled} {more:?}: {seen}");
    Ok(seen)
}

#[test]
fn every_kind_of_application_is_captured_and_sees_no_difference() -> Result<()> {
    if !requires::root("every_kind_of_application_is_captured_and_sees_no_difference") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh.outside.serve(&["--listen", "[::]:80"])?;
    for (text, destination, any, own) in dialled(&mesh.client, &mesh.outside, 80) {
        for kind in [
            &[] as &[&str],
            &["--bind", &format!("{own}:0")],
            &["--bind", &format!("{own}:4001")],
            &["--bind", &format!("{any}:0")],
            &["--bind", &format!("{any}:4002")],
            &["--non-blocking"],
            &["--fast-open", "--send", "x"],
            &["--fast-open-message", "x"],
            &["--mark", "1337"],
            &["--mptcp"],
        ] {
            let seen = captured(&mesh, &text, destination, &own, &[kind, &["--rst"]].concat())?;
            for name in ["peer", "so_peername"] {
                assert_eq!(seen[name], json!(text), "{kind:?}: {seen}");
            }
            if let Some(port) = kind
                .last()
                .and_then(|last| last.strip_prefix(&format!("{any}:400")))
            {
                assert_eq!(seen["local"], json!(format!("{own}:400{port}")), "{seen}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_stays_in_the_pod_and_what_is_not_tcp_is_left_alone() -> Result<()> {
    if !requires::root("what_stays_in_the_pod_and_what_is_not_tcp_is_left_alone") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh.client.serve(&["--listen", "[::]:80"])?;
    let own = [mesh.client.v4().to_string(), format!("[{}]", mesh.client.v6())];
    let mapped = format!("[::ffff:{}]", mesh.client.v4());
    let loopback = [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
    ];
    for host in loopback
        .into_iter()
        .chain(own.iter().chain([&mapped]).map(String::as_str))
    {
        let seen = mesh.client.load(&["connect", &format!("{host}:80")])?;
        assert_eq!(seen["read"], "ok", "{host}: {seen}");
        assert_eq!(
            seen["reply"]["accept"],
            seen["local"].as_str().map_or(json!(null), mapped_text),
            "{host}: {seen}"
        );
    }
    for ip in [mesh.outside.v4(), mesh.outside.v6()] {
        let receiver = mesh.outside.in_netns(|| UdpSocket::bind((ip, 53)))??;
        receiver.set_read_timeout(Some(Duration::from_secs(5)))?;
        let script = format!("echo ping >/dev/udp/{ip}/53");
        assert!(mesh.client.exec("bash", &["-c", &script])?.status.success());
        let (_, from) = receiver.recv_from(&mut [0; 16])?;
        assert!(mesh.client.ips().contains(&from.ip()), "{from}");
    }
    assert_eq!(mesh.proxy.connections()?, []);
    Ok(())
}

/// An address as a dual-stack server sees it.
fn mapped_text(text: &str) -> Value {
    let address: SocketAddr = text.parse().expect("an address");
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    json!(at(ip.into(), address.port()).to_string())
}

#[test]
fn a_destination_of_a_family_that_the_pod_lacks_is_unreachable_at_once() -> Result<()> {
    if !requires::root("a_destination_of_a_family_that_the_pod_lacks_is_unreachable_at_once") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let log = mesh.node.run_dir().join("server.jsonl");
    let log = log.to_string_lossy().into_owned();
    let _server = mesh.outside.serve(&["--listen", "[::]:80", "--log", &log])?;
    let only = |families, name: &str| {
        mesh.node
            .pod_with(PodSpec::new(name).ambient().families(families))
    };
    let (v4, v6) = (only(Families::V4, "v4")?, only(Families::V6, "v6")?);
    // A way out that Kubernetes does not know of: without the refusal these connections would leave in clear text.
    let x = mesh.node.subnet();
    v4.netns().ip(&format!(
        "addr add fd00:{x}::1:4/64 dev eth0 nodad\nroute add default via fd00:{x}::1\n"
    ))?;
    v6.netns().ip(&format!(
        "addr add 10.{x}.0.206/24 dev eth0\nroute add default via 10.{x}.0.1\n"
    ))?;
    mesh.node.apply(&[&v4, &v6])?;
    for pod in [&v4, &v6] {
        mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
    }
    let (to4, to6) = (at(mesh.outside.v4(), 80), at(mesh.outside.v6(), 80));
    let mapped = format!("[::ffff:{}]:80", to4.ip());
    for (pod, destination) in [(&v4, to6.to_string()), (&v6, to4.to_string()), (&v6, mapped)] {
        let began = Instant::now();
        let seen = pod.load(&["connect", &destination])?;
        assert_eq!(seen["connect"], "ENETUNREACH", "{destination}: {seen}");
        assert!(began.elapsed() < patient(AT_ONCE), "{:?}", began.elapsed());
    }
    assert_eq!(std::fs::read_to_string(&log)?, "", "somebody was reached");
    for (pod, destination) in [(&v4, to4), (&v6, to6)] {
        assert_eq!(pod.load(&["connect", &destination.to_string()])?["read"], "ok");
        assert_eq!(newest(&mesh.proxy)?.destination, destination);
    }
    Ok(())
}

#[test]
fn without_a_proxy_connections_are_refused_at_once_and_reach_nobody() -> Result<()> {
    if !requires::root("without_a_proxy_connections_are_refused_at_once_and_reach_nobody") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let log = mesh.node.run_dir().join("server.jsonl");
    let log = log.to_string_lossy().into_owned();
    let _server = mesh.outside.serve(&["--listen", "[::]:80", "--log", &log])?;
    mesh.proxy.process().kill();
    for (text, _, any, own) in dialled(&mesh.client, &mesh.outside, 80) {
        for bind in [format!("{own}:0"), format!("{any}:4003")] {
            let began = Instant::now();
            let seen = mesh.client.load(&["connect", &text, "--bind", &bind])?;
            assert_eq!(seen["connect"], "ECONNREFUSED", "{text}: {seen}");
            assert!(began.elapsed() < patient(AT_ONCE), "{:?}", began.elapsed());
        }
    }
    assert_eq!(std::fs::read_to_string(&log)?, "", "somebody was reached");
    Ok(())
}

#[test]
fn a_socket_that_is_connected_again_goes_where_it_is_told_the_second_time() -> Result<()> {
    if !requires::root("a_socket_that_is_connected_again_goes_where_it_is_told_the_second_time") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _own = mesh.client.serve(&["--listen", "[::]:80", "--banner", "own"])?;
    let _servers = (
        mesh.outside
            .serve(&["--listen", "[::]:81", "--banner", "first"])?,
        mesh.outside
            .serve(&["--listen", "[::]:82", "--banner", "second"])?,
    );
    for (ip, loopback) in [
        (mesh.outside.v4(), "127.0.0.1:80"),
        (mesh.outside.v6(), "[::1]:80"),
    ] {
        let [first, second] = [81, 82].map(|port| at(ip, port).to_string());
        for (first, second, banners) in [
            (first.as_str(), second.as_str(), ["first", "second"]),
            (&first, loopback, ["first", "own"]),
            (loopback, &second, ["own", "second"]),
        ] {
            let seen = mesh.client.load(&[
                "reuse",
                "--first",
                first,
                "--second",
                second,
                "--end",
                "disconnect",
            ])?;
            for (which, banner) in [("first", banners[0]), ("second", banners[1])] {
                assert_eq!(seen[which]["reply"]["banner"], banner, "{first} {second}: {seen}");
            }
            assert_eq!(seen["second"]["peer"], second, "{seen}");
            let local: SocketAddr = seen["second"]["local"].as_str().unwrap_or_default().parse()?;
            assert_eq!(local.ip().is_loopback(), second == loopback, "{seen}");
        }
    }
    Ok(())
}

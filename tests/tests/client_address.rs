//! The client's address: in the application's packets where its pod asks for that (`wire` mode), else at its socket
//! only; and what `wire` mode changes in a pod goes away with it.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests::proxy::Direction;
use tests::wait::patient;
use tests::{Agent, Maps, Mesh, Node, Pod, PodSpec, Proxy, istio, requires, wait};

/// The annotation of the mode.
const ANNOTATION: &str = "meshgate.io/client-address";

/// Settings that are 1 in `wire` mode.
const SETTINGS: [&str; 3] = [
    "net/ipv4/tcp_fwmark_accept",
    "net/ipv4/fwmark_reflect",
    "net/ipv6/fwmark_reflect",
];

fn at(ip: IpAddr, port: u16) -> String {
    SocketAddr::new(ip, port).to_string()
}

/// The usual scene, whose server asks for the client in its packets.
fn wire_mesh() -> Result<Mesh> {
    let node = Node::new()?;
    let client = node.pod_with(PodSpec::new("client").ambient())?;
    let server = node.pod_with(PodSpec::new("server").ambient().annotation(ANNOTATION, "wire"))?;
    let outside = node.pod("outside")?;
    node.apply(&[&client, &server, &outside])?;
    let mut agent = Agent::start(&node)?;
    let proxy = Proxy::start(&node, "proxy", &[])?;
    for pod in [&client, &server] {
        agent.wait_for_pod_state(pod.uid(), "enabled")?;
    }
    Ok(Mesh {
        agent,
        proxy,
        client,
        server,
        outside,
        node,
    })
}

/// The client and the server of each family.
fn families(mesh: &Mesh) -> [(IpAddr, IpAddr); 2] {
    [
        (mesh.outside.v4(), mesh.server.v4()),
        (mesh.outside.v6(), mesh.server.v6()),
    ]
}

/// Peers of the established connections at a port of a pod, as the kernel has them: what its packets carry. `ss` reads
/// them by netlink, where no program answers in the kernel's place.
fn peers_in_packets(pod: &Pod, port: u16) -> Result<Vec<IpAddr>> {
    let filter = format!("sport = :{port}");
    let output = pod.exec("ss", &["-Htn", "state", "established", &filter])?;
    let text = String::from_utf8(output.stdout)?;
    let peer = |line: &str| -> Result<IpAddr> {
        let peer = line.split_whitespace().nth(3).context("a line without a peer")?;
        let peer: SocketAddr = peer.parse().with_context(|| line.to_owned())?;
        Ok(peer.ip().to_canonical())
    };
    text.lines().map(peer).collect()
}

/// What of `wire` mode is there in a pod, as text: empty when nothing is.
fn remains(pod: &Pod) -> Result<Vec<String>> {
    let mut found = istio::routes(pod.netns())?;
    for setting in SETTINGS {
        let value = pod.in_netns(|| std::fs::read_to_string(format!("/proc/sys/{setting}")))??;
        if value.trim() != "0" {
            found.push(format!("{setting} {}", value.trim()));
        }
    }
    Ok(found)
}

/// Waits until nothing of `wire` mode is in a pod: the agent says in no file when it has changed a namespace.
fn wait_until_gone(pod: &Pod) -> Result<()> {
    let what = format!("nothing of wire mode in {}", pod.name());
    wait::asking(Duration::from_secs(10), &what, || {
        Ok(remains(pod)?.is_empty().then_some(()))
    })
}

/// Connects from outside, checks what the application is told, and returns what its packets carry.
fn client_in_packets(mesh: &mut Mesh, client: IpAddr, server: IpAddr) -> Result<Vec<IpAddr>> {
    let mut held = mesh.outside.spawn(&["hold", "1", &at(server, 80), "--check"])?;
    assert_eq!(held.json::<Value>()?["alive"], 1);
    let through = mesh
        .proxy
        .wait_for_connection(Direction::Inbound, SocketAddr::new(server, 80))?;
    assert_eq!(through.peer.ip(), client);
    peers_in_packets(&mesh.server, 80)
}

/// What the application itself is told of its clients so far.
fn told(log: &std::path::Path) -> Result<Vec<IpAddr>> {
    let text = std::fs::read_to_string(log)?;
    let peer = |line: &str| -> Result<IpAddr> {
        let line: Value = serde_json::from_str(line)?;
        let peer: SocketAddr = line["getpeername"].as_str().context("no peer")?.parse()?;
        Ok(peer.ip().to_canonical())
    };
    text.lines().map(peer).collect()
}

#[test]
fn the_client_is_in_the_packets_where_the_pod_asks_for_it() -> Result<()> {
    if !requires::root("the_client_is_in_the_packets_where_the_pod_asks_for_it") {
        return Ok(());
    }
    for wire in [true, false] {
        let mut mesh = if wire { wire_mesh()? } else { Mesh::new()? };
        let log = mesh.node.run_dir().join("server.jsonl");
        let path = log.to_string_lossy().into_owned();
        let arguments = ["--listen", "[::]:80", "--reply", "echo", "--log", &path];
        let _server = mesh.server.serve(&arguments)?;
        for (client, server) in families(&mesh) {
            let peers = client_in_packets(&mut mesh, client, server)?;
            // Both the proxy's end and the application's end of the connection are in this namespace.
            assert!(peers.contains(&client) && peers.len() == 2, "{peers:?}");
            let from_proxy = peers.iter().filter(|peer| **peer == client).count();
            assert_eq!(from_proxy, if wire { 2 } else { 1 }, "{peers:?}");
            assert_eq!(told(&log)?.last(), Some(&client));
        }
        assert_eq!(mesh.proxy.connections()?.len(), 2, "nothing is captured twice");
    }
    Ok(())
}

#[test]
fn a_client_of_a_closed_port_is_reset_at_once_in_wire_mode_too() -> Result<()> {
    if !requires::root("a_client_of_a_closed_port_is_reset_at_once_in_wire_mode_too") {
        return Ok(());
    }
    let mesh = wire_mesh()?;
    for (_, server) in families(&mesh) {
        let began = Instant::now();
        let seen = mesh.outside.load(&["connect", &at(server, 9)])?;
        assert_eq!(seen["read"], "ECONNRESET", "{seen}");
        assert!(
            began.elapsed() < patient(Duration::from_secs(1)),
            "{server}: {:?}",
            began.elapsed()
        );
    }
    mesh.maps().wait_for_count("TRUSTED", 0)
}

#[test]
fn wire_mode_goes_when_the_pod_no_longer_asks_or_leaves_the_mesh() -> Result<()> {
    if !requires::root("wire_mode_goes_when_the_pod_no_longer_asks_or_leaves_the_mesh") {
        return Ok(());
    }
    let mut mesh = wire_mesh()?;
    assert_eq!(remains(&mesh.client)?, Vec::<String>::new());
    assert_eq!(
        remains(&mesh.server)?.len(),
        2 + 2 + SETTINGS.len(),
        "{:?}",
        remains(&mesh.server)?
    );
    mesh.server.set_annotation(ANNOTATION, None);
    mesh.node.apply(&[&mesh.server])?;
    wait_until_gone(&mesh.server)?;
    let _server = mesh.server.serve(&["--listen", "[::]:80", "--reply", "echo"])?;
    for (client, server) in families(&mesh) {
        let peers = client_in_packets(&mut mesh, client, server)?;
        assert_eq!(
            peers.iter().filter(|peer| **peer == client).count(),
            1,
            "{peers:?}"
        );
    }
    mesh.server.set_annotation(ANNOTATION, Some("wire"));
    mesh.node.apply(&[&mesh.server])?;
    wait::asking(Duration::from_secs(10), "all of wire mode", || {
        Ok((remains(&mesh.server)?.len() == 2 + 2 + SETTINGS.len()).then_some(()))
    })?;
    mesh.server.set_ambient(false);
    mesh.node.apply(&[&mesh.server])?;
    wait_until_gone(&mesh.server)
}

#[test]
fn cleanup_takes_wire_mode_away_also_after_the_agent_was_killed() -> Result<()> {
    if !requires::root("cleanup_takes_wire_mode_away_also_after_the_agent_was_killed") {
        return Ok(());
    }
    let mut mesh = wire_mesh()?;
    mesh.agent.kill9();
    assert_ne!(remains(&mesh.server)?, Vec::<String>::new());
    let cleaned = Maps::of(&mesh.node).meshgate(&["cleanup"])?;
    assert_eq!(cleaned["left"], json!([]), "{cleaned}");
    assert_eq!(remains(&mesh.server)?, Vec::<String>::new());
    Ok(())
}

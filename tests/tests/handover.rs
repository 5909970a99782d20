//! What is remembered of a connection goes away with it: whatever becomes of a connection, the next one from the same
//! port goes where it is told, and the maps are as empty as before.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests::netns::feed;
use tests::proxy::{Answer, Connection, Direction};
use tests::{Mesh, Pod, Proxy, requires};

fn at(ip: IpAddr, port: u16) -> String {
    SocketAddr::new(ip, port).to_string()
}

/// The client's own port 4000 and the outside pod's address, in each family.
struct Family {
    /// What its socket is bound to.
    bind: String,
    /// What both ends see of that.
    own: String,
    ip: IpAddr,
}

fn families(mesh: &Mesh) -> [Family; 2] {
    [
        Family {
            bind: at(mesh.client.v4(), 4000),
            own: at(mesh.client.v4(), 4000),
            ip: mesh.outside.v4(),
        },
        Family {
            bind: "[::]:4000".to_owned(),
            own: at(mesh.client.v6(), 4000),
            ip: mesh.outside.v6(),
        },
    ]
}

/// The connection that the proxy saw last.
fn newest(proxy: &Proxy) -> Result<Connection> {
    proxy.connections()?.pop().context("the proxy saw no connection")
}

/// Nothing is remembered of any connection.
fn nothing_is_left(mesh: &Mesh) -> Result<()> {
    ["HANDOVER", "TRUSTED"]
        .into_iter()
        .try_for_each(|map| mesh.maps().wait_for_count(map, 0))
}

/// While it lives, SYNs of one family to the proxy's outbound port get lost in this pod.
struct Deaf<'a> {
    pod: &'a Pod,
    restore: &'static str,
}

impl<'a> Deaf<'a> {
    fn new(pod: &'a Pod, v4: bool) -> Result<Self> {
        let restore = if v4 {
            "iptables-restore"
        } else {
            "ip6tables-restore"
        };
        let deaf = Self { pod, restore };
        deaf.rule("-A").map(|()| deaf)
    }

    fn rule(&self, verb: &str) -> Result<()> {
        let mut command = Command::new("ip");
        command.args([
            "netns",
            "exec",
            self.pod.netns().name(),
            self.restore,
            "--noflush",
        ]);
        let rule = format!("*filter\n{verb} INPUT -p tcp --dport 15001 -j DROP\nCOMMIT\n");
        feed(&mut command, &rule)
    }
}

impl Drop for Deaf<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.rule("-D") {
            eprintln!("{error:#}");
        }
    }
}

#[test]
fn one_port_is_used_at_once_for_another_destination() -> Result<()> {
    if !requires::root("one_port_is_used_at_once_for_another_destination") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _servers = (
        mesh.outside
            .serve(&["--listen", "[::]:81", "--banner", "first"])?,
        mesh.outside
            .serve(&["--listen", "[::]:82", "--banner", "second"])?,
    );
    for Family { bind, own, ip } in families(&mesh) {
        for end in ["reset", "disconnect"] {
            for _ in 0..20 {
                let (first, second) = (at(ip, 81), at(ip, 82));
                let seen = mesh.client.load(&[
                    "reuse", "--bind", &bind, "--first", &first, "--second", &second, "--end", end, "--rst",
                ])?;
                for (which, to) in [("first", &first), ("second", &second)] {
                    assert_eq!(seen[which]["reply"]["banner"], which, "{end}: {seen}");
                    assert_eq!(seen[which]["peer"], json!(to), "{end}: {seen}");
                    assert_eq!(seen[which]["local"], json!(own), "{end}: {seen}");
                }
                assert_eq!(newest(&mesh.proxy)?.destination.to_string(), second);
            }
        }
    }
    nothing_is_left(&mesh)
}

#[test]
fn a_port_whose_connection_failed_is_used_for_another_destination() -> Result<()> {
    if !requires::root("a_port_whose_connection_failed_is_used_for_another_destination") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _server = mesh.outside.serve(&["--listen", "[::]:82"])?;
    let works = |mesh: &Mesh, Family { bind, own, ip }: &Family| -> Result<()> {
        nothing_is_left(mesh)?;
        let seen = mesh
            .client
            .load(&["connect", &at(*ip, 82), "--bind", bind, "--rst"])?;
        assert_eq!(seen["read"], "ok", "{seen}");
        let through = newest(&mesh.proxy)?;
        assert_eq!(
            (through.destination.to_string(), through.peer.to_string()),
            (at(*ip, 82), own.clone())
        );
        Ok(())
    };
    for family in families(&mesh) {
        let reset = mesh
            .client
            .load(&["connect", &at(family.ip, 9), "--bind", &family.bind, "--rst"])?;
        assert_eq!(reset["read"], "ECONNRESET", "{reset}");
        works(&mesh, &family)?;

        let deaf = Deaf::new(&mesh.client, family.ip.is_ipv4())?;
        let silence = mesh.client.load(&[
            "connect",
            &at(family.ip, 9),
            "--bind",
            &family.bind,
            "--timeout",
            "100",
        ])?;
        assert_eq!(silence["connect"], "ETIMEDOUT", "{silence}");
        nothing_is_left(&mesh)?;
        drop(deaf);
        works(&mesh, &family)?;
    }
    mesh.proxy.process().kill();
    for family in families(&mesh) {
        let refused = mesh
            .client
            .load(&["connect", &at(family.ip, 9), "--bind", &family.bind])?;
        assert_eq!(refused["connect"], "ECONNREFUSED", "{refused}");
    }
    mesh.proxy = Proxy::start(&mesh.node, "proxy2", &[])?;
    mesh.proxy.wait_for_pod(&mesh.client)?;
    for family in families(&mesh) {
        works(&mesh, &family)?;
    }
    Ok(())
}

#[test]
fn a_connection_that_the_application_closes_leaves_the_proxy_no_socket() -> Result<()> {
    if !requires::root("a_connection_that_the_application_closes_leaves_the_proxy_no_socket") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh.outside.serve(&["--listen", "[::]:80", "--reply", "echo"])?;
    for Family { ip, .. } in families(&mesh) {
        let seen = mesh.client.load(&["crr", &at(ip, 80), "--count", "20"])?;
        assert_eq!(seen["ok"], 20, "{seen}");
    }
    // The proxy's end goes with the last acknowledgement, which comes at once or, if it is lost, never.
    let deadline = Instant::now() + Duration::from_secs(2);
    while last_acks(&mesh.client)? > 0 {
        assert!(Instant::now() < deadline, "{} sockets", last_acks(&mesh.client)?);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Sockets of the proxy's outbound port in a pod that wait for the last acknowledgement (proc_net_tcp.rst: state 09).
fn last_acks(pod: &Pod) -> Result<usize> {
    let table = pod.in_netns(|| std::fs::read_to_string("/proc/thread-self/net/tcp6"))??;
    let waits = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, local, _, "09", ..] if local.ends_with(":3A99"))
    };
    Ok(table.lines().filter(waits).count())
}

#[test]
fn an_application_that_calls_the_proxy_itself_finds_nothing_of_an_earlier_connection() -> Result<()> {
    if !requires::root("an_application_that_calls_the_proxy_itself_finds_nothing_of_an_earlier_connection") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh.outside.serve(&["--listen", "[::]:80"])?;
    for (Family { bind, ip, .. }, proxy) in families(&mesh)
        .into_iter()
        .zip(["127.0.0.1:15001", "[::1]:15001"])
    {
        for earlier in [at(ip, 80), at(ip, 9)] {
            mesh.client
                .load(&["connect", &earlier, "--bind", &bind, "--rst"])?;
            let seen = mesh.client.load(&["connect", proxy, "--bind", &bind, "--rst"])?;
            assert_eq!(seen["read"], "ECONNRESET", "{seen}");
            let refused = newest(&mesh.proxy)?;
            assert_eq!(
                (refused.answer, refused.destination.to_string().as_str()),
                (Answer::Local, proxy)
            );
            assert_eq!(refused.peer.port(), 4000);
            assert_ne!(refused.result, "ok");
        }
    }
    assert_eq!(mesh.maps().counter(&mesh.client, "outbound_not_handed_over")?, 4);
    Ok(())
}

#[test]
fn a_connection_that_finds_no_room_in_the_map_is_refused_and_counted() -> Result<()> {
    if !requires::root("a_connection_that_finds_no_room_in_the_map_is_refused_and_counted") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh.outside.serve(&["--listen", "[::]:80"])?;
    let most = tests::tuning::open_files() - 100;
    let room = agent_common::limits::HANDOVERS;
    let _deaf = Deaf::new(&mesh.client, true)?;
    let mut waiting = Vec::new();
    for first in (0..room).step_by(most) {
        let count = most.min(room - first).to_string();
        let mut process = mesh
            .client
            .spawn(&["hold", &count, &at(mesh.outside.v4(), 80), "--half-open"])?;
        process.json::<Value>()?;
        waiting.push(process);
    }
    let full = || mesh.maps().counter(&mesh.client, "outbound_handover_full");
    assert_eq!(full()?, 0);
    let seen = mesh.client.load(&["connect", &at(mesh.outside.v6(), 80)])?;
    assert_eq!(seen["read"], "ECONNRESET", "{seen}");
    assert_eq!(full()?, 1);
    drop(waiting);
    nothing_is_left(&mesh)?;
    let seen = mesh.client.load(&["connect", &at(mesh.outside.v6(), 80)])?;
    assert_eq!(seen["read"], "ok", "{seen}");
    Ok(())
}

/// Connections of the test below.
const MANY: usize = 200_000;

#[test]
fn after_many_connections_the_maps_are_as_empty_as_before() -> Result<()> {
    if !requires::root("after_many_connections_the_maps_are_as_empty_as_before") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh.outside.serve(&[
        "--listen", "[::]:81", "[::]:82", "[::]:83", "[::]:84", "--reply", "echo",
    ])?;
    let ports = [81, 82, 83, 84];
    for pod in [&mesh.client, &mesh.server] {
        pod.netns().sysctl("net.ipv4.ip_local_port_range", "1024 65535")?;
        pod.netns().sysctl("net.ipv4.tcp_max_tw_buckets", "0")?;
    }
    let lasting = ["LISTENERS", "ADDRESSES", "PODS", "NAMES", "NETWORKS"];
    let before = lasting.map(|map| mesh.maps().dump(map).expect("a map that can be read"));
    let each = (MANY / 4).to_string();
    let open_and_close = |pod: &Pod, ip| {
        let to = ports.map(|port| at(ip, port));
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        pod.load(&[&["crr", "--count", &each, "--rst"], to.as_slice()].concat())
    };
    let done = std::thread::scope(|scope| {
        let clients = [&mesh.client, &mesh.server];
        let ips = [mesh.outside.v4(), mesh.outside.v6()];
        let pairs = clients.into_iter().flat_map(|pod| ips.map(|ip| (pod, ip)));
        let threads: Vec<_> = pairs
            .map(|(pod, ip)| scope.spawn(move || open_and_close(pod, ip)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread that ends"))
            .collect::<Result<Vec<_>>>()
    })?;
    for done in done {
        assert_eq!(
            (&done["ok"], &done["failed"]),
            (&json!(MANY / 4), &json!({})),
            "{done}"
        );
    }
    nothing_is_left(&mesh)?;
    assert_eq!(
        lasting.map(|map| mesh.maps().dump(map).expect("a map that can be read")),
        before
    );
    let captured = |pod| mesh.maps().counter(pod, "outbound_captured");
    assert_eq!(captured(&mesh.client)? + captured(&mesh.server)?, MANY as u64);
    assert_eq!(newest(&mesh.proxy)?.direction, Direction::Outbound);
    Ok(())
}

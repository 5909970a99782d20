//! Limits: a full map, and many connections one after the other.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use serde_json::{Value, json};
use tests::loss::Deaf;
use tests::{Mesh, Pod, requires};

fn at(ip: IpAddr, port: u16) -> String {
    SocketAddr::new(ip, port).to_string()
}

/// Nothing is remembered of any connection.
fn nothing_is_left(mesh: &Mesh) -> Result<()> {
    ["HANDOVER", "TRUSTED"]
        .into_iter()
        .try_for_each(|map| mesh.maps().wait_for_count(map, 0))
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
    Ok(())
}

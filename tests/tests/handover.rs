//! What is remembered of a connection goes away with it: whatever becomes of a connection, the next one from the same
//! port goes where it is told.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests::loss::Deaf;
use tests::proxy::{Answer, Connection};
use tests::{Mesh, Pod, Proxy, requires, wait};

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
fn the_proxy_learns_at_once_that_an_application_has_gone() -> Result<()> {
    if !requires::root("the_proxy_learns_at_once_that_an_application_has_gone") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh.outside.serve(&["--listen", "[::]:80", "--delay", "300"])?;
    for Family { ip, .. } in families(&mesh) {
        let seen = mesh.client.load(&["connect", &at(ip, 80), "--no-read"])?;
        assert_eq!(seen["connect"], "ok", "{seen}");
    }
    assert_eq!(
        open_at_the_proxy(&mesh.client)?,
        2,
        "the server has not answered yet"
    );
    // What the server sends is answered with a reset, on which the proxy closes. If that is lost, it tries for minutes.
    wait::asking(Duration::from_secs(2), "the proxy's end to go", || {
        Ok((open_at_the_proxy(&mesh.client)? == 0).then_some(()))
    })
}

/// Connections at the proxy's outbound port in a pod, other than those in TIME_WAIT (proc_net_tcp.rst: 06; listeners
/// are 0A).
fn open_at_the_proxy(pod: &Pod) -> Result<usize> {
    let table = pod.in_netns(|| std::fs::read_to_string("/proc/thread-self/net/tcp6"))??;
    let open = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, local, _, state, ..] if local.ends_with(":3A99") && !["06", "0A"].contains(&state))
    };
    Ok(table.lines().filter(open).count())
}

#[test]
fn nothing_is_remembered_of_a_connection_that_is_open() -> Result<()> {
    if !requires::root("nothing_is_remembered_of_a_connection_that_is_open") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _servers = (
        mesh.outside.serve(&["--listen", "[::]:80", "--reply", "echo"])?,
        mesh.server.serve(&["--listen", "[::]:80", "--reply", "echo"])?,
    );
    let mut held = Vec::new();
    for (from, to) in [(&mesh.client, &mesh.outside), (&mesh.outside, &mesh.server)] {
        let to = [at(to.v4(), 80), at(to.v6(), 80)];
        let mut open = from.spawn(&["hold", "4", &to[0], &to[1], "--check"])?;
        assert_eq!(open.json::<Value>()?["alive"], 4);
        held.push(open);
    }
    nothing_is_left(&mesh)
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

//! The load tool: what it reports is what happened.

use std::net::SocketAddr;

use anyhow::Result;
use serde_json::{Value, json};
use tests::{Node, Pod, requires};

/// A client, a server, and the node that they are on.
fn pair() -> Result<(Node, Pod, Pod)> {
    let node = Node::new()?;
    let (client, server) = (node.pod("client")?, node.pod("server")?);
    Ok((node, client, server))
}

#[test]
fn one_local_port_is_used_twice_whatever_became_of_the_first_connection() -> Result<()> {
    if !requires::root("one_local_port_is_used_twice_whatever_became_of_the_first_connection") {
        return Ok(());
    }
    let (_node, client, server) = pair()?;
    let _a = server.serve(&["--listen", "[::]:81", "--banner", "a"])?;
    let _b = server.serve(&["--listen", "[::]:82", "--banner", "b"])?;
    let at = |port| SocketAddr::new(server.v4(), port).to_string();
    let bind = SocketAddr::new(client.v4(), 4000).to_string();
    for end in ["reset", "disconnect"] {
        let seen = client.load(&[
            "reuse",
            "--bind",
            &bind,
            "--first",
            &at(81),
            "--second",
            &at(82),
            "--end",
            end,
        ])?;
        assert_eq!(seen["first"]["reply"]["banner"], "a", "{end}: {seen}");
        assert_eq!(seen["second"]["reply"]["banner"], "b", "{end}: {seen}");
        assert_eq!(seen["second"]["local"], json!(bind), "{end}: {seen}");
    }
    let seen = client.load(&["reuse", "--bind", &bind, "--first", &at(9), "--second", &at(82)])?;
    assert_eq!(seen["first"]["connect"], "ECONNREFUSED", "{seen}");
    assert_eq!(seen["second"]["reply"]["banner"], "b", "{seen}");
    Ok(())
}

#[test]
fn applications_of_every_kind_connect() -> Result<()> {
    if !requires::root("applications_of_every_kind_connect") {
        return Ok(());
    }
    let (_node, client, server) = pair()?;
    let _plain = server.serve(&["--listen", "[::]:81"])?;
    let _mptcp = server.serve(&["--listen", "[::]:82", "--mptcp"])?;
    let mapped = format!("[::ffff:{}]", server.v4());
    for kind in [
        &[] as &[&str],
        &["--mptcp"],
        &["--non-blocking"],
        &["--fast-open", "--send", "x"],
        &["--mark", "1337"],
    ] {
        for host in [
            server.v4().to_string(),
            format!("[{}]", server.v6()),
            mapped.clone(),
        ] {
            for port in [81, 82] {
                let target = format!("{host}:{port}");
                let seen = client.load(&[&["connect", &target], kind].concat())?;
                assert_eq!(seen["read"], "ok", "{kind:?} {target}: {seen}");
                assert_eq!(seen["peer"], json!(target), "{kind:?}: {seen}");
            }
        }
    }
    let silent = server.serve(&["--listen", "[::]:83", "--reply", "silent"])?;
    let target = format!("{}:83", server.v4());
    assert_eq!(
        client.load(&["connect", &target, "--timeout", "50"])?["read"],
        "ETIMEDOUT"
    );
    drop(silent);
    assert_eq!(client.load(&["connect", &target])?["connect"], "ECONNREFUSED");
    Ok(())
}

#[test]
fn rates_count_what_succeeded_and_name_what_failed() -> Result<()> {
    if !requires::root("rates_count_what_succeeded_and_name_what_failed") {
        return Ok(());
    }
    let (_node, client, server) = pair()?;
    let _echo = server.serve(&["--listen", "[::]:81", "--reply", "echo"])?;
    let _sink = server.serve(&["--listen", "[::]:82", "--reply", "sink"])?;
    let _source = server.serve(&["--listen", "[::]:83", "--reply", "source"])?;
    let at = |port| SocketAddr::new(server.v6(), port).to_string();
    let seen = client.load(&["crr", &at(81), &at(9), "--count", "100", "--concurrency", "2"])?;
    assert_eq!(
        (&seen["ok"], &seen["failed"]),
        (&json!(100), &json!({ "ECONNREFUSED": 100 })),
        "{seen}"
    );
    let seen = client.load(&["rr", &at(81), "--count", "100", "--size", "1000"])?;
    assert_eq!(
        (&seen["ok"], &seen["failed"]),
        (&json!(100), &json!({})),
        "{seen}"
    );
    assert!(seen["p99_us"].as_u64() >= seen["p50_us"].as_u64(), "{seen}");
    for (port, way) in [(82, "up"), (83, "down")] {
        let seen = client.load(&["stream", &at(port), "--way", way, "--duration", "0.1"])?;
        assert!(seen["mib_per_second"].as_f64() > Some(1.0), "{way}: {seen}");
    }
    Ok(())
}

#[test]
fn held_connections_are_open_until_the_end_and_ports_can_run_out() -> Result<()> {
    if !requires::root("held_connections_are_open_until_the_end_and_ports_can_run_out") {
        return Ok(());
    }
    let (_node, client, server) = pair()?;
    let _echo = server.serve(&["--listen", "[::]:81", "[::]:82", "--reply", "echo"])?;
    client
        .netns()
        .sysctl("net.ipv4.ip_local_port_range", "40000 40099")?;
    let at = |port| SocketAddr::new(server.v4(), port).to_string();
    let mut hold = client.spawn(&["hold", "250", &at(81), &at(82), "--check"])?;
    let opened: Value = hold.json()?;
    assert_eq!(
        (&opened["connected"], &opened["alive"]),
        (&json!(200), &json!(200)),
        "{opened}"
    );
    assert_eq!(opened["failed"], json!({ "EADDRNOTAVAIL": 50 }), "{opened}");
    hold.close_stdin();
    assert_eq!(hold.json::<Value>()?["alive"], 200);
    Ok(())
}

//! All ways to ask: the proxy answers, and whoever reads the answer is told that the name server did.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde_json::json;
use tests::dns::{MANY, Zone};
use tests::proxy::Protocol;
use tests::requires;

use crate::scene::{Scene, own};

#[test]
fn every_way_to_ask_is_answered_by_the_proxy_in_the_name_servers_name() -> Result<()> {
    if !requires::root("every_way_to_ask_is_answered_by_the_proxy_in_the_name_servers_name") {
        return Ok(());
    }
    let scene = Scene::new(None, "true")?;
    let mut asked = 0;
    for server in scene.addresses() {
        let own = own(&scene.client, &server)?;
        let any = if server.starts_with('[') {
            "[::]"
        } else {
            "0.0.0.0"
        };
        let (own_port, any_port) = (SocketAddr::new(own, 4053).to_string(), format!("{any}:4054"));
        for way in ["connected", "messages", "stream"] {
            for bind in [None, Some(&own_port), Some(&any_port)] {
                let bind = bind.filter(|_| way != "stream").map(|at| ["--bind", at]);
                let bind = bind.as_ref().map_or(&[] as &[&str], |words| words.as_slice());
                let told = scene.ask(&[&server], &[&["--way", way], bind].concat())?;
                let told = &told[0];
                assert_eq!(
                    told["first"],
                    json!(Zone::MESH.v4),
                    "{server} {way} {bind:?}: {told}"
                );
                if way != "stream" {
                    assert_eq!(told["from"], json!(server), "{server} {way} {bind:?}: {told}");
                }
                if way != "messages" {
                    assert_eq!(told["peer"], json!(server), "{server} {way} {bind:?}: {told}");
                    let local: SocketAddr = told["local"].as_str().unwrap_or_default().parse()?;
                    assert_eq!(local.ip(), own, "{server} {way} {bind:?}: {told}");
                }
                asked += 1;
            }
        }
    }
    assert_eq!(scene.proxy.questions()?.len(), asked);
    assert_eq!(scene.count("dns_captured")?, asked as u64);
    assert_eq!(scene.servers.asked(), []);
    Ok(())
}

#[test]
fn one_socket_asks_several_servers_and_each_answers_for_itself() -> Result<()> {
    if !requires::root("one_socket_asks_several_servers_and_each_answers_for_itself") {
        return Ok(());
    }
    let scene = Scene::new(Some("true"), "false")?;
    let x = scene.node.subnet();
    let [v4, v6, mapped] = scene.addresses();
    // Only the proxy answers in the name of these.
    let (far4, far6) = (format!("10.{x}.9.9:53"), format!("[fd00:{x}::9:9]:53"));
    let far_mapped = format!("[::ffff:10.{x}.9.9]:53");
    let (own4, own6) = (scene.client.v4(), scene.client.v6());
    for (servers, binds) in [
        (
            [&v4, &far4, "192.0.2.53:53", &far4, &v4],
            ["0.0.0.0:4055".to_owned(), format!("{own4}:0")],
        ),
        (
            [&v6, &far6, "[2001:db8::53]:53", &far6, &v6],
            ["[::]:4056".to_owned(), format!("[{own6}]:0")],
        ),
        (
            [&mapped, &v6, &far_mapped, &far6, &v6],
            ["[::]:4057".to_owned(), "[::]:0".to_owned()],
        ),
    ] {
        for bind in [None, Some(&binds[0]), Some(&binds[1])] {
            let bind = bind.map_or(Vec::new(), |at| vec!["--bind", at]);
            let told = scene.ask(&servers, &[&["--way", "messages"], &bind[..]].concat())?;
            for (told, server) in told.iter().zip(servers) {
                assert_eq!(
                    (&told["asked"], &told["from"]),
                    (&json!("ok"), &json!(server)),
                    "{bind:?} {told}"
                );
            }
        }
    }
    assert_eq!(scene.servers.asked(), []);
    Ok(())
}

#[test]
fn a_socket_that_is_connected_again_is_answered_by_whom_it_asks_then() -> Result<()> {
    if !requires::root("a_socket_that_is_connected_again_is_answered_by_whom_it_asks_then") {
        return Ok(());
    }
    let scene = Scene::new(None, "true")?;
    let x = scene.node.subnet();
    // Another port is not captured: its server answers itself.
    let elsewhere = [IpAddr::from([10, x as u8, 0, 1]), format!("fd00:{x}::1").parse()?];
    for (ip, loopback) in [(scene.outside.v4(), "127.0.0.1"), (scene.outside.v6(), "::1")] {
        let (server, loopback) = (SocketAddr::new(ip, 53).to_string(), loopback.parse::<IpAddr>()?);
        let own = scene
            .client
            .in_netns(|| std::net::UdpSocket::bind((loopback, 53)))??;
        own.set_nonblocking(true)?;
        let other = elsewhere.iter().find(|other| other.is_ipv4() == ip.is_ipv4());
        let other = SocketAddr::new(*other.context("a router")?, 9).to_string();
        let own = SocketAddr::new(loopback, 53).to_string();
        for way in ["again", "disconnected"] {
            let servers = [server.as_str(), &other, &server];
            let told = scene.ask(&servers, &["--way", way, "--timeout", "300"])?;
            for which in [0, 2] {
                assert_eq!(told[which]["from"], json!(server), "{way}: {told:?}");
            }
            let local: SocketAddr = told[1]["local"].as_str().unwrap_or_default().parse()?;
            assert!(scene.client.ips().contains(&local.ip()), "{way}: {told:?}");
            assert_eq!(told[1]["peer"], json!(other), "{way}: {told:?}");
        }
        let told = scene.ask(&[&server, &own], &["--way", "disconnected", "--timeout", "300"])?;
        assert_eq!(told[1]["peer"], json!(own), "{told:?}");
        let local: SocketAddr = told[1]["local"].as_str().unwrap_or_default().parse()?;
        assert_eq!(local.ip(), loopback, "{told:?}");
    }
    Ok(())
}

#[test]
fn a_long_answer_comes_by_tcp_and_services_and_ipv6_addresses_are_found() -> Result<()> {
    if !requires::root("a_long_answer_comes_by_tcp_and_services_and_ipv6_addresses_are_found") {
        return Ok(());
    }
    let scene = Scene::new(None, "true")?;
    let [server, ..] = scene.addresses();
    let ask = |more: &[&str]| Ok::<_, anyhow::Error>(scene.ask(&[&server], more)?.remove(0));
    let big = ["--name", "big.mesh.test"];
    for (more, is_cut, count) in [
        (&[] as &[&str], true, 0),
        (&["--limit", "4096"], true, 0),
        (&["--limit", "65000", "--way", "stream"], false, MANY),
    ] {
        let told = ask(&[&big, more].concat())?;
        assert_eq!(
            (&told["cut"], &told["count"]),
            (&json!(is_cut), &json!(count)),
            "{told}"
        );
    }
    for (name, kind) in [("_http._tcp.web.mesh.test", "srv"), ("web.mesh.test", "aaaa")] {
        let told = ask(&["--name", name, "--kind", kind])?;
        assert_eq!((&told["code"], &told["count"]), (&json!(0), &json!(1)), "{told}");
    }
    let by_tcp = (Protocol::Tcp, "big.mesh.test".to_owned());
    assert!(scene.proxy.questions()?.contains(&by_tcp));
    Ok(())
}

#[test]
fn a_socket_that_is_bound_to_a_device_asks_the_proxy_too() -> Result<()> {
    if !requires::root("a_socket_that_is_bound_to_a_device_asks_the_proxy_too") {
        return Ok(());
    }
    let scene = Scene::new(None, "true")?;
    for server in scene.addresses() {
        let told = scene.ask(&[&server], &["--device", "eth0"])?;
        assert_eq!(told[0]["first"], json!(Zone::MESH.v4), "{server}: {told:?}");
        // The first message finds its device chosen already, and frees the socket for the next.
        let told = scene.ask(&[&server, &server], &["--way", "messages", "--device", "eth0"])?;
        assert_eq!(told[0]["asked"], "ETIMEDOUT", "{server}: {told:?}");
        assert_eq!(told[1]["from"], json!(server), "{server}: {told:?}");
    }
    assert_eq!(scene.servers.asked(), []);
    Ok(())
}

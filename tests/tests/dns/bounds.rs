//! What is captured and what is not, and what happens where the proxy cannot be reached.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde_json::json;
use tests::dns::{NameServer, Zone};
use tests::spec::Families;
use tests::{Maps, PodSpec, requires};

use crate::scene::{CAPTURE, Scene, own};

#[test]
fn the_proxys_own_questions_reach_their_name_server() -> Result<()> {
    if !requires::root("the_proxys_own_questions_reach_their_name_server") {
        return Ok(());
    }
    let scene = Scene::new(None, "true")?;
    for way in ["connected", "messages", "stream"] {
        for server in scene.addresses() {
            let told = scene.ask(&[&server], &["--way", way, "--name", "example.test"])?;
            assert_eq!(
                told[0]["first"],
                json!(Zone::OUTSIDE.v4),
                "{server} {way}: {told:?}"
            );
        }
    }
    let (asked, questions) = (scene.servers.asked(), scene.proxy.questions()?);
    assert_eq!((asked.len(), questions.len()), (9, 9), "{asked:?}");
    assert!(
        asked.iter().all(|(from, _)| from.ip() == scene.client.v4()),
        "{asked:?}"
    );
    Ok(())
}

#[test]
fn the_annotation_switches_it_while_the_pod_runs() -> Result<()> {
    if !requires::root("the_annotation_switches_it_while_the_pod_runs") {
        return Ok(());
    }
    let mut scene = Scene::new(None, "false")?;
    let servers = scene.addresses();
    for (annotation, is_captured) in [
        (None, false),
        (Some("true"), true),
        (Some("false"), false),
        (Some("perhaps"), false),
        (Some("1"), true),
        (None, false),
    ] {
        scene.client.set_annotation(CAPTURE, annotation);
        scene.node.apply(&[&scene.client, &scene.outside])?;
        let uid = scene.client.uid().to_owned();
        tests::wait::asking(tests::wait::LIMIT, "the pod to be as its annotation says", || {
            let pods = scene.agent.cli_json(&["pods"])?;
            let pod = pods
                .as_array()
                .and_then(|pods| pods.iter().find(|pod| pod["uid"] == uid));
            let pod = pod.context("no such pod")?;
            Ok((pod["dns_capture"] == is_captured).then_some(()))
        })?;
        let expected = if is_captured {
            Zone::MESH.v4
        } else {
            Zone::OUTSIDE.v4
        };
        for (server, way) in servers
            .iter()
            .flat_map(|server| ["connected", "messages", "stream"].map(|way| (server, way)))
        {
            let told = scene.ask(&[server], &["--way", way])?;
            assert_eq!(
                told[0]["first"],
                json!(expected),
                "{annotation:?} {server} {way}: {told:?}"
            );
            if way != "stream" {
                assert_eq!(told[0]["from"], json!(server), "{annotation:?} {way}: {told:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn it_goes_on_without_the_agent_and_when_it_comes_back() -> Result<()> {
    if !requires::root("it_goes_on_without_the_agent_and_when_it_comes_back") {
        return Ok(());
    }
    let mut scene = Scene::new(Some("true"), "false")?;
    let answered = |scene: &Scene| -> Result<()> {
        for server in scene.addresses() {
            let told = scene.ask(&[&server], &["--way", "messages"])?;
            assert_eq!(told[0]["first"], json!(Zone::MESH.v4), "{server}: {told:?}");
        }
        Ok(())
    };
    let flags = Maps::of(&scene.node).dump("PODS")?;
    scene.agent.kill9();
    answered(&scene)?;
    scene.agent.restart()?;
    scene.agent.wait_for_pod_state(scene.client.uid(), "enabled")?;
    answered(&scene)?;
    assert_eq!(Maps::of(&scene.node).dump("PODS")?, flags);
    assert_eq!(scene.servers.asked(), []);
    Ok(())
}

#[test]
fn without_a_proxy_no_question_leaves_the_pod() -> Result<()> {
    if !requires::root("without_a_proxy_no_question_leaves_the_pod") {
        return Ok(());
    }
    let mut scene = Scene::new(None, "true")?;
    scene.proxy.process().kill();
    for server in scene.addresses() {
        for (way, asked, answer) in [
            ("connected", "ok", "ECONNREFUSED"),
            ("messages", "ok", "ETIMEDOUT"),
            ("stream", "ECONNREFUSED", ""),
        ] {
            let told = scene.ask(&[&server], &["--way", way, "--timeout", "200"])?;
            if way == "messages" && !server.contains('.') {
                // To nobody on ::1 nothing is sent.
                assert_eq!(told[0]["asked"], "ENETUNREACH", "{server}: {told:?}");
                continue;
            }
            assert_eq!(told[0]["asked"], asked, "{server} {way}: {told:?}");
            if !answer.is_empty() {
                assert_eq!(
                    told[0]["answer"].as_str().unwrap_or("ETIMEDOUT"),
                    answer,
                    "{server} {way}: {told:?}"
                );
            }
        }
    }
    assert_eq!(scene.servers.asked(), []);
    Ok(())
}

#[test]
fn where_lo_has_no_ipv6_name_servers_of_ipv6_are_asked_by_ipv4_or_not_at_all() -> Result<()> {
    if !requires::root("where_lo_has_no_ipv6_name_servers_of_ipv6_are_asked_by_ipv4_or_not_at_all") {
        return Ok(());
    }
    let scene = Scene::with(None, "true", |client| {
        client.netns().sysctl("net.ipv6.conf.lo.disable_ipv6", "1")
    })?;
    let [v4, v6, mapped] = scene.addresses();
    for (server, way) in [
        (&v4, "connected"),
        (&v4, "messages"),
        (&mapped, "messages"),
        (&v6, "connected"),
        (&v6, "stream"),
    ] {
        let told = scene.ask(&[server], &["--way", way])?;
        assert_eq!(told[0]["first"], json!(Zone::MESH.v4), "{server} {way}: {told:?}");
        if way != "messages" {
            assert_eq!(told[0]["peer"], json!(server), "{server} {way}: {told:?}");
            let local: SocketAddr = told[0]["local"].as_str().unwrap_or_default().parse()?;
            assert_eq!(
                local.ip(),
                own(&scene.client, server)?,
                "{server} {way}: {told:?}"
            );
        }
        if way != "stream" {
            assert_eq!(told[0]["from"], json!(server), "{server} {way}: {told:?}");
        }
    }
    assert_eq!(scene.count("dns_unreachable")?, 0);
    let own = SocketAddr::new(scene.client.v6(), 0).to_string();
    for more in [
        &["--way", "messages"] as &[&str],
        &["--way", "connected", "--v6-only"],
        &["--way", "connected", "--bind", &own],
    ] {
        let told = scene.ask(&[&v6], more)?;
        assert_eq!(told[0]["asked"], "ENETUNREACH", "{more:?}: {told:?}");
    }
    assert_eq!(scene.count("dns_unreachable")?, 2);
    assert_eq!(scene.servers.asked(), []);
    Ok(())
}

#[test]
fn what_stays_in_the_pod_and_what_the_pod_has_no_address_for_is_as_for_connections() -> Result<()> {
    if !requires::root("what_stays_in_the_pod_and_what_the_pod_has_no_address_for_is_as_for_connections") {
        return Ok(());
    }
    let mut scene = Scene::new(None, "true")?;
    let own = scene.client.ips().to_vec();
    let loopback: [IpAddr; 2] = ["127.0.0.1".parse()?, "::1".parse()?];
    let inside = NameServer::start(&scene.client, &[&own[..], &loopback].concat())?;
    for ip in own.iter().chain(&loopback) {
        let server = SocketAddr::new(*ip, 53).to_string();
        for way in ["connected", "messages", "stream"] {
            let told = scene.ask(&[&server], &["--way", way])?;
            assert_eq!(
                told[0]["first"],
                json!(Zone::OUTSIDE.v4),
                "{server} {way}: {told:?}"
            );
        }
    }
    assert_eq!((inside.asked().len(), scene.proxy.questions()?.len()), (12, 0));
    let spec = PodSpec::new("v4").ambient().families(Families::V4);
    let v4 = scene.node.pod_with(spec)?;
    scene.node.apply(&[&v4])?;
    scene.agent.wait_for_pod_state(v4.uid(), "enabled")?;
    let [_, server, _] = scene.addresses();
    for way in ["connected", "messages", "stream"] {
        let told = v4.load(&["dns", &server, "--way", way])?;
        assert_eq!(told[0]["asked"], "ENETUNREACH", "{way}: {told}");
    }
    Ok(())
}

#[test]
fn a_message_that_names_its_device_reaches_nobody_outside() -> Result<()> {
    if !requires::root("a_message_that_names_its_device_reaches_nobody_outside") {
        return Ok(());
    }
    let scene = Scene::new(None, "true")?;
    let [server, ..] = scene.addresses();
    let own = SocketAddr::new(scene.client.v4(), 0).to_string();
    let refused = "Invalid argument (os error 22)";
    for (more, asked) in [
        (&["--way", "messages"] as &[&str], refused),
        (&["--way", "messages", "--bind", &own], refused),
        (&["--way", "connected"], "ok"),
    ] {
        let told = scene.ask(
            &[&server],
            &[&["--interface", "eth0", "--timeout", "300"], more].concat(),
        )?;
        assert_eq!(told[0]["asked"], json!(asked), "{more:?}: {told:?}");
        assert_eq!(told[0]["first"], json!(null), "{more:?}: {told:?}");
    }
    assert_eq!(scene.servers.asked(), []);
    Ok(())
}

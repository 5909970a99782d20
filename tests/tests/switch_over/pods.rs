//! Pods that run while their node is switched over: nothing fails, nothing escapes, nothing of Istio's is left, and what
//! others have stays.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tests::iptables::{self, Family};
use tests::istio::{Backend, host_remains, remains, routes};
use tests::moments::Moments;
use tests::proxy::Direction;
use tests::ztunnel::{self, Workload, Ztunnel};
use tests::{Maps, PodSpec, requires, wait};

use crate::scene::{Load, PORT, Scene, backends};

/// The annotation of `wire` mode.
const WIRE: (&str, &str) = ("meshgate.io/client-address", "wire");

/// Sources of probes by Istio's rules.
const PROBE_SOURCES: [&str; 2] = ["169.254.7.127", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff"];

/// A connection of the node's to the server is a probe again: it passes with its true source.
fn probes_have_their_true_source<P>(scene: &Scene<P>) -> Result<()> {
    for destination in Scene::<P>::at(&scene.server) {
        let destination = SocketAddr::new(destination.ip(), 81);
        let what = format!("a probe of {destination} with the node's address");
        wait::asking(Duration::from_secs(10), &what, || {
            let seen = scene.node.load(&["connect", &destination.to_string()])?;
            let peer: SocketAddr = seen["reply"]["accept"].as_str().context("no peer")?.parse()?;
            Ok((peer.ip().to_canonical() == scene.node_ip(destination.ip())?).then_some(()))
        })?;
    }
    Ok(())
}

/// Nothing of Istio's is on the node, but for what can only stay: without effect, and said in the log.
fn host_is_clean<P>(scene: &Scene<P>) -> Result<()> {
    let stays: &[&str] = match scene.backend {
        Backend::Iptables(iptables::Backend::Nft) => &[],
        Backend::Iptables(iptables::Backend::Legacy) => &["ISTIO_POSTRT", "set istio-inpod-probes"],
        Backend::Native => &["table inet istio-ambient-nat"],
    };
    let what = "nothing of Istio's on the node";
    let clean = wait::asking(Duration::from_secs(10), what, || {
        let mut left = host_remains(scene.node.netns(), scene.backend)?;
        left.retain(|line| !stays.iter().any(|stays| line.contains(stays)));
        let is_said = scene.agent.log().contains("to remove it:");
        Ok((left.is_empty() && is_said != stays.is_empty()).then_some(()))
    });
    clean.with_context(|| {
        let left = host_remains(scene.node.netns(), scene.backend).unwrap_or_default();
        format!("{:?} {left:#?}\n{}", scene.backend, scene.agent.log())
    })
}

#[test]
fn nothing_fails_and_nothing_escapes_while_a_node_is_switched_over() -> Result<()> {
    for backend in backends("nothing_fails_and_nothing_escapes_while_a_node_is_switched_over") {
        let mut scene = Scene::new(backend)?;
        let _server = scene.server.serve(&["--listen", "[::]:81"])?;
        ensure!(remains(scene.server.netns(), backend)?.len() > 6, "{backend:?}");
        for (destination, source) in Scene::<()>::at(&scene.server).into_iter().zip(PROBE_SOURCES) {
            let destination = SocketAddr::new(destination.ip(), 81);
            let seen = scene.node.load(&["connect", &destination.to_string()])?;
            ensure!(
                seen["reply"]["accept"].to_string().contains(source),
                "{backend:?} {seen}"
            );
        }
        let load = Load::start(&scene)?;
        load.goes_on(50)?;
        scene.switch()?;
        scene.wait_until_gone()?;
        load.goes_on(50)?;
        host_is_clean(&scene)?;
        probes_have_their_true_source(&scene)?;
        let trusted = Maps::of(&scene.node).counter(&scene.server, "inbound_trusted")?;
        ensure!(trusted > 0, "probes pass by the proxy");
        scene
            .assert_flawless(load)
            .with_context(|| format!("{backend:?}"))?;
        scene.foreign_rules_are_untouched()?;
    }
    Ok(())
}

#[test]
fn a_switch_over_is_completed_by_the_next_agent_whenever_one_is_killed() -> Result<()> {
    for backend in backends("a_switch_over_is_completed_by_the_next_agent_whenever_one_is_killed") {
        let mut moments = Moments::new(6);
        let mut scene = Scene::new(backend)?;
        let load = Load::start(&scene)?;
        load.goes_on(20)?;
        scene.end_istio();
        for _ in 0..6 {
            scene.agent.kill9();
            scene.agent.spawn()?;
            moments.pass(Duration::from_millis(400));
        }
        scene.agent.restart()?;
        scene.wait_until_enabled()?;
        scene.wait_until_gone()?;
        load.goes_on(50)?;
        scene
            .assert_flawless(load)
            .with_context(|| format!("{backend:?}"))?;
        scene.foreign_rules_are_untouched()?;
    }
    Ok(())
}

#[test]
fn a_pod_in_wire_mode_keeps_what_it_needs() -> Result<()> {
    for backend in backends("a_pod_in_wire_mode_keeps_what_it_needs") {
        let server = PodSpec::new("server").annotation(WIRE.0, WIRE.1);
        let mut scene = Scene::with_server(backend, server)?;
        let load = Load::start(&scene)?;
        load.goes_on(20)?;
        scene.switch()?;
        scene.wait_until_gone_from(&scene.client)?;
        let only_routes = |scene: &Scene<_>| -> Result<bool> {
            let left = remains(scene.server.netns(), backend)?;
            Ok(left.len() == 4 && left == routes(scene.server.netns())?)
        };
        wait::asking(
            Duration::from_secs(15),
            "nothing but routes in the server",
            || Ok(only_routes(&scene)?.then_some(())),
        )?;
        load.goes_on(50)?;
        scene
            .assert_flawless(load)
            .with_context(|| format!("{backend:?}"))?;
        scene.foreign_rules_are_untouched()?;
        scene.server.set_ambient(false);
        scene.node.apply(&[&scene.server])?;
        scene.wait_until_gone_from(&scene.server)?;
    }
    Ok(())
}

#[test]
fn nothing_is_left_in_a_pod_whose_label_goes() -> Result<()> {
    for backend in backends("nothing_is_left_in_a_pod_whose_label_goes") {
        for goes_before_the_switch in [false, true] {
            let mut scene = Scene::new(backend)?;
            let _server = scene
                .server
                .serve(&["--listen", &format!("[::]:{PORT}"), "--reply", "echo"])?;
            let destination = Scene::<()>::at(&scene.server)[0].to_string();
            let mut open = scene.outside.spawn(&["hold", "2", &destination, "--check"])?;
            ensure!(open.json::<serde_json::Value>()?["alive"] == 2);
            scene.end_istio();
            if goes_before_the_switch {
                scene.server.set_ambient(false);
                scene.node.apply(&[&scene.server])?;
                scene.agent.restart()?;
            } else {
                scene.agent.restart()?;
                scene.wait_until_enabled()?;
                ensure!(
                    !remains(scene.server.netns(), backend)?.is_empty(),
                    "a connection is open"
                );
                scene.server.set_ambient(false);
                scene.node.apply(&[&scene.server])?;
            }
            scene.wait_until_gone_from(&scene.server)?;
            scene.agent.wait_for_pod_state(scene.server.uid(), "outside")?;
            let before = scene.proxy.connections()?.len();
            for destination in Scene::<()>::at(&scene.server) {
                let seen = scene
                    .outside
                    .load(&["crr", &destination.to_string(), "--count", "1"])?;
                ensure!(seen["ok"] == 1, "{seen}");
            }
            assert_eq!(scene.proxy.connections()?.len(), before, "direct");
            scene.foreign_rules_are_untouched_in(&scene.server)?;
        }
    }
    Ok(())
}

#[test]
fn ztunnel_is_handed_over_without_a_gap() -> Result<()> {
    let name = "ztunnel_is_handed_over_without_a_gap";
    let backends = backends(name);
    let Some(program) = requires::program(name, ztunnel::VARIABLE) else {
        return Ok(());
    };
    for backend in backends {
        let mut scene = Scene::with(
            backend,
            PodSpec::new("server"),
            |node, [client, server, outside]| {
                let workloads = [(client, true), (server, true), (outside, false)];
                let workloads = workloads.map(|(pod, mesh)| Workload { pod, mesh });
                Ztunnel::start(node, "ztunnel", &program, &workloads)
            },
        )?;
        let _server = scene.server.serve(&["--listen", "[::]:81"])?;
        let mut load = Load::start(&scene)?;
        load.goes_on(50)?;
        scene.switch()?;
        scene.wait_until_gone()?;
        load.goes_on(50)?;
        host_is_clean(&scene)?;
        probes_have_their_true_source(&scene)?;
        load.assert_nothing_failed()
            .with_context(|| format!("{backend:?}\n{}", scene.agent.log()))?;
        scene.foreign_rules_are_untouched()?;
    }
    Ok(())
}

#[test]
fn an_outsider_who_dials_the_proxys_port_is_refused() -> Result<()> {
    let name = "an_outsider_who_dials_the_proxys_port_is_refused";
    for backend in backends(name).into_iter().take(1) {
        let mut scene = Scene::new(backend)?;
        // With rules, with both, without rules.
        let refused = |scene: &mut Scene<tests::Proxy>| -> Result<()> {
            for ip in [scene.server.v4(), scene.server.v6()] {
                let destination = SocketAddr::new(ip, 15006);
                let seen = scene.outside.load(&["connect", &destination.to_string()])?;
                ensure!(
                    seen["read"] == "ECONNRESET" || seen["connect"] == "ECONNREFUSED",
                    "{seen}"
                );
                let told = scene.proxy.wait_for_connection(Direction::Inbound, destination)?;
                ensure!(told.result.contains("illegal call"), "{told:?}");
            }
            Ok(())
        };
        refused(&mut scene)?;
        scene.switch()?;
        scene.wait_until_gone()?;
        refused(&mut scene)?;
    }
    let Some(program) = requires::program(name, ztunnel::VARIABLE) else {
        return Ok(());
    };
    for backend in Backend::ALL.into_iter().take(usize::from(requires::root(name))) {
        let mut scene = Scene::with(
            backend,
            PodSpec::new("server"),
            |node, [client, server, outside]| {
                let workloads = [(client, true), (server, true), (outside, false)];
                let workloads = workloads.map(|(pod, mesh)| Workload { pod, mesh });
                Ztunnel::start(node, "ztunnel", &program, &workloads)
            },
        )?;
        scene.switch()?;
        scene.wait_until_gone()?;
        for ip in [scene.server.v4(), scene.server.v6()] {
            let seen = scene
                .outside
                .load(&["connect", &SocketAddr::new(ip, 15006).to_string()])?;
            ensure!(seen["read"] != "ok", "{seen} {}", scene.proxy.log());
        }
        ensure!(scene.proxy.log().contains("15006"), "{}", scene.proxy.log());
    }
    Ok(())
}

#[test]
fn the_nodes_table_of_the_nft_backend_goes_where_others_translate_too() -> Result<()> {
    let mut backends = backends("the_nodes_table_of_the_nft_backend_goes_where_others_translate_too");
    backends.retain(|backend| *backend == Backend::Native);
    for backend in backends {
        let mut scene = Scene::new(backend)?;
        for family in Family::ALL {
            let theirs = "*nat\n-A POSTROUTING -p tcp --dport 9999 -j MASQUERADE\nCOMMIT\n";
            iptables::restore(scene.node.netns(), iptables::Backend::Nft, family, theirs)?;
        }
        let load = Load::start(&scene)?;
        load.goes_on(20)?;
        scene.switch()?;
        wait::asking(Duration::from_secs(10), "nothing of Istio's on the node", || {
            let left = host_remains(scene.node.netns(), backend)?;
            Ok(left.is_empty().then_some(()))
        })?;
        load.goes_on(50)?;
        scene.assert_flawless(load)?;
        let theirs = iptables::saved(scene.node.netns(), iptables::Backend::Nft, Family::V4)?;
        ensure!(
            theirs.iter().any(|line| line.contains("MASQUERADE")),
            "{theirs:?}"
        );
    }
    Ok(())
}

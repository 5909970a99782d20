//! The way back: Istio's agent puts its rules into pods that are captured, and ours is cleaned up then.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::istio::{Backend, pod_rules, remains, routes};
use tests::proxy::Direction;
use tests::{Maps, PodSpec, Proxy, wait};

use crate::scene::{Load, Scene, backends};

/// Our agent stops, and Istio's puts its rules into the pods.
fn istio_comes_back(scene: &mut Scene<Proxy>) -> Result<()> {
    scene.agent.stop()?;
    for pod in [&scene.client, &scene.server] {
        pod_rules(pod.netns(), scene.backend)?;
    }
    Ok(())
}

/// Cleans up after ours; Istio's rules stay.
fn clean_up(scene: &Scene<Proxy>) -> Result<()> {
    let cleaned = Maps::of(&scene.node).meshgate(&["cleanup"])?;
    ensure!(cleaned["left"] == json!([]), "{cleaned}");
    for pod in [&scene.client, &scene.server] {
        ensure!(routes(pod.netns())?.len() == 4, "{}", pod.name());
        ensure!(remains(pod.netns(), scene.backend)?.len() > 4, "{}", pod.name());
    }
    Ok(())
}

/// New connections pass the proxy by Istio's rules.
fn rules_capture(scene: &mut Scene<Proxy>) -> Result<()> {
    let _servers = [&scene.outside, &scene.server]
        .map(|pod| pod.serve(&["--listen", "[::]:82"]))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let ways = [
        (&scene.client, &scene.outside, Direction::Outbound),
        (&scene.outside, &scene.server, Direction::Inbound),
    ];
    for (from, to, direction) in ways {
        for ip in [to.v4(), to.v6()] {
            let destination = std::net::SocketAddr::new(ip, 82);
            let seen = from.load(&["connect", &destination.to_string()])?;
            ensure!(seen["read"] == "ok", "{seen}");
            scene.proxy.wait_for_connection(direction, destination)?;
        }
    }
    Ok(())
}

#[test]
fn a_node_goes_back_to_istios_agent_without_a_gap() -> Result<()> {
    for backend in backends("a_node_goes_back_to_istios_agent_without_a_gap") {
        let mut scene = Scene::new(backend)?;
        scene.switch()?;
        scene.wait_until_gone()?;
        let load = Load::start(&scene)?;
        load.goes_on(20)?;
        istio_comes_back(&mut scene)?;
        load.goes_on(20)?;
        clean_up(&scene)?;
        load.goes_on(50)?;
        rules_capture(&mut scene)?;
        scene
            .assert_flawless(load)
            .with_context(|| format!("{backend:?}"))?;
    }
    Ok(())
}

#[test]
fn a_pod_in_wire_mode_keeps_the_routes_that_istios_rules_need() -> Result<()> {
    let backends = backends("a_pod_in_wire_mode_keeps_the_routes_that_istios_rules_need");
    for backend in backends.into_iter().filter(|backend| *backend != Backend::Native) {
        let server = PodSpec::new("server").annotation("meshgate.io/client-address", "wire");
        let mut scene = Scene::with_server(backend, server)?;
        scene.switch()?;
        scene.wait_until_gone_from(&scene.client)?;
        wait::asking(Duration::from_secs(15), "wire mode in the server", || {
            let left = remains(scene.server.netns(), backend)?;
            Ok((left.len() == 4).then_some(()))
        })?;
        istio_comes_back(&mut scene)?;
        clean_up(&scene)?;
        rules_capture(&mut scene)?;
    }
    Ok(())
}

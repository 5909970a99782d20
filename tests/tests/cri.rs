//! Pods of a real container runtime, with our plugin behind the reference CNI plugins: captured before their first
//! process runs, and forgotten with their sandbox.

mod cri {
    pub(crate) mod scene;
}

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use cri::scene::{PORT, Scene, client_of, pairs};
use tests::containerd::RuntimePod;
use tests::containerd::network::{self, Main, Network};
use tests::proxy::{Direction, Event};
use tests::spec::Families;
use tests::{Pins, PodSpec, requires};

const LISTEN: [&str; 2] = ["--listen", "[::]:80"];

#[test]
fn pods_on_a_bridge_are_captured_before_their_first_process_runs() -> Result<()> {
    if !requires::container_runtime("pods_on_a_bridge_are_captured_before_their_first_process_runs") {
        return Ok(());
    }
    pods_are_captured(Main::Bridge)
}

#[test]
fn pods_on_routed_links_are_captured_before_their_first_process_runs() -> Result<()> {
    if !requires::container_runtime("pods_on_routed_links_are_captured_before_their_first_process_runs") {
        return Ok(());
    }
    pods_are_captured(Main::Ptp)
}

#[test]
fn pods_on_macvlan_are_captured_before_their_first_process_runs() -> Result<()> {
    if !requires::container_runtime("pods_on_macvlan_are_captured_before_their_first_process_runs") {
        return Ok(());
    }
    pods_are_captured(Main::Macvlan)
}

/// In each family: a pod of the mesh all of whose connections are captured but those of the node, and one outside which
/// is left alone.
fn pods_are_captured(main: Main) -> Result<()> {
    let mut scene = Scene::new(|node| {
        if main == Main::Macvlan {
            network::uplink(node)?;
        }
        Ok(Network::new(node, main))
    })?;
    let mut in_mesh = Vec::new();
    for (families, count) in [(Families::Dual, 2), (Families::V4, 1), (Families::V6, 1)] {
        let network = Network::new(&scene.node, main).families(families);
        scene
            .containerd
            .set_network(&network.with_meshgate(&scene.node))?;
        let outside = scene.pod(PodSpec::new(&format!("outside-{}", in_mesh.len())))?;
        let web = scene.pod(PodSpec::new(&format!("web-{}", in_mesh.len())).ambient())?;
        assert_eq!(
            (web.ips().len(), outside.ips().len()),
            (count, count),
            "{families:?}"
        );
        in_mesh.push(web.uid().to_owned());
        capture_both_ways(&mut scene, &web, &outside)?;
        // The node cannot reach pods on macvlan.
        if main != Main::Macvlan {
            probe_past_the_proxy(&scene, &web)?;
        }
        scene.agent.wait_for_pod_state(outside.uid(), "outside")?;
    }
    assert_eq!(scene.maps().dump("PODS")?.len(), in_mesh.len());
    let connections = scene.proxy.as_ref().context("a proxy runs")?.connections()?;
    let stranger = connections
        .iter()
        .find(|connection| !in_mesh.contains(&connection.pod));
    assert!(stranger.is_none(), "{stranger:?}");
    Ok(())
}

/// What the pod of the mesh dials, and who dials it, passes the proxy.
fn capture_both_ways(scene: &mut Scene, web: &RuntimePod, outside: &RuntimePod) -> Result<()> {
    outside.serve("server", &LISTEN)?;
    scene.assert_first_process_captured(web, outside.ips())?;
    web.apply(&scene.node)?;
    outside.apply(&scene.node)?;
    web.serve("server", &LISTEN)?;
    for (number, (own, ip)) in pairs(outside.ips(), web.ips()).enumerate() {
        let (name, destination) = (format!("client-{number}"), SocketAddr::new(ip, PORT));
        let seen = outside.load(&name, &["connect", &destination.to_string()])?;
        assert_eq!(client_of(&seen)?, own, "{seen}");
        scene.assert_proxied(Direction::Inbound, web, &seen, destination)?;
    }
    Ok(())
}

/// The node reaches the pod as kubelet's probes would: by TCP, and by a request.
fn probe_past_the_proxy(scene: &Scene, web: &RuntimePod) -> Result<()> {
    for ip in web.ips() {
        let destination = SocketAddr::new(*ip, PORT).to_string();
        for more in [&["--no-read"][..], &["--send", "GET /healthz HTTP/1.1"]] {
            let seen = scene.node.load(&[&["connect", &destination], more].concat())?;
            assert_eq!(seen["read"], "ok", "{seen}");
            let own: SocketAddr = seen["local"].as_str().context("local")?.parse()?;
            scene.assert_not_proxied(own.ip())?;
        }
    }
    Ok(())
}

#[test]
fn a_port_of_the_node_leads_to_a_captured_pod() -> Result<()> {
    if !requires::container_runtime("a_port_of_the_node_leads_to_a_captured_pod") {
        return Ok(());
    }
    let mut scene = Scene::new(|node| Ok(Network::new(node, Main::Bridge)))?;
    let mut web = scene
        .scheduled(PodSpec::new("web").ambient())?
        .host_port(8080, PORT);
    web.run()?;
    web.serve("server", &LISTEN)?;
    let client = scene.node.pod("client")?;
    let x = scene.node.subnet();
    let node = [format!("10.{x}.0.1").parse()?, format!("fd00:{x}::1").parse()?];
    for ((own, node), ip) in pairs(client.ips(), &node).zip(web.ips().to_vec()) {
        let destination = SocketAddr::new(node, 8080).to_string();
        let seen = client.load(&["connect", &destination])?;
        assert_eq!(client_of(&seen)?, own, "{seen}");
        assert_eq!(seen["reply"]["netns"], web.cookie()?, "{seen}");
        scene.assert_proxied(Direction::Inbound, &web, &seen, SocketAddr::new(ip, PORT))?;
    }
    Ok(())
}

#[test]
fn without_a_proxy_or_an_agent_the_sandbox_fails_with_one_clear_line_and_can_be_made_later() -> Result<()> {
    if !requires::container_runtime(
        "without_a_proxy_or_an_agent_the_sandbox_fails_with_one_clear_line_and_can_be_made_later",
    ) {
        return Ok(());
    }
    let mut scene = Scene::without_proxy(|node| Ok(Network::new(node, Main::Bridge)))?;
    let server = scene.node.pod("server")?;
    let _server = server.serve(&LISTEN)?;
    let mut web = scene.scheduled(PodSpec::new("web").ambient())?;
    let refused = |web: &mut RuntimePod, why: &str| {
        let error = web.run().expect_err("the pod is not to start");
        let text = error.message();
        assert!(
            text.contains("pod default/web cannot join the mesh now"),
            "{text}"
        );
        assert!(text.contains(why), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    };
    refused(&mut web, "no proxy is connected");
    assert_eq!(names_of_netns(&scene)?, [""; 0]);
    scene.start_proxy()?;
    scene.agent.kill9();
    let mut hasty = network::meshgate(&scene.node);
    hasty["agent_timeout_seconds"] = 1.into();
    let network = Network::new(&scene.node, Main::Bridge);
    scene.containerd.set_network(&network.clone().then(hasty))?;
    refused(&mut web, "is its pod running on this node?");
    assert_eq!(names_of_netns(&scene)?, [""; 0]);
    scene.agent.restart()?;
    scene
        .containerd
        .set_network(&network.with_meshgate(&scene.node))?;
    web.run()?;
    scene.assert_first_process_captured(&web, server.ips())
}

#[test]
fn a_pod_that_ends_leaves_nothing() -> Result<()> {
    if !requires::container_runtime("a_pod_that_ends_leaves_nothing") {
        return Ok(());
    }
    let mut scene = Scene::new(|node| Ok(Network::new(node, Main::Bridge)))?;
    let rows = |scene: &Scene| {
        let count = |map| Ok(scene.maps().dump(map)?.len());
        ["PODS", "NAMES", "ADDRESSES", "COUNTERS", "LISTENERS"]
            .map(count)
            .into_iter()
            .collect::<Result<Vec<_>>>()
    };
    let (before, links) = (rows(&scene)?, Pins::of(&scene.node).link_names("pod"));
    let mut web = scene.pod(PodSpec::new("web").ambient())?;
    web.serve("server", &LISTEN)?;
    web.apply(&scene.node)?;
    assert_ne!(rows(&scene)?, before);
    assert_eq!(names_of_netns(&scene)?.len(), 1);
    web.stop()?;
    web.remove()?;
    web.delete(&scene.node)?;
    let uid = web.uid().to_owned();
    scene.agent.wait_for("the pod to be forgotten", |status| {
        status.pods.iter().all(|pod| pod.uid != uid).then_some(())
    })?;
    let proxy = scene.proxy.as_mut().context("a proxy runs")?;
    proxy.wait_for("the end", |event| {
        matches!(event, Event::Del { uid: gone } if *gone == uid).then_some(())
    })?;
    tests::wait::asking(tests::wait::LIMIT, "the maps to be as before", || {
        Ok((rows(&scene)? == before).then_some(()))
    })?;
    assert_eq!(Pins::of(&scene.node).link_names("pod"), links);
    assert_eq!(names_of_netns(&scene)?, [""; 0]);
    Ok(())
}

/// Names of the network namespaces that the runtime has made.
fn names_of_netns(scene: &Scene) -> Result<Vec<String>> {
    let folder = scene.containerd.mounts().root().join("run/netns");
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(Vec::new());
    };
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

#[test]
fn the_next_sandbox_of_a_pod_is_captured_anew() -> Result<()> {
    if !requires::container_runtime("the_next_sandbox_of_a_pod_is_captured_anew") {
        return Ok(());
    }
    // With another address, and with the same.
    for addresses in [3, 1] {
        let mut scene = Scene::new(|node| Ok(Network::new(node, Main::Bridge).addresses(addresses)))?;
        let server = scene.node.pod("server")?;
        let _server = server.serve(&LISTEN)?;
        let mut web = scene.pod(PodSpec::new("web").ambient())?;
        web.apply(&scene.node)?;
        scene.agent.wait_for_pod_state(web.uid(), "enabled")?;
        let (cookie, ips) = (web.cookie()?, web.ips().to_vec());
        scene.assert_first_process_captured(&web, server.ips())?;
        web.stop()?;
        // Kubernetes still says what was.
        web.run()?;
        assert_ne!(web.cookie()?, cookie);
        assert_eq!(web.ips() == ips, addresses == 1, "{ips:?}, then {:?}", web.ips());
        scene.assert_first_process_captured(&web, server.ips())?;
        web.apply(&scene.node)?;
        scene.maps().wait_for_count("PODS", 1)?;
        web.remove()?;
    }
    Ok(())
}

#[test]
fn the_address_of_a_pod_that_has_ended_is_the_next_pods_at_once() -> Result<()> {
    if !requires::container_runtime("the_address_of_a_pod_that_has_ended_is_the_next_pods_at_once") {
        return Ok(());
    }
    let mut scene = Scene::new(|node| Ok(Network::new(node, Main::Bridge).addresses(1)))?;
    let server = scene.node.pod("server")?;
    let _server = server.serve(&LISTEN)?;
    let mut ended: Vec<RuntimePod> = Vec::new();
    // What Kubernetes says of each when the next comes: that it has succeeded, or still that it runs.
    for (number, (is_ambient, is_told)) in [
        (true, true),
        (false, true),
        (true, false),
        (false, false),
        (true, true),
    ]
    .into_iter()
    .enumerate()
    {
        let spec = PodSpec::new(&format!("job-{number}"));
        let mut job = scene.pod(if is_ambient { spec.ambient() } else { spec })?;
        assert!(ended.iter().all(|last| last.ips() == job.ips()));
        job.apply(&scene.node)?;
        if is_ambient {
            scene.assert_first_process_captured(&job, server.ips())?;
        } else {
            scene.assert_left_alone(&job, server.ips())?;
        }
        if is_told {
            job.apply_succeeded(&scene.node)?;
        }
        job.stop()?;
        ended.push(job);
    }
    // The others are deleted while the last one uses their address.
    let web = scene.pod(PodSpec::new("web").ambient())?;
    web.apply(&scene.node)?;
    for job in &mut ended {
        job.remove()?;
        job.delete(&scene.node)?;
    }
    scene.agent.wait_for("the others to be forgotten", |status| {
        (status
            .pods
            .iter()
            .filter(|pod| pod.namespace == "default")
            .count()
            == 1)
            .then_some(())
    })?;
    scene.assert_first_process_captured(&web, server.ips())
}

#[test]
fn a_pod_that_runs_already_is_found_by_its_cgroup() -> Result<()> {
    if !requires::container_runtime("a_pod_that_runs_already_is_found_by_its_cgroup") {
        return Ok(());
    }
    let mut scene = Scene::new(|node| Ok(Network::new(node, Main::Bridge)))?;
    let server = scene.node.pod("server")?;
    let _server = server.serve(&LISTEN)?;
    let network = Network::new(&scene.node, Main::Bridge);
    scene.containerd.set_network(&network)?;
    let web = scene.pod(PodSpec::new("web").ambient())?;
    web.apply(&scene.node)?;
    scene.agent.wait_for_pod_state(web.uid(), "enabled")?;
    scene.assert_first_process_captured(&web, server.ips())?;
    let (links, rows) = (
        Pins::of(&scene.node).link_names("pod"),
        scene.maps().dump("PODS")?,
    );
    scene.agent.restart()?;
    scene.agent.wait_for_pod_state(web.uid(), "enabled")?;
    assert_eq!(Pins::of(&scene.node).link_names("pod"), links);
    assert_eq!(scene.maps().dump("PODS")?, rows);
    Ok(())
}

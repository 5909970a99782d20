//! What belongs to the proxy and to the agent, and what an application may try: the proxy's ports, a device, a second agent
//! on the same pins, a proxy that shares its cgroup with pods.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use tests::proxy::Direction;
use tests::{Agent, Mesh, Pod, Proxy, requires};

fn at(ip: IpAddr, port: u16) -> String {
    SocketAddr::new(ip, port).to_string()
}

#[test]
fn an_application_cannot_take_the_proxys_ports() -> Result<()> {
    if !requires::root("an_application_cannot_take_the_proxys_ports") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    for port in [15001, 15006, 15008, 15053] {
        for ip in ["0.0.0.0", "[::]", "127.15.0.1", "[::1]"] {
            let destination = if ip.starts_with('[') {
                mesh.outside.v6()
            } else {
                mesh.outside.v4()
            };
            let arguments = ["connect", &at(destination, 80), "--bind", &format!("{ip}:{port}")];
            let mut tool = mesh.client.command(&tests::programs::find("meshgate-load")?)?;
            let output = tool.args(arguments).output()?;
            let told = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(
                told.contains("EADDRINUSE") || told.contains("os error 98"),
                "{ip}:{port}: {told}"
            );
        }
    }
    // The proxy's DNS server is asked by UDP too.
    let asking = |pod: &Pod, port: u16| {
        let (server, own) = (at(mesh.outside.v4(), 53), format!("0.0.0.0:{port}"));
        let asked = pod.load(&[
            "dns",
            &server,
            "--way",
            "messages",
            "--bind",
            &own,
            "--timeout",
            "50",
        ]);
        asked.map_or_else(|error| format!("{error:#}"), |told| told.to_string())
    };
    assert!(
        asking(&mesh.client, 15053).contains("os error 98"),
        "{}",
        asking(&mesh.client, 15053)
    );
    // Other ports, and these outside the mesh, are ports like others.
    for (pod, port) in [(&mesh.client, 15001), (&mesh.outside, 15053)] {
        let told = asking(pod, port);
        assert!(!told.contains("os error 98") && told.contains("asked"), "{told}");
    }
    let _server = mesh.outside.serve(&["--listen", "[::]:15006"])?;
    Ok(())
}

#[test]
fn who_holds_the_proxys_ports_before_the_enrolment_is_named_and_the_pod_is_closed_meanwhile() -> Result<()> {
    const NAME: &str =
        "who_holds_the_proxys_ports_before_the_enrolment_is_named_and_the_pod_is_closed_meanwhile";
    if !requires::root(NAME) {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let mut pod = mesh.node.pod("holding")?;
    let holder = pod.serve(&["--listen", "[::]:15001"])?;
    pod.set_ambient(true);
    mesh.node.apply(&[&pod])?;
    let named = format!(
        "port 15001, which is the proxy's, is held by process {} (",
        holder.id()
    );
    let uid = pod.uid().to_owned();
    mesh.agent.wait_for("the holder to be named", |status| {
        let told = status.pods.iter().find(|told| told.uid == uid)?;
        told.reason.to_string().contains(&named).then_some(())
    })?;
    assert_eq!(mesh.agent.wait_for_pod_state(&uid, "pending")?.state, "pending");
    drop(holder);
    mesh.agent.wait_for_pod_state(&uid, "enabled")?;
    Ok(())
}

#[test]
fn a_proxy_that_comes_back_gets_its_ports_in_captured_pods() -> Result<()> {
    if !requires::root("a_proxy_that_comes_back_gets_its_ports_in_captured_pods") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _server = mesh.server.serve(&["--listen", "[::]:80"])?;
    mesh.proxy.process().kill();
    let mut back = Proxy::start(&mesh.node, "back", &[])?;
    back.wait_for_pod(&mesh.server)?;
    for destination in [
        SocketAddr::new(mesh.server.v4(), 80),
        SocketAddr::new(mesh.server.v6(), 80),
    ] {
        let seen = mesh.outside.load(&["connect", &destination.to_string()])?;
        assert_eq!(seen["read"], "ok", "{seen}");
        back.wait_for_connection(Direction::Inbound, destination)?;
    }
    Ok(())
}

#[test]
fn a_socket_that_is_bound_to_a_device_is_captured_like_others() -> Result<()> {
    if !requires::root("a_socket_that_is_bound_to_a_device_is_captured_like_others") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _server = mesh.outside.serve(&["--listen", "[::]:80"])?;
    for destination in [
        SocketAddr::new(mesh.outside.v4(), 80),
        SocketAddr::new(mesh.outside.v6(), 80),
    ] {
        let seen = mesh
            .client
            .load(&["connect", &destination.to_string(), "--device", "eth0"])?;
        assert_eq!(seen["read"], "ok", "{seen}");
        mesh.proxy.wait_for_connection(Direction::Outbound, destination)?;
    }
    Ok(())
}

#[test]
fn a_second_agent_on_the_same_pins_is_refused_whatever_its_run_dir() -> Result<()> {
    if !requires::root("a_second_agent_on_the_same_pins_is_refused_whatever_its_run_dir") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let other = mesh.node.run_dir().join("other");
    let other = other.to_string_lossy().into_owned();
    let source = format!("file:{}", mesh.node.manifests().display());
    // The usual ports belong to the first.
    let more = [
        "--run-dir",
        &other,
        "--health-port",
        "18000",
        "--monitoring-port",
        "0",
    ];
    let second = Agent::stopped(&mesh.node, &source, &more)?;
    let mut run = second.command()?;
    run.arg("run").args(second.run_flags());
    run.arg("--bpffs").arg(mesh.node.bpffs());
    run.arg("--cgroup-root").arg(mesh.node.cgroup());
    run.arg("--host-netns").arg(mesh.node.netns().path());
    let output = run.output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("another agent is running"), "{told}");
    Ok(())
}

#[test]
fn a_proxy_whose_cgroup_holds_pods_is_turned_away() -> Result<()> {
    if !requires::root("a_proxy_whose_cgroup_holds_pods_is_turned_away") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let shared = mesh.node.cgroup().join("kubepods");
    let _proxy = Proxy::start_in(&mesh.node, "shared", Some(&shared), &[])?;
    mesh.agent.wait_for("the proxy to be turned away", |status| {
        let is_told = |problem: &serde_json::Value| problem["problem"].to_string().contains("pods are below");
        status.problems.iter().any(is_told).then_some(())
    })
}

//! Bad manifests: one clear error with the object's name in the status, and no other pod suffers.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};
use tests::proxy::Direction;
use tests::{Mesh, Pins, Pod, PodSpec, requires};

#[test]
fn manifests_that_cannot_be_used_are_named_and_change_nothing_else() -> Result<()> {
    if !requires::root("manifests_that_cannot_be_used_are_named_and_change_nothing_else") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let good = PodSpec::new("bad").ambient();
    let pod = mesh.node.pod_with(good)?;
    let with = |path: &str, value: Value| {
        let mut manifest = pod.manifest();
        *manifest.pointer_mut(path).expect("a field") = value;
        manifest.to_string()
    };
    let (long_name, long_uid) = ("n".repeat(254), "u".repeat(64));
    let cases = [
        ("{ not yaml".to_owned(), "bad.yaml", "line"),
        (
            with("/status/podIPs", json!([{ "ip": "10.0.0.999" }])),
            "Pod default/bad",
            "10.0.0.999",
        ),
        (
            with("/metadata/name", json!(long_name)),
            "Pod default/nnn",
            "name",
        ),
        (with("/metadata/uid", json!(long_uid)), "Pod default/bad", "uid"),
        (
            with("/metadata/name", json!("bad\u{1b}[2J\nfake")),
            "Pod default/bad\\u{1b}[2J\\nfake",
            "control characters",
        ),
        (
            with("/metadata/labels", json!({ "a": 1 })),
            "Pod default/bad",
            "labels",
        ),
    ];
    for (text, object, told) in cases {
        mesh.node.write_text("bad.yaml", &text)?;
        let found = mesh.agent.wait_for_problem(object)?;
        assert!(found["problem"].to_string().contains(told), "{told}: {found}");
        mesh.agent.says_in_status(object)?;
        mesh.check()?;
        fs::remove_file(mesh.node.manifests().join("bad.yaml"))?;
        mesh.agent.wait_for_no_problem()?;
    }
    mesh.node.write_text("bad.yaml", &pod.manifest().to_string())?;
    mesh.agent.wait_for_pod_state(pod.uid(), "enabled").map(drop)
}

#[test]
fn a_pod_without_an_address_is_captured_when_it_has_one() -> Result<()> {
    if !requires::root("a_pod_without_an_address_is_captured_when_it_has_one") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let pod = mesh.node.pod_with(PodSpec::new("early").ambient())?;
    let mut manifest = pod.manifest();
    manifest["status"] = json!({ "phase": "Pending" });
    mesh.node.write(&pod.file_name(), &manifest)?;
    let told = mesh.agent.wait_for_pod_state(pod.uid(), "outside")?;
    assert!(told.reason.to_string().contains("address"), "{told:?}");
    mesh.agent.wait_for_no_problem()?;
    mesh.check()?;
    mesh.node.apply(&[&pod])?;
    mesh.agent.wait_for_pod_state(pod.uid(), "enabled").map(drop)
}

#[test]
fn a_pod_of_another_node_is_nothing_to_this_one() -> Result<()> {
    if !requires::root("a_pod_of_another_node_is_nothing_to_this_one") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let (elsewhere, later) = (
        mesh.node.pod_with(PodSpec::new("elsewhere").ambient())?,
        mesh.node.pod_with(PodSpec::new("later").ambient())?,
    );
    let mut manifest = elsewhere.manifest();
    manifest["spec"]["nodeName"] = json!("another-node");
    mesh.node.write(&elsewhere.file_name(), &manifest)?;
    mesh.node.apply(&[&later])?;
    mesh.agent.wait_for_pod_state(later.uid(), "enabled")?;
    let status = mesh.agent.status()?;
    assert!(
        status.pods.iter().all(|pod| pod.uid != elsewhere.uid()),
        "{status:?}"
    );
    assert!(status.problems.is_empty(), "{status:?}");
    let cookie = elsewhere.netns().cookie()?.to_ne_bytes();
    assert!(Pins::of(&mesh.node).map("PODS")?.get(&cookie).is_err());
    Ok(())
}

#[test]
fn of_two_pods_with_one_address_the_newer_has_it() -> Result<()> {
    if !requires::root("of_two_pods_with_one_address_the_newer_has_it") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let (older, newer) = (
        mesh.node.pod_with(PodSpec::new("older").ambient())?,
        mesh.node.pod_with(PodSpec::new("newer").ambient())?,
    );
    let mut manifest = older.manifest();
    manifest["status"]["podIPs"] = newer.manifest()["status"]["podIPs"].clone();
    mesh.node.write(&older.file_name(), &manifest)?;
    mesh.node.apply(&[&newer])?;
    mesh.agent.wait_for_pod_state(newer.uid(), "enabled")?;
    let told = mesh.agent.wait_for_pod_state(older.uid(), "waiting")?;
    assert!(told.reason.to_string().contains("it owns"), "{told:?}");
    let found = mesh.agent.wait_for("both addresses as problems", |status| {
        let about = |problem: &&Value| problem["problem"].to_string().contains("default/newer");
        let found: Vec<_> = status.problems.iter().filter(about).cloned().collect();
        (found.len() == 2).then_some(found)
    })?;
    for (problem, ip) in found.iter().zip(newer.ips()) {
        assert!(
            problem["object"].to_string().contains("default/older"),
            "{problem}"
        );
        let text = problem["problem"].to_string();
        assert!(
            text.contains("default/newer") && text.contains(&ip.to_string()),
            "{text}"
        );
    }
    mesh.agent.says_in_status("default/older")?;
    // The loser's namespace is not the winner's: nothing of it is captured.
    let cookie = older.netns().cookie()?.to_ne_bytes();
    assert!(Pins::of(&mesh.node).map("PODS")?.get(&cookie).is_err());
    let address = newer.v4().to_string();
    let entry = mesh.agent.cli_json(&["maps", "get", "--ip", &address])?;
    assert_eq!(entry["pod"]["name"], "newer");
    mesh.check()?;
    // The winner goes: the address is the other's, but its namespace does not own it.
    mesh.node.delete(&newer)?;
    mesh.agent
        .wait_for("the loser's namespace to be told as another's", |status| {
            let [only] = status.problems.as_slice() else {
                return None;
            };
            let is_of_older = only["object"].to_string().contains("default/older");
            (is_of_older && only["problem"].to_string().contains("owns one of")).then_some(())
        })?;
    mesh.check()
}

/// Gives a pod one more address, by which its manifest shows it, in a network.
fn in_network(pod: &Pod, ip: &str, network: &str) -> Result<Value> {
    pod.netns().ip(&format!("addr add {ip}/32 dev eth0"))?;
    let mut manifest = pod.manifest();
    manifest["metadata"]["labels"]["topology.istio.io/network"] = json!(network);
    manifest["status"]["podIP"] = json!(ip);
    manifest["status"]["podIPs"] = json!([{ "ip": ip }]);
    Ok(manifest)
}

#[test]
fn one_address_in_two_networks_is_two_pods() -> Result<()> {
    if !requires::root("one_address_in_two_networks_is_two_pods") {
        return Ok(());
    }
    const IP: &str = "10.200.0.5";
    let mut mesh = Mesh::new()?;
    let _outside = mesh.outside.serve(&["--listen", "[::]:80"])?;
    let mut pods = Vec::new();
    for network in ["red", "blue"] {
        let pod = mesh.node.pod_with(PodSpec::new(network).ambient())?;
        mesh.node
            .write(&pod.file_name(), &in_network(&pod, IP, network)?)?;
        mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
        let _server = pod.serve(&["--listen", "0.0.0.0:80", "--banner", network])?;
        let seen = pod.load(&["connect", &format!("{}:80", mesh.outside.v4())])?;
        assert_eq!(seen["read"], "ok", "{seen}");
        // The one who calls decides by his route which of the two he means.
        mesh.outside
            .netns()
            .ip(&format!("route replace {IP}/32 via {}", pod.v4()))?;
        let seen = mesh.outside.load(&["connect", &format!("{IP}:80")])?;
        assert_eq!(seen["reply"]["banner"], network, "{seen}");
        let connections = mesh.proxy.connections()?;
        let of_pod: Vec<_> = connections.iter().filter(|c| c.pod == pod.uid()).collect();
        assert_eq!(of_pod.len(), 2, "{connections:?}");
        assert_eq!(
            (of_pod[0].direction, of_pod[0].peer.ip().to_string()),
            (Direction::Outbound, IP.into())
        );
        assert_eq!(
            (of_pod[1].direction, of_pod[1].peer.ip()),
            (Direction::Inbound, mesh.outside.v4())
        );
        let entry = mesh
            .agent
            .cli_json(&["maps", "get", "--network", network, "--ip", IP])?;
        assert_eq!(entry["pod"]["uid"], pod.uid());
        pods.push(pod);
    }
    assert_eq!(Pins::of(&mesh.node).count("ADDRESSES")?, 6);
    mesh.agent.wait_for_no_problem()
}

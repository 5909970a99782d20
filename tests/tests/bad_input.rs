//! Bad input: one clear error with the object's name in the status, and nobody else suffers.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::{Value, json};
use tests::moments::Moments;
use tests::proxy::Direction;
use tests::{Agent, Mesh, Pins, Pod, PodSpec, programs, requires, zds};

/// Waits for a problem with this object, and returns it.
fn problem(agent: &mut Agent, object: &str) -> Result<Value> {
    let found = agent.wait_for(&format!("a problem of {object}"), |status| {
        let about = |problem: &&Value| {
            problem["object"]
                .as_str()
                .is_some_and(|told| told.contains(object))
        };
        let mut found = status.problems.iter().filter(about);
        let first = found.next().cloned()?;
        Some((first, found.count()))
    })?;
    assert_eq!(found.1, 0, "one error for {object}");
    assert!(
        !found.0["fix"].as_str().unwrap_or_default().is_empty(),
        "{}",
        found.0
    );
    Ok(found.0)
}

fn no_problem(agent: &mut Agent) -> Result<()> {
    agent.wait_for("no problem", |status| status.problems.is_empty().then_some(()))
}

/// The status as people ask for it: degraded, exit code 3, and the same problem.
fn is_told_by_status(agent: &Agent, object: &str) -> Result<()> {
    let output = agent.cli(&["status"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains(object), "{object} is not in:\n{text}");
    Ok(())
}

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
            with("/metadata/labels", json!({ "a": 1 })),
            "Pod default/bad",
            "labels",
        ),
    ];
    for (text, object, told) in cases {
        mesh.node.write_text("bad.yaml", &text)?;
        let found = problem(&mut mesh.agent, object)?;
        assert!(found["problem"].to_string().contains(told), "{told}: {found}");
        is_told_by_status(&mesh.agent, object)?;
        mesh.check()?;
        fs::remove_file(mesh.node.manifests().join("bad.yaml"))?;
        no_problem(&mut mesh.agent)?;
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
    no_problem(&mut mesh.agent)?;
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
    assert!(told.reason.to_string().contains("default/newer"), "{told:?}");
    let found = mesh.agent.wait_for("both addresses as problems", |status| {
        (status.problems.len() == 2).then(|| status.problems.clone())
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
    is_told_by_status(&mesh.agent, "default/older")?;
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
    no_problem(&mut mesh.agent)
}

#[test]
fn a_thousand_packets_of_garbage_disturb_no_proxy() -> Result<()> {
    if !requires::root("a_thousand_packets_of_garbage_disturb_no_proxy") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let mut moments = Moments::new(1000);
    let mut sent = 0;
    // More connections than are accepted without a pause: the last ones come while the next pod joins.
    while sent < 1000 {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        connect(&socket, &SocketAddrUnix::new(mesh.node.zds_socket())?)?;
        for _ in 0..100 {
            let length = 1 + moments.below(1500) as usize;
            let packet: Vec<u8> = (0..length).map(|_| 0x80 | moments.below(128) as u8).collect();
            sent += 1;
            // The agent closes at the first one.
            let _ = zds::send(&socket, &packet, None);
        }
    }
    let joining = mesh.node.pod_with(PodSpec::new("joining").ambient())?;
    mesh.node.apply(&[&joining])?;
    mesh.agent.wait_for_pod_state(joining.uid(), "enabled")?;
    mesh.check()?;
    let report = fs::read_to_string(mesh.agent.run_dir().join("status.json"))?;
    let report: Value = serde_json::from_str(&report)?;
    assert_eq!(report["proxies"].as_array().map(Vec::len), Some(1), "{report}");
    assert!(report["zds_errors"]["protocol"].as_u64() >= Some(8), "{report}");
    Ok(())
}

#[test]
fn a_missing_kubeconfig_is_told_and_captured_pods_stay_captured() -> Result<()> {
    if !requires::root("a_missing_kubeconfig_is_told_and_captured_pods_stay_captured") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    mesh.agent.kill9();
    let mut agent = Agent::stopped(&mesh.node, "kube", &["--kubeconfig", "/nonexistent/kubeconfig"])?;
    agent.spawn()?;
    let found = problem(&mut agent, "source of pods")?;
    assert!(
        found["problem"].to_string().contains("/nonexistent/kubeconfig"),
        "{found}"
    );
    is_told_by_status(&agent, "/nonexistent/kubeconfig")?;
    mesh.check()?;
    assert!(agent.stop()?.success());
    mesh.check()
}

/// Fills a map from outside with entries that mean nothing; returns their keys.
fn fill(map: &tests::sys::bpf::Map) -> Result<Vec<Vec<u8>>> {
    let key = map.keys()?.pop().context("an entry")?;
    let value = map.get(&key)?;
    let mut filled = Vec::new();
    for number in 1_u64.. {
        let mut fill = vec![0xee; key.len()];
        fill[..8].copy_from_slice(&(number << 40).to_ne_bytes());
        match map.put(&fill, &value) {
            Ok(()) => filled.push(fill),
            Err(error) if error.raw_os_error() == Some(libc::E2BIG) => return Ok(filled),
            Err(error) => return Err(error.into()),
        }
    }
    unreachable!("every map is full at some time")
}

#[test]
fn a_pod_that_finds_no_room_in_a_map_is_told_and_captured_when_there_is_room() -> Result<()> {
    if !requires::root("a_pod_that_finds_no_room_in_a_map_is_told_and_captured_when_there_is_room") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    for name in ["PODS", "ADDRESSES", "NAMES"] {
        let map = Pins::of(&mesh.node).map(name)?;
        let filled = fill(&map)?;
        let pod = mesh
            .node
            .pod_with(PodSpec::new(&format!("late-{}", name.to_lowercase())).ambient())?;
        mesh.node.apply(&[&pod])?;
        let found = problem(&mut mesh.agent, pod.name())?;
        let text = found["problem"].to_string();
        assert!(text.contains("full") && text.contains(name), "{text}");
        assert!(
            mesh.agent
                .wait_for_pod_state(pod.uid(), "waiting")?
                .reason
                .to_string()
                .contains("full")
        );
        is_told_by_status(&mesh.agent, pod.name())?;
        mesh.check()?;
        for key in filled {
            map.remove(&key)?;
        }
        mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
        no_problem(&mut mesh.agent)?;
    }
    Ok(())
}

#[test]
fn a_run_dir_that_cannot_be_written_is_told_and_stops_no_capture() -> Result<()> {
    if !requires::root("a_run_dir_that_cannot_be_written_is_told_and_stops_no_capture") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    // While it runs: no status can be put in the place of a folder.
    let status = mesh.agent.run_dir().join("status.json");
    fs::remove_file(&status)?;
    fs::create_dir(&status)?;
    let joining = mesh.node.pod_with(PodSpec::new("joining").ambient())?;
    mesh.node.apply(&[&joining])?;
    mesh.proxy.wait_for_pod(&joining)?;
    mesh.check()?;
    fs::remove_dir(&status)?;
    assert!(mesh.agent.log().contains("status.json"), "{}", mesh.agent.log());
    // At its start.
    mesh.agent.kill9();
    let mut command = mesh.node.command("read-only", Path::new("unshare"))?;
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && shift && exec \"$@\"";
    let run = command
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(mesh.agent.run_dir())
        .arg(programs::find("meshgate")?)
        .args(mesh.agent.arguments(&["run"]))
        .args(mesh.agent.run_flags());
    let (code, error) = ended(run)?;
    assert_eq!(code, Some(1), "{error}");
    assert!(
        error.contains("agent.lock") && error.contains("Read-only"),
        "{error}"
    );
    mesh.check()
}

#[test]
fn an_agent_without_permission_says_so() -> Result<()> {
    if !requires::root("an_agent_without_permission_says_so") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let folder = tempfile::tempdir()?;
    let run_dir = mesh.agent.run_dir().display().to_string();
    let elsewhere = |argument: String| match argument == run_dir {
        true => folder.path().display().to_string(),
        false => argument,
    };
    std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534))?;
    let mut command = mesh.node.command("nobody", Path::new("setpriv"))?;
    let run = command
        .args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "--inh-caps",
            "-all",
        ])
        .arg(programs::find("meshgate")?)
        .args(mesh.agent.arguments(&["run"]).into_iter().map(elsewhere))
        .args(mesh.agent.run_flags());
    let (code, error) = ended(run)?;
    assert_eq!(code, Some(1), "{error}");
    assert!(
        error.contains("not permitted") && error.contains("CAP_SYS_ADMIN"),
        "{error}"
    );
    Ok(())
}

/// Runs it to its end: the code and what it said of it.
fn ended(command: &mut Command) -> Result<(Option<i32>, String)> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    Ok((
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

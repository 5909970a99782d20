//! Bad input other than manifests: one clear error with the object's name in the status, and nobody else suffers.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;
use tests::moments::Moments;
use tests::{Agent, Mesh, Pins, PodSpec, programs, requires, zds};

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
    let found = agent.wait_for_problem("source of pods")?;
    assert!(
        found["problem"].to_string().contains("/nonexistent/kubeconfig"),
        "{found}"
    );
    agent.says_in_status("/nonexistent/kubeconfig")?;
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
        let found = mesh.agent.wait_for_problem(pod.name())?;
        let text = found["problem"].to_string();
        assert!(text.contains("full") && text.contains(name), "{text}");
        assert!(
            mesh.agent
                .wait_for_pod_state(pod.uid(), "waiting")?
                .reason
                .to_string()
                .contains("full")
        );
        mesh.agent.says_in_status(pod.name())?;
        mesh.check()?;
        for key in filled {
            map.remove(&key)?;
        }
        mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
        mesh.agent.wait_for_no_problem()?;
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
    for verb in ["status", "pods"] {
        let (code, out, err) = mesh.agent.said(&[verb])?;
        let told = format!("{out}{err}");
        assert!(
            code == Some(3) && told.contains(&format!("{}: Is a directory", status.display())),
            "{verb}: {told}"
        );
    }
    // What the maps say is told all the same.
    let (_, rows, _) = mesh.agent.said(&["pods", "-o", "json"])?;
    let rows: Vec<Value> = serde_json::from_str(&rows)?;
    assert!(
        rows.iter()
            .any(|row| row["name"] == "joining" && row["state"] == "enabled"),
        "{rows:?}"
    );
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
        .args(mesh.agent.run_flags())
        // The usual ones belong to the agent that runs.
        .args(["--health-port", "18000", "--monitoring-port", "0"]);
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

//! `cleanup` leaves nothing behind, and neither it nor a second agent works beside an agent that runs.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use agent::datapath::plan::{MAPS, NODE, PROXY};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::moments::Moments;
use tests::node_state;
use tests::process::{Process, said};
use tests::sys::bpf::{Map, exists};
use tests::{Agent, Mesh, Node, Pins, PodSpec, Proxy, programs, requires, wait};

#[test]
fn a_second_agent_and_a_cleanup_beside_an_agent_are_refused() -> Result<()> {
    if !requires::root("a_second_agent_and_a_cleanup_beside_an_agent_are_refused") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let mut second = mesh.agent.command()?;
    second
        .args(mesh.agent.arguments(&["run"]))
        .args(mesh.agent.run_flags());
    for output in [second.output()?, mesh.agent.cli(&["cleanup"])?] {
        let (code, out, err) = said(&output);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.contains("another agent is running"), "{err}");
    }
    mesh.check()
}

#[test]
fn cleanup_leaves_nothing_in_the_kernel_and_works_twice() -> Result<()> {
    if !requires::root("cleanup_leaves_nothing_in_the_kernel_and_works_twice") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    mesh.check()?;
    let pins = Pins::of(&mesh.node);
    let objects = pins.objects()?;
    // Links at the node's root, at the proxy's, and of two pods, and their programs.
    let links = NODE.len() + PROXY.len() + 2;
    assert_eq!(objects.len(), MAPS.len() + 2 * links, "{objects:?}");
    assert!(mesh.agent.stop()?.success());
    let (code, out, err) = mesh.agent.said(&["cleanup"])?;
    assert_eq!(code, Some(0), "{out}{err}");
    // A map that is counted as a link is looked for among links: not found where it is, and found where another has its id.
    let told = format!("with {links} programs, {links} links and {} maps", MAPS.len());
    ensure!(out.contains(&told), "not {told}: {out}");
    for (kind, id) in objects {
        assert!(!exists(kind, id)?, "{kind:?} {id} is left");
    }
    assert!(!mesh.node.bpffs().join("meshgate").exists());
    assert!(!mesh.agent.run_dir().join("status.json").exists());
    let direct = mesh
        .client
        .load(&["connect", &format!("{}:8080", mesh.outside.v4()), "--no-read"])?;
    assert_eq!(direct["connect"], "ok");
    assert_eq!(
        mesh.proxy.connections()?.len(),
        400,
        "the proxy is not passed any more"
    );
    assert_eq!(mesh.agent.said(&["cleanup"])?.0, Some(0));
    Ok(())
}

#[test]
fn sockets_that_another_agent_has_taken_over_stay() -> Result<()> {
    if !requires::root("sockets_that_another_agent_has_taken_over_stay") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let plugin = mesh.node.run_dir().join("istio-cni/pluginevent.sock");
    assert!(mesh.agent.stop()?.success());
    fs::remove_file(&plugin)?;
    let _other = UnixListener::bind(&plugin)?;
    let (code, out, err) = mesh.agent.said(&["cleanup"])?;
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(UnixStream::connect(&plugin).is_ok(), "{out}");
    assert!(
        !plugin.with_file_name("log.sock").exists(),
        "nobody listens there"
    );
    Ok(())
}

/// A node with pods of each sort, whose agent and proxy have not started.
fn quiet() -> Result<(Node, Vec<tests::Pod>)> {
    let node = Node::new()?;
    let specs = [
        PodSpec::new("usual").ambient(),
        PodSpec::new("wire")
            .ambient()
            .annotation("meshgate.io/client-address", "wire"),
        PodSpec::new("outside"),
    ];
    let pods = specs
        .into_iter()
        .map(|spec| node.pod_with(spec))
        .collect::<Result<Vec<_>>>()?;
    node.apply(&pods.iter().collect::<Vec<_>>())?;
    Ok((node, pods))
}

#[test]
fn a_node_is_after_a_cleanup_what_it_was_before_the_agent_whenever_a_first_one_was_killed() -> Result<()> {
    let name = "a_node_is_after_a_cleanup_what_it_was_before_the_agent_whenever_a_first_one_was_killed";
    if !requires::root(name) {
        return Ok(());
    }
    let (node, pods) = quiet()?;
    let pods: Vec<_> = pods.iter().collect();
    let proxy = Proxy::start(&node, "proxy", &["--ack-only"])?;
    let before = node_state::of(&node, &pods)?;
    let mut moments = Moments::new(3);
    let mut agent = Agent::stopped(&node, &format!("file:{}", node.manifests().display()), &[])?;
    for attempt in 1..=6 {
        agent.restart()?;
        for pod in &pods[..2] {
            agent.wait_for_pod_state(pod.uid(), "enabled")?;
        }
        ensure!(!node_state::difference(&node_state::of(&node, &pods)?, &before).is_empty());
        let objects = Pins::of(&node).objects()?;
        agent.kill9();
        let mut killed = agent.command()?;
        killed
            .args(agent.arguments(&["cleanup"]))
            .stdout(std::process::Stdio::null());
        let killed = Process::start("a cleanup", &mut killed)?;
        moments.pass(Duration::from_millis(10 * attempt));
        drop(killed);
        let (code, out, err) = agent.said(&["cleanup"])?;
        ensure!(code == Some(0), "{out}{err}");
        // What the killed one has unpinned, the second cannot wait for: the kernel frees it a moment later.
        for (kind, id) in objects {
            let gone = || Ok((!exists(kind, id)?).then_some(()));
            wait::asking(wait::LIMIT, &format!("{kind:?} {id} to be freed"), gone)?;
        }
        let left = node_state::difference(&node_state::of(&node, &pods)?, &before);
        ensure!(left.is_empty(), "{left:#?}");
        fs::create_dir_all(agent.run_dir())?;
    }
    drop(proxy);
    Ok(())
}

#[test]
fn cleanup_tells_what_is_left_and_why_and_removes_the_rest() -> Result<()> {
    if !requires::root("cleanup_tells_what_is_left_and_why_and_removes_the_rest") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let pins = Pins::of(&mesh.node);
    mesh.agent.kill9();
    let map = Map::open(&pins.folder().join("maps/HANDOVER"))?;
    // What cannot be removed: a folder in the place of a file.
    fs::remove_file(mesh.agent.run_dir().join("ready"))?;
    fs::create_dir_all(mesh.agent.run_dir().join("ready/of-others"))?;
    let output = mesh.agent.cli(&["cleanup", "-o", "json"])?;
    let (code, out, err) = said(&output);
    ensure!(code == Some(1), "{out}{err}");
    let cleaned: serde_json::Value = serde_json::from_str(&out)?;
    let left: Vec<_> = cleaned["left"].as_array().into_iter().flatten().collect();
    ensure!(left.len() == 2, "{cleaned}");
    let has = |parts: [&str; 2]| {
        left.iter()
            .any(|text| parts.iter().all(|part| text.to_string().contains(part)))
    };
    ensure!(
        has(["ready", "directory"]) && has(["(HANDOVER)", "another process or pin holds it"]),
        "{cleaned}"
    );
    ensure!(!pins.folder().exists() && !mesh.node.zds_socket().exists());
    drop(map);
    fs::remove_dir_all(mesh.agent.run_dir().join("ready"))?;
    ensure!(mesh.agent.said(&["cleanup"])?.0 == Some(0));
    Ok(())
}

#[test]
fn cleanup_works_on_a_node_that_is_half_broken() -> Result<()> {
    if !requires::root("cleanup_works_on_a_node_that_is_half_broken") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let nobody = ["--reuid", "65534", "--clear-groups", "--inh-caps", "-all"];
    mesh.agent.kill9();
    let mut denied = mesh.node.command("wrapped", Path::new("setpriv"))?;
    denied
        .args(nobody)
        .arg(programs::find("meshgate")?)
        .args(mesh.agent.arguments(&["cleanup"]));
    let (code, _, err) = said(&denied.output()?);
    ensure!(code == Some(1) && err.contains("needs root"), "{err}");
    mesh.agent.restart()?;

    // Its run dir went with a tmpfs.
    let objects = Pins::of(&mesh.node).objects()?;
    mesh.agent.kill9();
    fs::remove_dir_all(mesh.agent.run_dir())?;
    let zds = mesh.node.zds_socket();
    let plugin = mesh.node.plugin_socket();
    let folder = plugin.parent().context("a folder")?;
    let text = |path: &Path| path.display().to_string();
    let (zds_flag, folder_flag) = (text(&zds), text(folder));
    let flags = [
        "cleanup",
        "--zds-socket",
        &zds_flag,
        "--cni-agent-run-dir",
        &folder_flag,
    ];
    let (code, out, err) = mesh.agent.said(&flags)?;
    ensure!(code == Some(0), "{out}{err}");
    ensure!(!zds.exists() && !folder.exists(), "sockets are left: {out}");
    for (kind, id) in objects {
        ensure!(!exists(kind, id)?, "{kind:?} {id} is left");
    }
    // No bpffs at all.
    let nowhere = mesh.node.run_dir().join("nowhere");
    let arguments = mesh.agent.arguments(&["cleanup", "-o", "json"]).into_iter();
    let bpffs = mesh.node.bpffs().display().to_string();
    let arguments = arguments.map(|given| {
        if given == bpffs {
            nowhere.display().to_string()
        } else {
            given
        }
    });
    let mut cleanup = mesh.agent.command()?;
    let cleaned: serde_json::Value = serde_json::from_slice(&cleanup.args(arguments).output()?.stdout)?;
    ensure!(cleaned["left"] == json!([]) && cleaned["pins"] == 0, "{cleaned}");
    ensure!(!nowhere.exists());
    Ok(())
}

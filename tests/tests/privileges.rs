//! What the binary needs of its surroundings: privileges, which `preflight` asks for, and a bpffs, which it mounts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent::datapath::plan::MAPS;
use anyhow::{Context, Result};
use serde_json::Value;
use tests::process::said;
use tests::{Agent, Mesh, Node, PodSpec, programs, requires};

/// A verb of this node by another program that starts it.
fn through(node: &Node, agent: &Agent, wrapper: &[&str], verb: &[&str]) -> Result<Command> {
    let mut command = node.command("wrapped", Path::new(wrapper[0]))?;
    command
        .args(&wrapper[1..])
        .arg(programs::find("meshgate")?)
        .args(agent.arguments(verb));
    Ok(command)
}

#[test]
fn preflight_without_privileges_says_which_are_missing() -> Result<()> {
    if !requires::root("preflight_without_privileges_says_which_are_missing") {
        return Ok(());
    }
    let node = Node::new()?;
    let agent = Agent::stopped(&node, "kube", &[])?;
    let nobody = [
        "setpriv",
        "--reuid",
        "65534",
        "--clear-groups",
        "--inh-caps",
        "-all",
    ];
    let output = through(&node, &agent, &nobody, &["preflight", "-o", "json"])?.output()?;
    let (code, out, err) = said(&output);
    assert_eq!(code, Some(1), "{err}");
    let checks: Vec<Value> = serde_json::from_str(&out).with_context(|| out.clone())?;
    let of = |name: &str| {
        checks
            .iter()
            .find(|check| check["name"] == name)
            .context("a check")
    };
    let privileges = of("privileges")?;
    assert_eq!(privileges["result"], "missing");
    assert!(
        privileges["effect"]
            .to_string()
            .contains("CAP_NET_ADMIN, CAP_SYS_ADMIN"),
        "{privileges}"
    );
    // What cannot be asked is not said to be missing.
    let hook = of("sk_lookup in network namespaces")?;
    assert_eq!(hook["result"], "unknown", "{hook}");
    assert_eq!(of("SO_NETNS_COOKIE")?["result"], "ok");
    Ok(())
}

#[test]
fn a_missing_bpffs_is_mounted() -> Result<()> {
    if !requires::root("a_missing_bpffs_is_mounted") {
        return Ok(());
    }
    let node = Node::new()?;
    let folder = tempfile::tempdir()?;
    let bpffs = folder.path().display().to_string();
    // In a mount namespace of its own, which takes the mount with it.
    let script = "\"$@\" & agent=$!; while [ ! -e \"$RUN/ready\" ]; do kill -0 $agent || exit 9; sleep 0.02; done; \
                  stat -f -c %T \"$BPFFS\"; ls \"$BPFFS/meshgate/v1/maps\" | wc -l; kill $agent; wait $agent";
    let agent = Agent::stopped(&node, &format!("file:{}", node.manifests().display()), &[])?;
    let mut command = node.command("private", Path::new("unshare"))?;
    let given = node.bpffs().display().to_string();
    let arguments = agent.arguments(&["run"]).into_iter();
    let output = command
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(programs::find("meshgate")?)
        .args(arguments.map(|argument| {
            if argument == given {
                bpffs.clone()
            } else {
                argument
            }
        }))
        .args(agent.run_flags())
        .env("RUN", agent.run_dir())
        .env("BPFFS", &bpffs)
        .output()?;
    let (code, out, err) = said(&output);
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains(&format!("bpf_fs\n{}\n", MAPS.len())), "{out}{err}");
    assert!(err.contains("mounted"), "{err}");
    Ok(())
}

/// The agent as a program that begins with this shell command.
fn started_by(mesh: &Mesh, beginning: &str) -> Result<PathBuf> {
    let program = mesh.node.run_dir().join("started-by.sh");
    let meshgate = programs::find("meshgate")?;
    fs::write(
        &program,
        format!("#!/bin/sh\n{beginning} {} \"$@\"\n", meshgate.display()),
    )?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

#[test]
fn processes_of_a_pod_that_may_not_be_looked_at_are_told_and_not_taken_for_none() -> Result<()> {
    if !requires::root("processes_of_a_pod_that_may_not_be_looked_at_are_told_and_not_taken_for_none") {
        return Ok(());
    }
    let setpriv = "exec setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace";
    let hidden = format!(
        "[ -n \"$PROC\" ] || PROC=1 exec unshare -m \"$0\" \"$@\"\nmount -t proc -o hidepid=4 proc /proc\n{setpriv}"
    );
    for (beginning, told) in [(setpriv, "may not be looked at"), (&hidden, "hidepid")] {
        let mut mesh = Mesh::new()?;
        let _servers = mesh.serve()?;
        mesh.agent.kill9();
        mesh.agent.replace_program(&started_by(&mesh, beginning)?);
        mesh.agent.spawn()?;
        mesh.agent.wait_until_ready()?;
        let pod = mesh.node.pod_with(PodSpec::new("unseen").ambient())?;
        mesh.node.apply(&[&pod])?;
        let found = mesh.agent.wait_for_problem("default/unseen")?;
        let problem = found["problem"].to_string();
        assert!(
            problem.contains(told) && problem.contains("CAP_SYS_PTRACE"),
            "{problem}"
        );
        mesh.agent.says_in_status("CAP_SYS_PTRACE")?;
        // Who was captured before stays so.
        mesh.check()?;
    }
    Ok(())
}

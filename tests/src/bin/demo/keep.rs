//! `--keep`: a file for the reader's shell which names this node to `meshgate` and enters its pods, and what to try.

use std::fs;
use std::path::Path;

use ::tests::cluster::User;
use ::tests::{Node, Pod, cgroup, programs};
use anyhow::{Context, Result};

use crate::scene::{Ground, Scene};
use crate::screen::Screen;
use crate::trial::PORT;

/// Writes the file and tells how to use it.
pub(crate) fn invite(screen: &Screen, scene: &Scene) -> Result<()> {
    let ground = &scene.ground;
    let file = ground.node.run_dir().join("shell");
    let text = shell(&ground.node, &[&ground.client, &ground.server, &ground.outside])?;
    fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    screen.section(
        "It all runs until you press Ctrl-C here",
        "In another terminal, as root, name this node to your shell first:",
    );
    screen.indented(&format!("\n. {}\n", file.display()));
    screen.section("Then try", "");
    let outside = &ground.outside;
    let log = ground.node.run_dir().join("proxy.jsonl");
    let tries = [
        ("meshgate status".to_owned(), "how agent, links and pods are"),
        (
            format!("meshgate maps get --ip {}", ground.client.v4()),
            "whose address that is",
        ),
        (
            format!("client meshgate-load connect {}:{PORT}", outside.v4()),
            "any program, as the pod client would run it",
        ),
        (
            format!("client meshgate-load crr '[{}]:{PORT}'", outside.v6()),
            "connections for a second",
        ),
        (
            "meshgate counters --pod default/client".to_owned(),
            "what was decided for them",
        ),
        (format!("tail -n 3 {}", log.display()), "what the proxy saw"),
        (leave(ground), "the client leaves the mesh"),
        ("meshgate pods".to_owned(), "and here is why"),
    ];
    for (command, what) in tries {
        screen.indented(&format!("{command}    # {what}"));
    }
    Ok(())
}

/// How the reader takes the client out of the mesh.
fn leave(ground: &Ground) -> String {
    match &ground.cluster {
        Some(cluster) => format!(
            "node kubectl --kubeconfig {} label pod client --overwrite istio.io/dataplane-mode=none",
            cluster.kubeconfig(User::Admin).display()
        ),
        None => {
            let manifest = ground.node.manifests().join(ground.client.file_name());
            format!("sed -i s/ambient/none/ {}", manifest.display())
        }
    }
}

/// For a POSIX shell: where `meshgate` and the tools are, where this node is, and functions that run a program in
/// a pod or on the node.
fn shell(node: &Node, pods: &[&Pod]) -> Result<String> {
    let program = programs::find("meshgate")?;
    let folder = program.parent().context("a program without a folder")?;
    let agent = node.run_dir().join("agent");
    let variables: [(&str, &Path); 4] = [
        ("MESHGATE_BPFFS", node.bpffs()),
        ("MESHGATE_RUN_DIR", &agent),
        ("MESHGATE_CGROUP_ROOT", node.cgroup()),
        ("MESHGATE_HOST_NETNS", &node.netns().path()),
    ];
    let mut text = String::from("# For a root shell, while the demo runs: . THIS_FILE\n");
    for (name, path) in variables {
        text += &format!("export {name}='{}'\n", path.display());
    }
    text += &format!("export PATH='{}':\"$PATH\"\n", folder.display());
    // The shell in between moves itself, so that the program starts as one of the pod.
    text += "in_place() { sh -c 'echo 0 > \"$1/cgroup.procs\" && n=$2 && shift 2 && exec nsenter --net=\"$n\" \"$@\"' sh \"$@\"; }\n";
    let on_node = cgroup::create(node.cgroup().join("node/shell"))?;
    let mut places = vec![("node", on_node, node.netns().path())];
    places.extend(
        pods.iter()
            .map(|pod| (pod.name(), pod.cgroup().to_owned(), pod.netns().path())),
    );
    for (name, cgroup, netns) in places {
        text += &format!(
            "{name}() {{ in_place '{}' '{}' \"$@\"; }}\n",
            cgroup.display(),
            netns.display()
        );
    }
    Ok(text)
}

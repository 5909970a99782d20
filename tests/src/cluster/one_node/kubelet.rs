//! The kubelet of a node: its configuration, its cgroups, and what it must not touch of the machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Primary;
use crate::cgroup;
use crate::cluster::{Cluster, User, flags};
use crate::containerd::Containerd;
use crate::netns::run;
use crate::node::Node;

/// Below the node's cgroup, apart from the pods of the fixtures: kubelet kills what runs there without its knowledge.
const CGROUP: &str = "kubelet";
/// In memory, as all of /var/lib is in the node's mount namespace.
const FOLDER: &str = "/var/lib/kubelet";
/// More than the pods of any test.
const MAX_PODS: u32 = 200;

/// Gives it a folder of logs of its own, and shows it the settings that it wants: kubelet would change them (its flag
/// `--protect-kernel-defaults`), and they are the whole machine's.
const SCRIPT: &str = r#"
mount -t tmpfs -o mode=755 logs /var/log
mkdir -p /run/settings
while read -r name value; do
    file="/run/settings/$(basename "$name")"
    echo "$value" > "$file"
    mount --bind "$file" "/proc/sys/$name"
done <<'END'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
"#;

/// Makes what it needs before it starts.
pub(super) fn prepare(node: &Node, containerd: &Containerd) -> Result<()> {
    let mut command = containerd.command(Path::new("sh"))?;
    run(command.args(["-e", "-c", SCRIPT]))?;
    make_cgroups(node)
}

/// Makes its cgroup in each hierarchy, with the controllers of that: kubelet takes no other.
fn make_cgroups(node: &Node) -> Result<()> {
    let root = cgroup::create(node.cgroup().join(CGROUP))?;
    let v1 = cgroup::v1_mounts();
    for mount in &v1 {
        cgroup::create(mount.join(node.name()).join(CGROUP))?;
    }
    if !v1.is_empty() {
        return Ok(());
    }
    let mount = cgroup::mount()?;
    let above: Vec<_> = root
        .ancestors()
        .skip(1)
        .take_while(|path| path.starts_with(&mount))
        .collect();
    for folder in above.into_iter().rev() {
        let controllers = fs::read_to_string(folder.join("cgroup.controllers"))?;
        for controller in controllers.split_whitespace() {
            fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"))
                .with_context(|| format!("giving {controller} to what is below {}", folder.display()))?;
        }
    }
    Ok(())
}

/// Writes its configuration and returns its flags.
pub(super) fn flags_of(
    cluster: &Cluster,
    node: &Node,
    containerd: &Containerd,
    primary: Primary,
) -> Result<Vec<String>> {
    let config = cluster.folder.join("kubelet.json");
    fs::write(&config, configuration(node, &containerd.socket()).to_string())?;
    let text = |path: PathBuf| path.display().to_string();
    let x = node.subnet();
    let mut addresses = [format!("10.{x}.0.1"), format!("fd00:{x}::1")];
    if primary == Primary::V6 {
        addresses.reverse();
    }
    Ok(flags(&[
        ("config", &text(config)),
        ("kubeconfig", &text(cluster.kubeconfig(User::Kubelet))),
        ("root-dir", FOLDER),
        ("cert-dir", &format!("{FOLDER}/pki")),
        ("hostname-override", node.name()),
        ("node-ip", &addresses.join(",")),
    ]))
}

/// Its configuration (kubelet.config.k8s.io/v1beta1). It evicts nothing and collects no images, however full the machine
/// is; and it lets everybody ask it, for the node's network is its own.
fn configuration(node: &Node, runtime: &Path) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", runtime.display()),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}/{CGROUP}", node.name()),
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": false,
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "volumePluginDir": format!("{FOLDER}/volume-plugins"),
        "resolvConf": "",
        "clusterDNS": ["10.96.0.10"],
        "maxPods": MAX_PODS,
        "kubeAPIQPS": 1000,
        "kubeAPIBurst": 1000,
        "eventRecordQPS": 0,
    })
}

//! A Kubernetes-like node: a network namespace with a bridge, a cgroup tree of its own, a folder for pins, a run
//! folder and a folder of manifests. Several live side by side; a dropped one leaves nothing behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::leftovers::{PREFIX, Parts, sweep};
use crate::netns::Netns;
use crate::pod::Pod;
use crate::spec::{Identity, PodSpec, namespace_manifest};
use crate::{cgroup, programs, sys};

/// Numbers the nodes of this process.
static NODES: AtomicU32 = AtomicU32::new(0);

/// Where the BPF file system is usually mounted.
const BPFFS: &str = "/sys/fs/bpf";

/// A node.
#[derive(Debug)]
pub struct Node {
    parts: Parts,
    netns: Netns,
    number: u32,
    pods: AtomicU32,
    manifests_written: AtomicU32,
}

impl Node {
    /// Makes a node with the namespace `default` applied, and removes what killed runs left on the machine.
    ///
    /// # Errors
    /// When something cannot be made: each needs root.
    pub fn new() -> Result<Self> {
        let (cgroups, bpffs) = (cgroup::mount()?, bpffs()?);
        sweep(&cgroups, &bpffs);
        let number = NODES.fetch_add(1, Ordering::Relaxed) + 1;
        let parts = Parts::new(
            &format!("{PREFIX}{}-{number}", std::process::id()),
            &cgroups,
            &bpffs,
        );
        parts.remove();
        let netns = Netns::create(&parts.name)?;
        let node = Self {
            parts,
            netns,
            number,
            pods: AtomicU32::new(0),
            manifests_written: AtomicU32::new(0),
        };
        node.build()?;
        Ok(node)
    }

    fn build(&self) -> Result<()> {
        for folder in ["kubepods", "node"] {
            cgroup::create(self.parts.cgroup.join(folder))?;
        }
        for folder in [self.manifests(), self.parts.bpffs.clone()] {
            fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        // The bridge forwards at once (no spanning tree) and never waits for multicast reports, and IPv6 addresses are
        // usable at once (no duplicate address detection): a fixture waits for nothing.
        let x = self.subnet();
        self.netns.ip(&format!(
            "link add br0 type bridge forward_delay 0 mcast_snooping 0\n\
             link set br0 addrgenmode none up\n\
             addr add 10.{x}.0.1/24 dev br0\n\
             addr add fd00:{x}::1/64 dev br0 nodad\n"
        ))?;
        for family in ["ipv4.ip_forward", "ipv6.conf.all.forwarding"] {
            self.netns.sysctl(&format!("net.{family}"), "1")?;
        }
        self.namespace("default", &[])
    }

    /// `spec.nodeName` of its pods.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// The X in its addresses 10.X.0.1 and fd00:X::1 (X is decimal in both) and in those of its pods.
    #[must_use]
    pub fn subnet(&self) -> u32 {
        (self.number - 1) % 250 + 1
    }

    /// Its network namespace.
    #[must_use]
    pub fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Root of its cgroup tree.
    #[must_use]
    pub fn cgroup(&self) -> &Path {
        &self.parts.cgroup
    }

    /// Folder for pins.
    #[must_use]
    pub fn bpffs(&self) -> &Path {
        &self.parts.bpffs
    }

    /// Folder for sockets and logs.
    #[must_use]
    pub fn run_dir(&self) -> &Path {
        &self.parts.run
    }

    /// Folder that the file source follows.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.parts.run.join("manifests")
    }

    /// The socket on which the agent listens for proxies.
    #[must_use]
    pub fn zds_socket(&self) -> PathBuf {
        self.parts.run.join("ztunnel.sock")
    }

    /// The socket on which the agent listens for the CNI plugin.
    #[must_use]
    pub fn plugin_socket(&self) -> PathBuf {
        self.parts.run.join("istio-cni/pluginevent.sock")
    }

    /// Everything that it consists of; outlives it, to show that nothing is left.
    #[must_use]
    pub fn parts(&self) -> Parts {
        self.parts.clone()
    }

    /// A command that runs as a process of the node itself, in the cgroup `node/<group>`.
    ///
    /// # Errors
    /// When the program was not found or the cgroup cannot be made.
    pub fn command(&self, group: &str, program: &Path) -> Result<Command> {
        let folder = cgroup::create(self.parts.cgroup.join("node").join(group))?;
        let mut command = Command::new(program);
        sys::enter_on_exec(&mut command, self.netns.open()?, Some(cgroup::entrance(&folder)?));
        Ok(command)
    }

    /// Runs the load tool as a process of the node (as a kubelet's probe would) and returns the JSON that it prints.
    ///
    /// # Errors
    /// When it fails or prints something else.
    pub fn load(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = self.command("load", &programs::find("meshgate-load")?)?;
        crate::pod::json_output(command.args(arguments))
    }

    /// Makes a dual-stack pod in namespace `default`.
    ///
    /// # Errors
    /// When its parts cannot be made.
    pub fn pod(&self, name: &str) -> Result<Pod> {
        self.pod_with(PodSpec::new(name))
    }

    /// Makes a pod. Kubernetes does not know of it before [`Node::apply`].
    ///
    /// # Errors
    /// When its parts cannot be made.
    pub fn pod_with(&self, spec: PodSpec) -> Result<Pod> {
        let mut pod = self.sandbox(spec)?;
        pod.start()?;
        Ok(pod)
    }

    /// Makes the sandbox of a pod, as it is when the CNI plugins are called: it has addresses, but no process yet, and
    /// Kubernetes does not know its addresses before [`Pod::start`].
    ///
    /// # Errors
    /// When its parts cannot be made.
    pub fn sandbox(&self, spec: PodSpec) -> Result<Pod> {
        let identity = self.identity(&spec);
        Pod::sandbox(self, spec, identity)
    }

    /// What Kubernetes calls the next pod; it has no addresses yet.
    pub(crate) fn identity(&self, spec: &PodSpec) -> Identity {
        let number = self.pods.fetch_add(1, Ordering::Relaxed) + 1;
        let new = || {
            format!(
                "{:08x}-{:04x}-4000-8000-{number:012x}",
                std::process::id(),
                self.subnet()
            )
        };
        Identity {
            uid: spec.uid.clone().unwrap_or_else(new),
            node: self.name().to_owned(),
            ips: Vec::new(),
            number,
        }
    }

    /// Writes the pods' manifests, each in one step, for the file source.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn apply(&self, pods: &[&Pod]) -> Result<()> {
        pods.iter()
            .try_for_each(|pod| self.write(&pod.file_name(), &pod.manifest()))
    }

    /// Removes a pod's manifest, as when it is deleted.
    ///
    /// # Errors
    /// When it is not there.
    pub fn delete(&self, pod: &Pod) -> Result<()> {
        let file = self.manifests().join(pod.file_name());
        fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))
    }

    /// Writes a Kubernetes namespace with these labels.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<()> {
        self.write(
            &format!("namespace-{name}.yaml"),
            &namespace_manifest(name, labels),
        )
    }

    /// Writes any object as `file` among the manifests.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, file: &str, object: &Value) -> Result<()> {
        self.write_text(file, &serde_saphyr::to_string(object)?)
    }

    /// Writes any text as `file` among the manifests, in one step: a reader sees the old file or the new one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_text(&self, file: &str, text: &str) -> Result<()> {
        let number = self.manifests_written.fetch_add(1, Ordering::Relaxed);
        let unfinished = self.parts.run.join(format!("manifest-{number}"));
        let target = self.manifests().join(file);
        let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, &target));
        written.with_context(|| format!("writing {}", target.display()))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.parts.remove();
    }
}

/// Where the BPF file system is; mounted when it is not.
fn bpffs() -> Result<PathBuf> {
    // Two mounts on each other would hide the pins of whoever came first.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    if let Some(path) = cgroup::mount_of(&mounts, "bpf") {
        return Ok(path);
    }
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("bpf", BPFFS, "bpf", flags, None)
        .with_context(|| format!("mounting bpffs at {BPFFS}"))?;
    Ok(BPFFS.into())
}

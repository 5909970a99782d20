//! A container runtime of a node: containerd with runc and CNI plugins, in the node's network namespace and with
//! [`Mounts`] of its own, so that several stand side by side and all their mounts go with them. Pods are made by [`Cri`].
//!
//! Its processes, the containers' and their shims are all in the node's cgroup tree, and gone with that.

pub mod image;
pub mod mounts;
pub mod network;
pub mod pod;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cri::{Cri, ImageSpec, ImageStatusRequest, StatusRequest};
use crate::node::Node;
use crate::process::Process;
use crate::{cgroup, programs, sys, wait};

pub use image::IMAGE;
pub use mounts::Mounts;
pub use network::{Main, Network};
pub use pod::{Container, RuntimePod};

/// Where Debian's package puts the reference plugins.
pub const REFERENCE_PLUGINS: &str = "/usr/lib/cni";
/// Names of our plugin.
const OUR_PLUGIN: [&str; 2] = ["meshgate-cni", "istio-cni"];

/// What is not the same for every runtime.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The network configuration, if it is there from the beginning: the runtime takes no pods before there is one.
    pub network: Option<Value>,
    /// Folder of network configurations, in place of one of its own.
    pub conf_dir: Option<PathBuf>,
    /// Folder of CNI plugins, in place of one with the reference plugins and ours.
    pub bin_dir: Option<PathBuf>,
}

/// A runtime. Drop it before its node.
#[derive(Debug)]
pub struct Containerd {
    process: Option<Process>,
    mounts: Mounts,
    /// Configuration, socket, log.
    folder: PathBuf,
    conf_dir: PathBuf,
    bin_dir: PathBuf,
    /// The node's network namespace.
    netns: PathBuf,
    /// The node's cgroup for this.
    cgroup: PathBuf,
}

impl Containerd {
    /// Starts it with a network, waits until it answers, and brings [`IMAGE`].
    ///
    /// # Errors
    /// When it does not start; its log is in the error.
    pub fn start(node: &Node, network: &Network) -> Result<Self> {
        let options = Options {
            network: Some(network.conflist()),
            ..Options::default()
        };
        Self::start_with(node, options)
    }

    /// Like [`Containerd::start`], with other things of one's own.
    ///
    /// # Errors
    /// As [`Containerd::start`].
    pub fn start_with(node: &Node, options: Options) -> Result<Self> {
        let folder = node.run_dir().join("containerd");
        let cni = |name: &str| node.run_dir().join("cni").join(name);
        let mut containerd = Self {
            process: None,
            mounts: Mounts::new(node)?,
            conf_dir: options.conf_dir.unwrap_or_else(|| cni("net.d")),
            bin_dir: options.bin_dir.unwrap_or_else(|| cni("bin")),
            folder,
            netns: node.netns().path(),
            cgroup: node.cgroup().join("node/containerd"),
        };
        for folder in [&containerd.folder, &containerd.conf_dir] {
            fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        if !containerd.bin_dir.exists() {
            link_plugins(&containerd.bin_dir)?;
        }
        if let Some(network) = &options.network {
            containerd.write_network(network)?;
        }
        fs::write(containerd.folder.join("config.toml"), containerd.config())?;
        containerd.restart()?;
        containerd.import(IMAGE, image::tarball()?)?;
        Ok(containerd)
    }

    /// Gives pods another network from now on, and restarts.
    ///
    /// # Errors
    /// As [`Containerd::restart`].
    pub fn set_network(&mut self, network: &Network) -> Result<()> {
        self.write_network(&network.conflist())?;
        self.restart()
    }

    fn write_network(&self, conflist: &Value) -> Result<()> {
        Ok(fs::write(
            self.conf_dir.join("10-test.conflist"),
            conflist.to_string(),
        )?)
    }

    /// Kills it, if it runs, starts it, and waits until it answers. Containers go on meanwhile.
    ///
    /// # Errors
    /// As [`Containerd::start`].
    pub fn restart(&mut self) -> Result<()> {
        self.process = None;
        let _ = fs::remove_file(self.socket());
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())?;
        let mut command = self.command(Path::new("containerd"))?;
        command.arg("--config").arg(self.folder.join("config.toml"));
        command.stdout(log.try_clone()?).stderr(log);
        let process = self.process.insert(Process::start("containerd", &mut command)?);
        let pidfd = process.pidfd().try_clone()?;
        let socket = self.folder.join("containerd.sock");
        let listens = wait::for_file(&socket, Some(pidfd.as_fd()), "containerd's socket", || {
            if let Some(status) = process.ended()? {
                bail!("containerd ended with {status}");
            }
            Ok(socket.exists().then_some(()))
        });
        // It listens before its CRI part is ready, and tells nobody when that is.
        let ready = listens.and_then(|()| {
            let cri = self.cri()?;
            wait::asking(wait::LIMIT, "containerd's CRI", || {
                Ok(cri.call(StatusRequest {}).ok())
            })
        });
        ready
            .map(drop)
            .with_context(|| format!("log of containerd:\n{}", self.log()))
    }

    /// A client.
    ///
    /// # Errors
    /// When its socket's path is no path.
    pub fn cri(&self) -> Result<Cri> {
        Cri::new(&self.socket())
    }

    /// Its socket, for CRI and for `ctr`.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("containerd.sock")
    }

    /// Folder of network configurations.
    #[must_use]
    pub fn conf_dir(&self) -> &Path {
        &self.conf_dir
    }

    /// Folder of CNI plugins.
    #[must_use]
    pub fn bin_dir(&self) -> &Path {
        &self.bin_dir
    }

    /// The mounts of the node, where the pods' network namespaces have their names.
    #[must_use]
    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// What an agent needs beside the usual flags to find them.
    #[must_use]
    pub fn agent_flags(&self) -> [String; 2] {
        ["--host-root".to_owned(), self.mounts.root().display().to_string()]
    }

    /// A command of the node that sees its mounts: a kubelet's, for example.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn command(&self, program: &Path) -> Result<Command> {
        let group = cgroup::create(self.cgroup.clone())?;
        let netns = fs::File::open(&self.netns).context("opening the node's network namespace")?;
        let mut command = Command::new(program);
        sys::enter_on_exec(&mut command, netns.into(), Some(cgroup::entrance(&group)?));
        sys::enter_mounts_on_exec(&mut command, self.mounts.open()?);
        Ok(command)
    }

    /// Brings an image and waits until pods can be made from it.
    ///
    /// # Errors
    /// When it is not one.
    pub fn import(&self, name: &str, tarball: &[u8]) -> Result<()> {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(self.socket());
        command.args(["--namespace", "k8s.io", "images", "import", "-"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("starting ctr")?;
        let fed = child.stdin.take().context("stdin is a pipe")?.write_all(tarball);
        let output = child.wait_with_output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && fed.is_ok(),
            "ctr images import: {error}{fed:?}"
        );
        let cri = self.cri()?;
        let image = Some(ImageSpec {
            image: name.to_owned(),
        });
        // Its CRI part hears of the image from its other parts, a moment later.
        wait::asking(wait::LIMIT, &format!("the image {name}"), || {
            Ok(cri.call(ImageStatusRequest { image: image.clone() })?.image)
        })?;
        Ok(())
    }

    /// Everything that it logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("containerd.log")
    }

    /// Its configuration. State and images are in memory, by [`Mounts`].
    fn config(&self) -> String {
        let quoted = |path: &Path| Value::from(path.display().to_string()).to_string();
        let (socket, bin_dir, conf_dir) = (
            quoted(&self.socket()),
            quoted(&self.bin_dir),
            quoted(&self.conf_dir),
        );
        // Without CAP_SYS_RESOURCE runc could not set the scores. The plugin left out would make a folder of the machine's.
        format!(
            r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = {socket}
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "{IMAGE}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {bin_dir}
conf_dir = {conf_dir}
"#
        )
    }
}

/// Makes a folder of CNI plugins: containerd looks for all in one.
fn link_plugins(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let plugins = fs::read_dir(REFERENCE_PLUGINS).with_context(|| format!("reading {REFERENCE_PLUGINS}"))?;
    for plugin in plugins {
        let plugin = plugin?;
        symlink(plugin.path(), folder.join(plugin.file_name()))?;
    }
    let ours = programs::find("meshgate-cni")?;
    for name in OUR_PLUGIN {
        symlink(&ours, folder.join(name))?;
    }
    Ok(())
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of containerd:\n{}", self.log());
        }
    }
}

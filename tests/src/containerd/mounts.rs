//! A mount namespace of a node, in which `/run` and `/var/lib` are its own: container runtimes, kubelet and CNI plugins
//! keep their state there under fixed names. All mounts in it are gone with its last process.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::node::Node;
use crate::process::Process;

/// Sees what is mounted on the machine later, and nothing of it is seen there. The last program keeps it until stdin
/// closes.
/// Mounts of containers reach others in it, as on a machine with systemd, and none reaches the machine.
const SCRIPT: &str = "mount -t tmpfs -o mode=755 run /run && mount -t tmpfs -o mode=755 lib /var/lib && \
                      mount --make-rshared / && echo made && exec cat";

/// The namespace.
#[derive(Debug)]
pub struct Mounts(Process);

impl Mounts {
    /// Makes it.
    ///
    /// # Errors
    /// When `unshare` or `mount` is missing or refuses.
    pub fn new(node: &Node) -> Result<Self> {
        let mut command = node.command("mounts", Path::new("unshare"))?;
        command.args(["--mount", "--propagation", "slave", "sh", "-c", SCRIPT]);
        let mut keeper = Process::start_talking("the keeper of the node's mounts", &mut command)?;
        keeper.await_line("made")?;
        Ok(Self(keeper))
    }

    /// The node's files as they are in it, for whoever is outside of it.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        format!("/proc/{}/root", self.0.id()).into()
    }

    /// A descriptor of it.
    ///
    /// # Errors
    /// When it is gone.
    pub fn open(&self) -> Result<OwnedFd> {
        let path = format!("/proc/{}/ns/mnt", self.0.id());
        Ok(File::open(&path)
            .with_context(|| format!("opening {path}"))?
            .into())
    }
}

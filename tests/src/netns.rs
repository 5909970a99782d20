//! A named network namespace (ip-netns(8)), deleted when dropped.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Folder where iproute2 keeps named namespaces.
pub const FOLDER: &str = "/run/netns";

/// A network namespace with `lo` up.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// Makes it.
    ///
    /// # Errors
    /// When `ip` is missing or refuses, for example because the name is taken.
    pub fn create(name: &str) -> Result<Self> {
        run(Command::new("ip").args(["netns", "add", name]))?;
        let netns = Self {
            name: name.to_owned(),
        };
        netns.ip("link set lo up")?;
        Ok(netns)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file which holds it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(FOLDER).join(&self.name)
    }

    /// A descriptor of it.
    ///
    /// # Errors
    /// When it is gone.
    pub fn open(&self) -> Result<OwnedFd> {
        let path = self.path();
        Ok(File::open(&path)
            .with_context(|| format!("opening {}", path.display()))?
            .into())
    }

    /// Runs `ip` commands in it, one a line, without the leading `ip`.
    ///
    /// # Errors
    /// With what `ip` printed.
    pub fn ip(&self, script: &str) -> Result<()> {
        let mut command = Command::new("ip");
        feed(command.args(["-n", &self.name, "-batch", "-"]), script)
    }

    /// Like [`Netns::ip`] with `-6`, for commands which do not show their family (`rule`).
    ///
    /// # Errors
    /// With what `ip` printed.
    pub fn ip6(&self, script: &str) -> Result<()> {
        feed(
            Command::new("ip").args(["-6", "-n", &self.name, "-batch", "-"]),
            script,
        )
    }

    /// Runs `work` on a thread which is in the namespace. Its sockets are of this process and thus of this process'
    /// cgroup: to be seen as the application's they must be made by a process in the pod.
    ///
    /// # Errors
    /// When the namespace is gone.
    ///
    /// # Panics
    /// When `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        run_within(&self.open()?, work)
    }

    /// Its cookie, the key of the agent's maps.
    ///
    /// # Errors
    /// When the namespace is gone or the kernel has no `SO_NETNS_COOKIE`.
    pub fn cookie(&self) -> Result<u64> {
        self.run(|| Ok(crate::sys::netns_cookie(TcpListener::bind("127.0.0.1:0")?)?))?
    }

    /// Sets a sysctl of it; `name` as in `net.ipv4.ip_forward`.
    ///
    /// # Errors
    /// When there is no such sysctl or it refuses the value.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        self.run(|| std::fs::write(&path, value).with_context(|| format!("writing {value} to {path}")))?
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        delete(&self.name);
    }
}

/// Runs `work` on a thread in a namespace; see [`Netns::run`].
///
/// # Errors
/// When this process may not enter it.
///
/// # Panics
/// When `work` does.
pub fn run_within<T: Send>(netns: &OwnedFd, work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        });
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Deletes a namespace by its name, if it is there.
pub fn delete(name: &str) {
    let _ = Command::new("ip")
        .args(["netns", "delete", name])
        .stderr(Stdio::null())
        .status();
}

/// Runs a command to its end.
///
/// # Errors
/// With what it printed, when it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Runs a command which reads `input`.
///
/// # Errors
/// With what it printed, when it fails.
pub fn feed(command: &mut Command, input: &str) -> Result<()> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("running {command:?}"))?;
    let written = child
        .stdin
        .take()
        .map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "{command:?}: {}\ninput was:\n{input}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    written
        .unwrap_or(Ok(()))
        .with_context(|| format!("feeding {command:?}"))
}

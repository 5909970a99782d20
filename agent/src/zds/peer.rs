//! Who is at the other end of a connection: from a process id to the cgroup whose sockets are the proxy's.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::ports::ProxyPeer;

/// Why a peer is not known well enough to attach the proxy's programs to it.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    /// `SO_PEERCRED` fails.
    #[error("reading the proxy's credentials: {0}")]
    Credentials(std::io::Error),
    /// `SO_PEERCRED` names process 0: the peer has no id in our PID namespace.
    #[error(
        "the proxy's process is in another PID namespace, so that its cgroup cannot be found: run the agent with \
         `hostPID: true`"
    )]
    OtherPidNamespace,
    /// `/proc/<pid>/cgroup` cannot be read.
    #[error("reading {path} of the proxy: {source}; it may have ended, it will connect again if not")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is no line `0::`.
    #[error(
        "process {pid} is in no cgroup v2: mount cgroup2 on the node (hybrid is enough), the programs need it"
    )]
    NoCgroup2 {
        /// The proxy.
        pid: u32,
    },
    /// The path climbs above the root: it is told relative to a cgroup namespace of our own.
    #[error(
        "cgroup {path} of process {pid} is outside the agent's cgroup namespace: run the agent privileged, so that it \
         shares the node's cgroup namespace"
    )]
    OtherCgroupNamespace {
        /// The proxy.
        pid: u32,
        /// What `/proc/<pid>/cgroup` says.
        path: String,
    },
}

/// Finds the cgroup of process `pid` by the proc file system at `proc_root`; `cgroup_root` is where cgroup2 is mounted.
///
/// # Errors
/// When the process is not ours to see, is gone, or its cgroup has no path below `cgroup_root`.
pub(super) fn identify(pid: u32, proc_root: &Path, cgroup_root: &Path) -> Result<ProxyPeer, PeerError> {
    if pid == 0 {
        return Err(PeerError::OtherPidNamespace);
    }
    let path = proc_root.join(pid.to_string()).join("cgroup");
    let text = fs::read_to_string(&path).map_err(|source| PeerError::Unreadable { path, source })?;
    let cgroup = cgroup2_path(&text).ok_or(PeerError::NoCgroup2 { pid })?;
    let relative = below_root(cgroup).ok_or_else(|| PeerError::OtherCgroupNamespace {
        pid,
        path: cgroup.to_owned(),
    })?;
    Ok(ProxyPeer {
        pid,
        cgroup: cgroup_root.join(relative),
    })
}

/// The path in the line of cgroup v2, which has hierarchy 0 and no controllers (cgroups(7)).
fn cgroup2_path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The path without its leading slash, unless it climbs.
fn below_root(cgroup: &str) -> Option<&Path> {
    let relative = Path::new(cgroup.strip_prefix('/')?);
    relative
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
        .then_some(relative)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identify_with(pid: u32, cgroup_file: &str) -> Result<ProxyPeer, PeerError> {
        let proc_root = tempfile::tempdir().expect("a folder");
        fs::create_dir(proc_root.path().join("77")).expect("a process");
        fs::write(proc_root.path().join("77/cgroup"), cgroup_file).expect("its cgroup");
        identify(pid, proc_root.path(), Path::new("/sys/fs/cgroup"))
    }

    #[test]
    fn the_cgroup_is_found_on_v2_and_on_hybrid_nodes() {
        let v2 = "0::/kubepods.slice/pod1/ab12\n";
        let hybrid = "12:cpu:/elsewhere\n1:name=systemd:/elsewhere\n0::/kubepods.slice/pod1/ab12\n";
        for file in [v2, hybrid] {
            let peer = identify_with(77, file).expect("a peer");
            assert_eq!(peer.pid, 77);
            assert_eq!(peer.cgroup, Path::new("/sys/fs/cgroup/kubepods.slice/pod1/ab12"));
        }
    }

    #[test]
    fn the_root_cgroup_is_told_as_it_is() {
        let peer = identify_with(77, "0::/\n").expect("a peer");
        assert_eq!(peer.cgroup, Path::new("/sys/fs/cgroup/"));
    }

    #[test]
    fn a_peer_that_cannot_be_placed_is_an_error_that_says_what_to_do() {
        let cases = [
            (0, "0::/a\n", "hostPID"),
            (78, "0::/a\n", "78/cgroup"),
            (77, "3:cpu:/a\n", "mount cgroup2"),
            (77, "0::/../../kubepods/x\n", "privileged"),
        ];
        for (pid, file, told) in cases {
            let error = identify_with(pid, file).expect_err("no peer").to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}

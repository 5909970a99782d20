//! The network namespace of a new sandbox, from the path that the plugin tells: a process that can reach the socket must
//! not make the agent capture the node itself, nor one pod in the name of another.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

use crate::netns::NetnsId;
use crate::netns::enter::{EnterError, inspect};
use crate::ports::Netns;

/// Why a namespace is not taken.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// It cannot be opened.
    #[error(
        "opening the sandbox's network namespace {path}: {source}; the agent must see the node's files there: mount them, \
         and say where with --host-root"
    )]
    Open {
        /// Where it was looked for.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is no network namespace, or cannot be entered.
    #[error("the sandbox's network namespace {path}: {source}")]
    Enter {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        source: EnterError,
    },
    /// It is the node's own.
    #[error("{path} is the node's own network namespace, which is never captured")]
    Node {
        /// Where it is.
        path: PathBuf,
    },
    /// It is somebody else's.
    #[error(
        "the network namespace {path} owns {owned:?} and none of {addresses:?}, which the CNI plugins say that they gave \
         it: is meshgate-cni behind the main plugin in the chain?"
    )]
    Foreign {
        /// Where it is.
        path: PathBuf,
        /// Its addresses.
        owned: Vec<IpAddr>,
        /// Those that it should have.
        addresses: Vec<IpAddr>,
    },
}

/// Opens the namespace at `path` below `host_root`, and makes sure that it is a pod's and owns one of `addresses`, if
/// there are any. `node` is the node's own namespace.
///
/// # Errors
/// When it is not there, or not that of the sandbox.
pub(super) fn open_netns(
    host_root: &Path,
    path: &str,
    node: NetnsId,
    addresses: &[IpAddr],
) -> Result<Netns, SandboxError> {
    let (opened, path) = (
        open_file(host_root, path),
        host_root.join(path.trim_start_matches('/')),
    );
    let fd = opened.map_err(|source| SandboxError::Open {
        path: path.clone(),
        source,
    })?;
    let is_node = NetnsId::of(&fd).map_err(|source| SandboxError::Open {
        path: path.clone(),
        source,
    })? == node;
    if is_node {
        return Err(SandboxError::Node { path });
    }
    let facts = match inspect(&fd) {
        Ok(facts) => facts,
        Err(source) => return Err(SandboxError::Enter { path, source }),
    };
    if !addresses.is_empty() && !facts.addresses.iter().any(|ip| addresses.contains(ip)) {
        return Err(SandboxError::Foreign {
            path,
            owned: facts.addresses,
            addresses: addresses.to_vec(),
        });
    }
    Ok(Netns {
        fd: Arc::new(fd),
        cookie: facts.cookie,
    })
}

/// Opens a file of the node as a process of the node would: `/var/run` is a link to `/run` there, and not to the
/// agent's. Never waits, as opening a pipe would.
fn open_file(root: &Path, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let plain = || {
        Ok(open(
            root.join(path.trim_start_matches('/')),
            flags,
            Mode::empty(),
        )?)
    };
    if root == Path::new("/") {
        return plain();
    }
    let folder = open(
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    match openat2(folder, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        // A link of procfs, /proc/<pid>/ns/net: it leads to no path, and is not followed within a root (openat2(2)).
        Err(Errno::XDEV | Errno::LOOP) => plain(),
        opened => Ok(opened?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::netns::fixture::{TestNetns, needs_root};

    /// A namespace that no test opens.
    const NODE: NetnsId = NetnsId { device: 0, inode: 0 };

    fn open_at(path: &str, node: NetnsId, addresses: &[&str]) -> Result<Netns, SandboxError> {
        let addresses: Vec<_> = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        open_netns(Path::new("/"), path, node, &addresses)
    }

    #[test]
    fn a_namespace_that_owns_one_of_the_addresses_is_taken() {
        needs_root!();
        let netns = TestNetns::new(&["10.9.8.5/32"]);
        let path = format!("/proc/self/fd/{}", netns.fd.as_raw_fd());
        let taken = open_at(&path, NODE, &["10.9.8.5", "fd00::5"]).unwrap();
        assert_eq!(NetnsId::of(&taken).unwrap(), NetnsId::of(&netns.fd).unwrap());
        open_at(&path, NODE, &[]).unwrap();
    }

    #[test]
    fn the_namespace_of_another_pod_and_that_of_the_node_are_not_taken() {
        needs_root!();
        let netns = TestNetns::new(&["10.9.8.5/32"]);
        let path = format!("/proc/self/fd/{}", netns.fd.as_raw_fd());
        let error = open_at(&path, NODE, &["10.9.8.6"]).unwrap_err();
        assert!(matches!(error, SandboxError::Foreign { .. }), "{error}");
        let node = NetnsId::of(&netns.fd).unwrap();
        let error = open_at(&path, node, &["10.9.8.5"]).unwrap_err();
        assert!(matches!(error, SandboxError::Node { .. }), "{error}");
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        let error = open_at("/dev/null", NODE, &[]).unwrap_err();
        assert!(matches!(error, SandboxError::Enter { .. }), "{error}");
    }

    #[test]
    fn the_path_is_looked_for_below_the_root_of_the_node() {
        let folder = tempfile::tempdir().unwrap();
        let error = open_netns(folder.path(), "/run/netns/a", NODE, &[]).unwrap_err();
        let expected = folder.path().join("run/netns/a");
        assert!(
            error
                .to_string()
                .contains(&format!("{}: No such file", expected.display())),
            "{error}"
        );
    }

    #[test]
    fn links_of_the_node_lead_to_the_node() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("run/netns")).unwrap();
        std::fs::create_dir_all(root.path().join("var")).unwrap();
        std::fs::write(root.path().join("run/netns/cni-1"), "").unwrap();
        std::os::unix::fs::symlink("/run", root.path().join("var/run")).unwrap();
        open_file(root.path(), "/var/run/netns/cni-1").unwrap();
        let missing = open_file(root.path(), "/var/run/netns/cni-2").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_namespace_is_found_by_its_process_too() {
        let root = format!("/proc/{}/root", std::process::id());
        let path = format!("/proc/{}/ns/net", std::process::id());
        let opened = open_file(Path::new(&root), &path).unwrap();
        let own = std::fs::File::open("/proc/self/ns/net").unwrap();
        assert_eq!(NetnsId::of(&opened).unwrap(), NetnsId::of(&own).unwrap());
    }
}

//! Where everything is pinned: `<bpffs>/meshgate/v<ABI>/{maps,links/node,links/proxy/<cgroup id>,links/pod/<cookie>}`.
//!
//! A pin keeps a map or link alive when the agent dies; removing the pin of a link detaches it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use agent_common::ABI_VERSION;
use agent_core::entry::NetnsCookie;
use rustix::fs::{FlockOperation, StatFs, flock, statfs};

use crate::sys::bpf;

/// `BPF_FS_MAGIC` (uapi/linux/magic.h).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// The pin folders of one agent.
#[derive(Clone, Debug)]
pub struct Pins {
    bpffs: PathBuf,
    version: u32,
}

/// Why the pins cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PinsError {
    /// There is no bpffs and none can be mounted.
    #[error("no bpffs at {path}: {source}; mount it: mount -t bpf bpf {path}")]
    Mount {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no bpffs, and none is to be mounted.
    #[error(
        "no bpffs at {0}, and mounting one is switched off: mount it on the node (mount -t bpf bpf {0}; chart: \
         mountBpffs=true). Mounted in the agent's container it would go with that, and the capture of all pods with it"
    )]
    NotMounted(PathBuf),
    /// Another agent works on these pins.
    #[error("another agent is running with the pins in {0}; stop it first, or give another --bpffs")]
    Taken(PathBuf),
    /// A folder or pin cannot be made, read or removed.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl Pins {
    /// Pins within this bpffs, or within a folder of one.
    #[must_use]
    pub fn new(bpffs: &Path) -> Self {
        Self {
            bpffs: bpffs.to_owned(),
            version: ABI_VERSION,
        }
    }

    /// Those of another version of the layouts.
    #[must_use]
    pub fn of_version(&self, version: u32) -> Self {
        Self {
            version,
            ..self.clone()
        }
    }

    /// Folder of all versions.
    #[must_use]
    pub fn all_versions(&self) -> PathBuf {
        self.bpffs.join("meshgate")
    }

    /// Folder of this version of the layouts.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.all_versions().join(format!("v{}", self.version))
    }

    /// All links.
    #[must_use]
    pub fn links(&self) -> PathBuf {
        self.root().join("links")
    }

    /// All maps.
    #[must_use]
    pub fn maps(&self) -> PathBuf {
        self.root().join("maps")
    }

    /// A map.
    #[must_use]
    pub fn map(&self, name: &str) -> PathBuf {
        self.maps().join(name)
    }

    /// Links at the node's root cgroup.
    #[must_use]
    pub fn node_links(&self) -> PathBuf {
        self.links().join("node")
    }

    /// Links at proxies' cgroups, a folder for each.
    #[must_use]
    pub fn proxies(&self) -> PathBuf {
        self.links().join("proxy")
    }

    /// Links at one proxy's cgroup.
    #[must_use]
    pub fn proxy_links(&self, cgroup: u64) -> PathBuf {
        self.proxies().join(cgroup.to_string())
    }

    /// Links in pods' network namespaces.
    #[must_use]
    pub fn pod_links(&self) -> PathBuf {
        self.links().join("pod")
    }

    /// The link in one pod's network namespace.
    #[must_use]
    pub fn pod_link(&self, netns: NetnsCookie) -> PathBuf {
        self.pod_links().join(netns.0.to_string())
    }

    /// Mounts the bpffs if there is none and `may_mount`, and makes the folder of all versions. Returns whether it was
    /// mounted.
    ///
    /// # Errors
    /// When there is no bpffs and it cannot be mounted, or the folder cannot be made.
    pub fn prepare(&self, may_mount: bool) -> Result<bool, PinsError> {
        if !may_mount && !is_bpffs(&self.bpffs) {
            return Err(PinsError::NotMounted(self.bpffs.clone()));
        }
        let mounted = self.mount()?;
        make(&self.all_versions())?;
        Ok(mounted)
    }

    /// Makes the folders of this version.
    ///
    /// # Errors
    /// When one cannot be made.
    pub fn make_folders(&self) -> Result<(), PinsError> {
        let folders = [self.maps(), self.node_links(), self.proxies(), self.pod_links()];
        folders.iter().try_for_each(|folder| make(folder))
    }

    /// Keeps other agents, and cleanups, from these pins while the returned file is open; also those with another run dir.
    ///
    /// # Errors
    /// When another has the lock, or there are no pins yet.
    pub fn lock(&self) -> Result<File, PinsError> {
        let folder = self.all_versions();
        let file = File::open(&folder).map_err(io_error("lock", &folder))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(PinsError::Taken(folder)),
            Err(error) => Err(io_error("lock", &folder)(error.into())),
        }
    }

    /// Mounts a bpffs if there is none. Returns whether it was mounted.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn mount(&self) -> Result<bool, PinsError> {
        if is_bpffs(&self.bpffs) {
            return Ok(false);
        }
        let failed = |source: io::Error| PinsError::Mount {
            path: self.bpffs.clone(),
            source,
        };
        std::fs::create_dir_all(&self.bpffs).map_err(failed)?;
        if is_bpffs(&self.bpffs) {
            return Ok(false);
        }
        rustix::mount::mount(
            "bpf",
            &self.bpffs,
            "bpf",
            rustix::mount::MountFlags::empty(),
            None,
        )
        .map_err(|error| failed(error.into()))?;
        Ok(true)
    }
}

fn make(folder: &Path) -> Result<(), PinsError> {
    std::fs::create_dir_all(folder).map_err(io_error("make", folder))
}

/// Whether this path lies on a bpffs.
#[must_use]
pub fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|stat: StatFs| stat.f_type as u64 == BPF_FS_MAGIC)
}

/// Names in a folder of pins; a folder that is not there is empty.
///
/// # Errors
/// When it cannot be read.
pub fn names(folder: &Path) -> Result<Vec<String>, PinsError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("read", folder)(error)),
    };
    let mut names: Vec<String> = entries
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_, _>>()
        .map_err(io_error("read", folder))?;
    names.sort();
    Ok(names)
}

/// Whether this is the pin of a link, by its folder: of a map the kernel tells in the words that it has for links.
#[must_use]
pub fn is_link(pin: &Path) -> bool {
    pin.components().any(|part| part.as_os_str() == "links")
}

/// Removes a pin; one that is not there is fine.
///
/// # Errors
/// When it cannot be removed.
pub fn unpin(path: &Path) -> Result<(), PinsError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("unpin", path)(error)),
        _ => Ok(()),
    }
}

/// Moves all pins below `from` to the same names below `to`, maybe on another bpffs; each is at both for a moment, so that
/// nothing is detached. Returns how many were moved.
///
/// # Errors
/// When one cannot be made.
pub fn move_all(from: &Path, to: &Path) -> Result<usize, PinsError> {
    let mut moved = 0;
    for name in names(from)? {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            make(&to)?;
            moved += move_all(&from, &to)?;
            // One that is not empty has got more meanwhile; that is nobody's concern any more.
            let _ = std::fs::remove_dir(&from);
            continue;
        }
        if !to.exists() {
            let pinned = bpf::get_pinned(&from).map_err(io_error("open", &from))?;
            bpf::pin(pinned, &to).map_err(io_error("pin", &to))?;
            moved += 1;
        }
        unpin(&from)?;
    }
    Ok(moved)
}

/// An error of an operation on a path.
pub fn io_error(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> PinsError {
    let path = path.to_owned();
    move |source| PinsError::Io {
        operation,
        path: path.clone(),
        source,
    }
}

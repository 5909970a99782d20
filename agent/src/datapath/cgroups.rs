//! Cgroups that programs are attached to: opened, told by their id, and looked into.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use agent_core::cgroup_path::pod_folder_uid;

/// `CGROUP2_SUPER_MAGIC` (uapi/linux/magic.h).
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;

/// Opens a cgroup and tells its id: the inode of its folder.
///
/// # Errors
/// When it is not there.
pub(super) fn open_cgroup(path: &Path) -> io::Result<(OwnedFd, u64)> {
    let folder = File::open(path)?;
    if rustix::fs::fstatfs(&folder)?.f_type as u64 != CGROUP2_SUPER_MAGIC {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no folder of cgroup v2",
        ));
    }
    let inode = rustix::fs::fstat(&folder)?.st_ino;
    Ok((folder.into(), inode))
}

/// Whether the cgroups of pods are somewhere below this one.
pub(super) fn holds_pods(cgroup: &Path) -> bool {
    let folders = std::fs::read_dir(cgroup)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    folders
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .any(|entry| {
            pod_folder_uid(&entry.file_name().to_string_lossy()).is_some() || holds_pods(&entry.path())
        })
}

//! The node's cgroup namespace. A container has one of its own on nodes with cgroup v2, and would see the cgroups of other
//! processes as paths that lead out of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Moves this thread, and those that it starts, into the cgroup namespace of process 1. Returns whether it was in another.
///
/// # Errors
/// When process 1 is not to be seen (in a container: hostPID), or without CAP_SYS_ADMIN.
pub fn join(proc_root: &Path) -> io::Result<bool> {
    let (own, node) = (
        File::open("/proc/thread-self/ns/cgroup")?,
        File::open(proc_root.join("1/ns/cgroup"))?,
    );
    let id = |namespace: &File| namespace.metadata().map(|found| (found.dev(), found.ino()));
    if id(&own)? == id(&node)? {
        return Ok(false);
    }
    move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&node),
        Some(LinkNameSpaceType::ControlGroup),
    )?;
    Ok(true)
}

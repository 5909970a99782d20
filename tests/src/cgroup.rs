//! Folders in the cgroup v2 tree: where it is mounted, and how a folder is emptied and removed.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags};

use crate::wait::readable;

/// Where the first file system of this type is mounted, by the text of /proc/self/mounts.
#[must_use]
pub fn mount_of(mounts: &str, kind: &str) -> Option<PathBuf> {
    all_mounts_of(mounts, kind).next()
}

fn all_mounts_of(mounts: &str, kind: &str) -> impl Iterator<Item = PathBuf> {
    mounts.lines().filter_map(move |line| {
        let mut fields = line.split(' ').skip(1);
        let (path, found) = (fields.next()?, fields.next()?);
        (found == kind).then(|| PathBuf::from(path))
    })
}

/// Where the hierarchies of cgroup v1 are mounted, on machines that have some: runtimes make a pod's folder in each.
#[must_use]
pub fn v1_mounts() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    all_mounts_of(&mounts, "cgroup").collect()
}

/// Where cgroup v2 is mounted.
///
/// # Errors
/// When it is not.
pub fn mount() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    mount_of(&mounts, "cgroup2")
        .context("cgroup v2 is not mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")
}

/// Makes a folder and returns its path.
///
/// # Errors
/// What mkdir(2) says.
pub fn create(path: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&path).with_context(|| format!("creating cgroup {}", path.display()))?;
    Ok(path)
}

/// Opens `cgroup.procs` of a folder, for a process to move into it.
///
/// # Errors
/// When the folder is gone.
pub fn entrance(path: &Path) -> Result<OwnedFd> {
    let file = path.join("cgroup.procs");
    let opened = OpenOptions::new().write(true).open(&file);
    Ok(opened
        .with_context(|| format!("opening {}", file.display()))?
        .into())
}

/// Kills every process in a folder and below, waits for their end and removes the folders. One that is gone is fine.
pub fn remove(path: &Path) {
    if path.is_dir() {
        let _ = fs::write(path.join("cgroup.kill"), "1");
        if !wait_until_empty(path) {
            eprintln!("cgroup {} still has processes", path.display());
        }
        remove_folders(path);
    }
}

/// Waits for `populated 0` in cgroup.events, whose changes poll(2) tells (cgroup-v2.rst, "Un-populated Notification").
fn wait_until_empty(path: &Path) -> bool {
    let Ok(mut events) = File::open(path.join("cgroup.events")) else {
        return true;
    };
    loop {
        let mut text = String::new();
        if events
            .rewind()
            .and_then(|()| events.read_to_string(&mut text))
            .is_err()
        {
            return true;
        }
        if text.contains("populated 0") {
            return true;
        }
        let changed = readable(
            &mut [PollFd::new(&events, PollFlags::PRI)],
            Duration::from_secs(5),
        );
        if !matches!(changed, Ok(true)) {
            return false;
        }
    }
}

/// Removes a tree of folders without processes from its leaves up: files in cgroupfs cannot be removed and need not be.
pub fn remove_folders(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_folders(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_type() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount_of(mounts, "cgroup2"), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_of(mounts, "bpf"), None);
        let v1: Vec<_> = all_mounts_of(mounts, "cgroup").collect();
        assert_eq!(v1, [PathBuf::from("/sys/fs/cgroup/cpu")]);
        assert_eq!(
            mount_of("none /elsewhere cgroup2\n", "cgroup2"),
            Some("/elsewhere".into())
        );
    }
}

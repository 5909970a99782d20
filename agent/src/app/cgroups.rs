//! Notices that the cgroup of a proxy is removed, so that what was attached there does not wait for the next proxy.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// The folders above the proxies' cgroups. A cgroup's own removal is told in the folder above it, and only there.
pub(super) struct Cgroups {
    inotify: AsyncFd<OwnedFd>,
    parents: HashMap<i32, PathBuf>,
    watched: HashSet<PathBuf>,
}

impl Cgroups {
    /// Watches nothing yet. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the user has too many inotify instances (`fs.inotify.max_user_instances`).
    #[expect(
        deprecated,
        reason = "its successor is unsafe for types whose descriptor may change; this one cannot"
    )]
    pub(super) fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self {
            inotify: AsyncFd::new(inotify)?,
            parents: HashMap::new(),
            watched: HashSet::new(),
        })
    }

    /// Watches a cgroup from now on; false when it is gone already.
    pub(super) fn watch(&mut self, cgroup: &Path) -> bool {
        let Some(parent) = cgroup.parent() else {
            return true;
        };
        let flags = WatchFlags::DELETE | WatchFlags::ONLYDIR;
        if let Ok(descriptor) = inotify::add_watch(self.inotify.get_ref(), parent, flags) {
            self.parents.insert(descriptor, parent.to_owned());
            self.watched.insert(cgroup.to_owned());
        }
        cgroup.exists()
    }

    /// Waits until a watched cgroup is gone.
    ///
    /// # Errors
    /// When inotify cannot be read.
    pub(super) async fn gone(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.inotify.readable().await?;
            let removed = removals(ready.get_inner(), &self.parents)?;
            ready.clear_ready();
            let before = self.watched.len();
            self.watched.retain(|cgroup| !removed.contains(cgroup));
            if self.watched.len() < before {
                return Ok(());
            }
        }
    }
}

/// Takes all events that are there: the folders that were removed.
fn removals(inotify: &OwnedFd, parents: &HashMap<i32, PathBuf>) -> io::Result<HashSet<PathBuf>> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(inotify, &mut buffer);
    let mut removed = HashSet::new();
    loop {
        match events.next() {
            Ok(event) if event.events().contains(ReadFlags::DELETE) => {
                let name = event.file_name().map(CStr::to_bytes).unwrap_or_default();
                let parent = parents.get(&event.wd());
                removed.extend(parent.map(|parent| parent.join(OsStr::from_bytes(name))));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(removed),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_removal_of_a_watched_folder_is_told() {
        let root = tempfile::tempdir().unwrap();
        let (proxy, other) = (root.path().join("proxy"), root.path().join("other"));
        std::fs::create_dir(&proxy).unwrap();
        std::fs::create_dir(&other).unwrap();
        let mut cgroups = Cgroups::new().unwrap();
        assert!(cgroups.watch(&proxy));
        assert!(!cgroups.watch(&root.path().join("never")));
        std::fs::remove_dir(&other).unwrap();
        std::fs::remove_dir(&proxy).unwrap();
        cgroups.gone().await.unwrap();
        assert!(!cgroups.watched.contains(&proxy));
    }
}

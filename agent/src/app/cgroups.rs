//! Notices that the cgroup of a proxy is removed, so that what was attached there does not wait for the next proxy.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{ReadFlags, WatchFlags};

use crate::inotify::{Change, Inotify};

/// The folders above the proxies' cgroups. A cgroup's own removal is told in the folder above it, and only there.
pub(super) struct Cgroups {
    inotify: Inotify,
    parents: HashMap<i32, PathBuf>,
    watched: HashSet<PathBuf>,
}

impl Cgroups {
    /// Watches nothing yet. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// As [`Inotify::new`].
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            inotify: Inotify::new()?,
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
        if let Ok(descriptor) = self.inotify.watch(parent, flags) {
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
            let before = self.watched.len();
            let (parents, watched) = (&self.parents, &mut self.watched);
            let removed = |change: Change<'_>| {
                if let (true, Some(parent), Some(name)) = (
                    change.events.contains(ReadFlags::DELETE),
                    parents.get(&change.watch),
                    change.name,
                ) {
                    watched.remove(&parent.join(OsStr::from_bytes(name)));
                }
            };
            self.inotify.changes(removed).await?;
            if self.watched.len() < before {
                return Ok(());
            }
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

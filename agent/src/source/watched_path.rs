//! inotify on everything that decides what a path holds: each folder on the way to it, each symbolic link and what it
//! points to. So a file that is renamed into place, a folder that is replaced and the `..data` link of a mounted
//! ConfigMap are all noticed, and reading the files wakes nobody.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::time::{Instant, timeout_at};

use crate::inotify::{Change, Inotify};

/// A burst of changes is over when it was quiet for so long: editors write twice.
const QUIET: Duration = Duration::from_millis(50);
/// A burst that does not end is read in between, so that a busy writer cannot hide it.
const LONGEST_BURST: Duration = Duration::from_millis(500);
/// Symbolic links that are followed on the way to one file, as the kernel does (path_resolution(7)).
const LINKS: usize = 40;

/// Writing counts when the file is closed: what is half written is not worth reading.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE);
/// On the way to the path only the names in a folder matter; /tmp or /var/run are written to all the time.
const NAMES_ONLY: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE);
/// For every folder. A file's own folder may also be on the way, so that flags add up.
const ALWAYS: WatchFlags = WatchFlags::ONLYDIR
    .union(WatchFlags::MASK_ADD)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// Names in a watched folder that matter.
#[derive(Debug, PartialEq)]
enum Names {
    All,
    These(BTreeSet<OsString>),
}

/// Watched folders by watch descriptor.
type Watched = HashMap<i32, Names>;

/// One inotify instance and what it watches.
pub(super) struct PathWatch {
    inotify: Inotify,
    watched: Watched,
}

impl PathWatch {
    /// Watches nothing yet. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// As [`Inotify::new`].
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            inotify: Inotify::new()?,
            watched: Watched::new(),
        })
    }

    /// Begins to look at paths; what it looks at is watched from then on, and only that after [`Self::settle`].
    pub(super) fn survey(&self) -> Survey {
        Survey {
            inotify: Arc::clone(self.inotify.descriptor()),
            watched: Watched::new(),
        }
    }

    /// From now on what the survey looked at is watched.
    pub(super) fn settle(&mut self, survey: Survey) {
        for descriptor in self
            .watched
            .keys()
            .filter(|descriptor| !survey.watched.contains_key(descriptor))
        {
            // Fails for a folder that is gone, whose watch the kernel removed.
            let _ = inotify::remove_watch(self.inotify.descriptor(), *descriptor);
        }
        self.watched = survey.watched;
    }

    /// Waits for a burst of changes and for its end.
    ///
    /// # Errors
    /// When inotify cannot be read.
    pub(super) async fn changed(&self) -> io::Result<()> {
        self.change().await?;
        let latest = Instant::now() + LONGEST_BURST;
        while Instant::now() < latest {
            match timeout_at(latest.min(Instant::now() + QUIET), self.change()).await {
                Ok(change) => change?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    async fn change(&self) -> io::Result<()> {
        let mut relevant = false;
        while !relevant {
            let tell =
                |change: Change<'_>| relevant |= self.matters(change.watch, change.events, change.name);
            self.inotify.changes(tell).await?;
        }
        Ok(())
    }

    fn matters(&self, descriptor: i32, events: ReadFlags, name: Option<&[u8]>) -> bool {
        // After an overflow anything may have happened.
        events.contains(ReadFlags::QUEUE_OVERFLOW)
            || match (self.watched.get(&descriptor), name) {
                (Some(Names::These(names)), Some(name)) => names.contains(OsStr::from_bytes(name)),
                (Some(_), _) => true,
                (None, _) => false,
            }
    }
}

/// A look at paths that watches what it depends on. Each folder is watched before it is looked into, so that nothing
/// can change unnoticed in between.
pub(super) struct Survey {
    inotify: Arc<OwnedFd>,
    watched: Watched,
}

impl Survey {
    /// Follows a path, link by link, to where it really is.
    ///
    /// # Errors
    /// When it does not exist or cannot be watched; what there is of the way to it is watched all the same.
    pub(super) fn locate(&mut self, path: &Path) -> io::Result<PathBuf> {
        let mut here = PathBuf::from("/");
        let mut ahead = parts(&std::path::absolute(path)?);
        let mut links = 0;
        while let Some(name) = ahead.pop_front() {
            if name == ".." {
                here.pop();
                continue;
            }
            self.watch(
                &here,
                Some(&name),
                if ahead.is_empty() { CHANGES } else { NAMES_ONLY },
            )?;
            let next = here.join(&name);
            if !fs::symlink_metadata(&next)?.is_symlink() {
                here = next;
                continue;
            }
            links += 1;
            if links > LINKS {
                return Err(Errno::LOOP.into());
            }
            let target = fs::read_link(&next)?;
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            for part in parts(&target).into_iter().rev() {
                ahead.push_front(part);
            }
        }
        Ok(here)
    }

    /// The names in a folder, which must be where it really is.
    ///
    /// # Errors
    /// When it cannot be watched or listed.
    pub(super) fn names(&mut self, folder: &Path) -> io::Result<Vec<OsString>> {
        self.watch(folder, None, CHANGES)?;
        fs::read_dir(folder)?
            .map(|entry| Ok(entry?.file_name()))
            .collect()
    }

    /// Watches one name in a folder, or all.
    fn watch(&mut self, folder: &Path, name: Option<&OsStr>, what: WatchFlags) -> io::Result<()> {
        let descriptor =
            inotify::add_watch(&self.inotify, folder, what | ALWAYS).map_err(|error| match error {
                Errno::NOSPC => {
                    io::Error::other("too many inotify watches; raise sysctl fs.inotify.max_user_watches")
                }
                other => other.into(),
            })?;
        let names = self
            .watched
            .entry(descriptor)
            .or_insert_with(|| Names::These(BTreeSet::new()));
        match (names, name) {
            (Names::These(names), Some(name)) => {
                names.insert(name.to_owned());
            }
            (names, None) => *names = Names::All,
            (Names::All, Some(_)) => {}
        }
        Ok(())
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

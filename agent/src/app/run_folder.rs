//! Keeps what is in the run folder of a running agent: its lock, the mark that it is ready, and its account.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use rustix::fs::inotify::WatchFlags;
use tokio::sync::Notify;

use crate::inotify::Inotify;
use crate::lock::{self, Lock, LockError};
use crate::ops::Readiness;
use crate::report;

/// Pause after an error.
const RETRY: Duration = Duration::from_secs(1);
/// What takes something away.
const CHANGES: WatchFlags = WatchFlags::DELETE
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// The folder, while this agent has it.
pub(super) struct RunFolder {
    path: PathBuf,
    lock: Lock,
}

impl RunFolder {
    /// Takes the lock.
    pub(super) fn take(path: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            lock: lock::acquire(path)?,
        })
    }

    /// Makes again what somebody removes, for ever; `account` is told when that is to be written again.
    ///
    /// # Errors
    /// When another agent has taken the folder meanwhile.
    pub(super) async fn keep(mut self, readiness: &Readiness, account: &Notify) -> anyhow::Result<()> {
        loop {
            match self.look(readiness, account) {
                Ok(changes) => removal(&changes).await?,
                Err(error) if matches!(error.downcast_ref(), Some(LockError::Taken(_))) => return Err(error),
                Err(error) => {
                    // The folder went again, or the disk is full.
                    tracing::warn!("keeping the run folder, trying again: {error:#}");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Makes what is missing; what changes afterwards is told by the watch.
    fn look(&mut self, readiness: &Readiness, account: &Notify) -> anyhow::Result<Inotify> {
        if !self.lock.is_in_place(&self.path) {
            self.lock = lock::acquire(&self.path)?;
            tracing::warn!(folder = %self.path.display(), "the lock in the run folder was removed: it is there again");
        }
        let changes = Inotify::new()?;
        changes.watch(&self.path, CHANGES)?;
        if readiness.holds("watch") && !ready(&self.path).exists() {
            mark_ready(&self.path)?;
        }
        if !report::path(&self.path).exists() {
            account.notify_one();
        }
        Ok(changes)
    }
}

/// Waits until something is removed; the account is renamed each time that it is written.
async fn removal(changes: &Inotify) -> io::Result<()> {
    let own = report::unfinished(Path::new(""));
    let own = own.as_os_str().as_encoded_bytes();
    let mut is_removed = false;
    while !is_removed {
        changes
            .changes(|change| is_removed |= change.name != Some(own))
            .await?;
    }
    Ok(())
}

fn ready(folder: &Path) -> PathBuf {
    folder.join("ready")
}

/// Marks that all pods of the node are known.
pub(super) fn mark_ready(folder: &Path) -> anyhow::Result<()> {
    let ready = ready(folder);
    std::fs::write(&ready, []).with_context(|| format!("writing {}", ready.display()))
}

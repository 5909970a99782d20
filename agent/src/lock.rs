//! One agent for each run dir: `<run dir>/agent.lock`, held by flock(2), so that it is free when the agent is dead.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// The lock; free again when dropped.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Whether the locked file is the one that others find: not, when somebody removed it.
    #[must_use]
    pub fn is_in_place(&self, run_dir: &Path) -> bool {
        let identity = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let there = std::fs::metadata(path(run_dir)).map(identity);
        matches!((self.0.metadata().map(identity), there), (Ok(ours), Ok(there)) if ours == there)
    }
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent runs.
    #[error("another agent is running with {0}; stop it first, or give another --run-dir and --bpffs")]
    Taken(PathBuf),
    /// The folder cannot be written.
    #[error("cannot lock {path}: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Takes the lock.
///
/// # Errors
/// When another agent has it.
pub fn acquire(run_dir: &Path) -> Result<Lock, LockError> {
    let path = path(run_dir);
    let failed = |source: io::Error| LockError::Io {
        path: path.clone(),
        source,
    };
    std::fs::create_dir_all(run_dir).map_err(failed)?;
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LockError::Taken(run_dir.to_owned())),
        Err(error) => Err(failed(error.into())),
    }
}

/// Whether an agent runs with this run dir.
#[must_use]
pub fn is_held(run_dir: &Path) -> bool {
    let Ok(file) = File::open(path(run_dir)) else {
        return false;
    };
    matches!(
        flock(&file, FlockOperation::NonBlockingLockShared),
        Err(rustix::io::Errno::WOULDBLOCK)
    )
}

/// The lock file.
#[must_use]
pub fn path(run_dir: &Path) -> PathBuf {
    run_dir.join("agent.lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_holds_it_and_it_is_free_after_that_one() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_held(folder.path()));
        let lock = acquire(folder.path()).unwrap();
        assert!(is_held(folder.path()));
        assert!(matches!(acquire(folder.path()), Err(LockError::Taken(_))));
        drop(lock);
        assert!(!is_held(folder.path()));
        acquire(folder.path()).unwrap();
    }
}

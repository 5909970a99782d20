//! Waiting for what is awaited, not for a time: for files by inotify; by asking again only where nobody tells.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

/// How long a fixture waits for something that should take milliseconds, on a real processor: see [`patient`].
pub const LIMIT: Duration = Duration::from_secs(20);
/// Variable with the factor by which an emulated processor is slower.
const SLOWER: &str = "MESHGATE_SLOWER";

/// This limit, on the processor that is there.
///
/// An emulated one is some ten times slower, and nothing else is the matter with it.
#[must_use]
pub fn patient(limit: Duration) -> Duration {
    let factor = std::env::var(SLOWER).ok().and_then(|factor| factor.parse().ok());
    limit * factor.unwrap_or(1)
}

/// Calls `check` until it returns a value: at once, and after each change in the folder of `file`. `also` wakes it too
/// (a pidfd, so that a process which died is noticed).
///
/// # Errors
/// When `check` fails or [`LIMIT`] passes; `what` names what was awaited.
pub fn for_file<T>(
    file: &Path,
    also: Option<BorrowedFd<'_>>,
    what: &str,
    mut check: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let folder = file.parent().context("a file without a folder")?;
    let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let changes = WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MOVED_TO
        | WatchFlags::MODIFY
        | WatchFlags::CLOSE_WRITE;
    add_watch(&inotify, folder, changes).with_context(|| format!("watching {}", folder.display()))?;
    let limit = patient(LIMIT);
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = check()? {
            return Ok(value);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("waited {limit:?} for {what}");
        }
        wake(&inotify, also, left)?;
    }
}

/// Calls `check` until it returns a value, for what the kernel or a server tells nobody: the state of a socket, a setting
/// of a network namespace, a server that is ready.
///
/// # Errors
/// When `check` fails or `limit` passes; `what` names what was awaited.
pub fn asking<T>(limit: Duration, what: &str, mut check: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let limit = patient(limit);
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = check()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            bail!("waited {limit:?} for {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Blocks until the folder changed, `also` is readable, or the time is over.
fn wake(inotify: &OwnedFd, also: Option<BorrowedFd<'_>>, left: Duration) -> Result<()> {
    let mut fds = vec![PollFd::new(inotify, PollFlags::IN)];
    fds.extend(also.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
    readable(&mut fds, left)?;
    let mut events = [0_u8; 4096];
    while rustix::io::read(inotify, &mut events).is_ok() {}
    Ok(())
}

/// poll(2) with a time limit; true if something happened.
///
/// # Errors
/// What poll(2) says, other than an interruption.
pub fn readable(fds: &mut [PollFd<'_>], limit: Duration) -> Result<bool> {
    let limit = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    match poll(fds, Some(&limit)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("poll"),
    }
}

//! Notices that a mount was made or taken away: proc_pid_mountinfo(5) can be polled for that.

use std::fs::File;
use std::io;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The mounts of this process.
pub(super) struct Mounts(AsyncFd<File>);

impl Mounts {
    /// As they are now. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When /proc cannot be read.
    #[expect(
        deprecated,
        reason = "its successor is unsafe for types whose descriptor may change; this one cannot"
    )]
    pub(super) fn open() -> io::Result<Self> {
        let mounts = File::open("/proc/self/mountinfo")?;
        AsyncFd::with_interest(mounts, Interest::PRIORITY).map(Self)
    }

    /// Waits until one comes or goes.
    ///
    /// # Errors
    /// When they cannot be awaited.
    pub(super) async fn changed(&self) -> io::Result<()> {
        self.0.ready(Interest::PRIORITY).await?.clear_ready();
        Ok(())
    }
}

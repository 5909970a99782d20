//! inotify(7) in a tokio runtime: folders are watched, and their changes awaited.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

/// One inotify instance.
#[derive(Debug)]
pub struct Inotify(AsyncFd<Arc<OwnedFd>>);

/// One change.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Descriptor of the watch.
    pub watch: i32,
    /// What happened.
    pub events: ReadFlags,
    /// In a folder: the name that it happened to.
    pub name: Option<&'a [u8]>,
}

impl Inotify {
    /// Watches nothing yet. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the user has too many inotify instances (`fs.inotify.max_user_instances`).
    #[expect(
        deprecated,
        reason = "its successor is unsafe for types whose descriptor may change; this one cannot"
    )]
    pub fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self(AsyncFd::new(Arc::new(inotify))?))
    }

    /// Watches a path; returns the watch's descriptor.
    ///
    /// # Errors
    /// When it is not there, or there are too many watches.
    pub fn watch(&self, path: &Path, events: WatchFlags) -> io::Result<i32> {
        Ok(inotify::add_watch(self.0.get_ref(), path, events)?)
    }

    /// The descriptor, for who watches and unwatches by it.
    #[must_use]
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        self.0.get_ref()
    }

    /// Waits until something happened, and tells all that did.
    ///
    /// # Errors
    /// When inotify cannot be read.
    pub async fn changes(&self, mut tell: impl FnMut(Change<'_>)) -> io::Result<()> {
        let mut ready = self.0.readable().await?;
        self.drain(&mut tell)?;
        ready.clear_ready();
        Ok(())
    }

    fn drain(&self, tell: &mut impl FnMut(Change<'_>)) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(self.0.get_ref(), &mut buffer);
        loop {
            match events.next() {
                Ok(event) => tell(Change {
                    watch: event.wd(),
                    events: event.events(),
                    name: event.file_name().map(CStr::to_bytes),
                }),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

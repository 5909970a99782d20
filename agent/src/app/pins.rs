//! Notices that somebody removes pins of a running agent, which detaches what they hold.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use crate::datapath::pins::{Pins, names};
use crate::enrol::Handle;

/// Removals within this time are looked at once: pods that leave remove their pins too.
const TOGETHER: Duration = Duration::from_millis(20);

/// Lets the worker look at the pins after each removal; returns when the worker has ended.
pub(super) async fn watch(bpffs: &Path, handle: &Handle) {
    let failed = |error: io::Error| {
        tracing::warn!("pins that somebody removes are made again at the next start only: {error}");
    };
    match follow(&Pins::new(bpffs), handle).await {
        Ok(()) => {}
        Err(error) => {
            failed(error);
            std::future::pending::<()>().await;
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for types whose descriptor may change; this one cannot"
)]
async fn follow(pins: &Pins, handle: &Handle) -> io::Result<()> {
    let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let inotify = AsyncFd::new(inotify)?;
    loop {
        // Again each time: the repair makes folders that were removed as a whole, and proxies bring theirs.
        for folder in folders(pins) {
            let more = if folder == pins.proxies() {
                WatchFlags::CREATE
            } else {
                WatchFlags::empty()
            };
            let flags = WatchFlags::DELETE | WatchFlags::ONLYDIR | more;
            match inotify::add_watch(inotify.get_ref(), &folder, flags) {
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut ready = inotify.readable().await?;
        drain(ready.get_inner())?;
        ready.clear_ready();
        tokio::time::sleep(TOGETHER).await;
        if handle.look_at_pins().await.is_err() {
            return Ok(());
        }
    }
}

/// The folders that pins are in, and those above them.
fn folders(pins: &Pins) -> Vec<PathBuf> {
    let proxies = names(&pins.proxies()).unwrap_or_default();
    let proxies = proxies.into_iter().map(|proxy| pins.proxies().join(proxy));
    let fixed = [
        pins.all_versions(),
        pins.root(),
        pins.maps(),
        pins.links(),
        pins.node_links(),
        pins.pod_links(),
        pins.proxies(),
    ];
    fixed.into_iter().chain(proxies).collect()
}

/// Takes all events that are there: what happened is seen by looking.
fn drain(inotify: &OwnedFd) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(inotify, &mut buffer);
    loop {
        match events.next() {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

//! Notices that somebody removes pins of a running agent, which detaches what they hold.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::WatchFlags;

use super::mounts::Mounts;
use crate::datapath::pins::{Pins, names};
use crate::enrol::{Handle, Stopped};
use crate::inotify::Inotify;
use crate::ops::Condition;

/// Removals within this time are looked at once: pods that leave remove their pins too.
const TOGETHER: Duration = Duration::from_millis(20);

/// Pause after a repair that failed: not everything that may end the cause is told.
const RETRY: Duration = Duration::from_secs(5);

/// Lets the worker look at the pins after each removal, and tells whether they are there; returns when the worker has
/// ended.
pub(super) async fn watch(bpffs: &Path, handle: &Handle, condition: &Condition) {
    condition.holds();
    if let Err(error) = follow(&Pins::new(bpffs), handle, condition).await {
        tracing::warn!("pins that somebody removes are made again at the next start only: {error}");
        std::future::pending::<()>().await;
    }
}

async fn follow(pins: &Pins, handle: &Handle, condition: &Condition) -> io::Result<()> {
    let inotify = Inotify::new()?;
    let mounts = Mounts::open()?;
    let mut retry = None;
    loop {
        let before = place(pins);
        // Again each time: the repair makes folders that were removed as a whole, and proxies bring theirs.
        for folder in folders(pins) {
            let more = if folder == pins.proxies() {
                WatchFlags::CREATE
            } else {
                WatchFlags::empty()
            };
            match inotify.watch(&folder, WatchFlags::DELETE | WatchFlags::ONLYDIR | more) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // What happened is seen by looking.
        tokio::select! {
            changed = inotify.changes(|_| ()) => changed?,
            changed = moved(&mounts, pins, before) => changed?,
            () = after(retry) => {}
        }
        tokio::time::sleep(TOGETHER).await;
        retry = match handle.look_at_pins().await {
            Err(Stopped) => return Ok(()),
            Ok(Ok(())) => {
                condition.holds();
                None
            }
            Ok(Err(error)) => {
                tracing::error!("{error}");
                condition.lacks(&error.to_string());
                Some(RETRY)
            }
        };
    }
}

/// Device and inode of the pins' folder; a bpffs that is mounted anew, or is not there, has another.
fn place(pins: &Pins) -> Option<(u64, u64)> {
    let folder = std::fs::metadata(pins.all_versions()).ok()?;
    Some((folder.dev(), folder.ino()))
}

/// Waits until the pins' folder is another.
async fn moved(mounts: &Mounts, pins: &Pins, before: Option<(u64, u64)>) -> io::Result<()> {
    while place(pins) == before {
        mounts.changed().await?;
    }
    Ok(())
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
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

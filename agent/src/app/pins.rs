//! Notices that somebody removes pins of a running agent, which detaches what they hold.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::WatchFlags;

use crate::datapath::pins::{Pins, names};
use crate::enrol::Handle;
use crate::inotify::Inotify;

/// Removals within this time are looked at once: pods that leave remove their pins too.
const TOGETHER: Duration = Duration::from_millis(20);

/// Lets the worker look at the pins after each removal; returns when the worker has ended.
pub(super) async fn watch(bpffs: &Path, handle: &Handle) {
    if let Err(error) = follow(&Pins::new(bpffs), handle).await {
        tracing::warn!("pins that somebody removes are made again at the next start only: {error}");
        std::future::pending::<()>().await;
    }
}

async fn follow(pins: &Pins, handle: &Handle) -> io::Result<()> {
    let inotify = Inotify::new()?;
    loop {
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
        inotify.changes(|_| ()).await?;
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

//! Network namespaces by their cookie, among those of all processes and mounts: for cleaning up when nobody of ours holds
//! them open.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::sync::Arc;

use crate::netns::enter::cookie;
use crate::ports::Netns;

/// Opens the namespaces with these cookies; those that no process is in and nobody has mounted are gone.
///
/// # Errors
/// When /proc cannot be read.
pub fn find(cookies: &[u64]) -> io::Result<Vec<Netns>> {
    let (mut wanted, mut seen) = (BTreeSet::from_iter(cookies), BTreeSet::new());
    let mut found = Vec::new();
    if wanted.is_empty() {
        return Ok(found);
    }
    let processes = fs::read_dir("/proc")?
        .filter_map(Result::ok)
        .map(|process| process.path().join("ns/net"));
    // Container runtimes and `ip netns` hold namespaces by mounts there, also without a process.
    let mounts = fs::read_dir("/var/run/netns")
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    for path in processes.chain(mounts.map(|mount| mount.path())) {
        let Ok(file) = File::open(path) else { continue };
        let Ok(stat) = rustix::fs::fstat(&file) else {
            continue;
        };
        if !seen.insert(stat.st_ino) {
            continue;
        }
        let Ok(cookie) = cookie(&file) else { continue };
        if wanted.remove(&cookie.0) {
            found.push(Netns {
                fd: Arc::new(file.into()),
                cookie,
            });
        }
    }
    Ok(found)
}

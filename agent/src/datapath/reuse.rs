//! Ports of the proxy's connections to an IPv6 application: `tcp_tw_reuse` of the pod's network namespace.
//!
//! These connections come from the pod's own address (`packet_source` in the programs says why), and the kernel's
//! default lets only loopback addresses use a port in TIME_WAIT again after a second (ip-sysctl). With the default, a
//! pod's IPv6 port would take about 470 short connections a second.

use std::io;
use std::os::fd::AsFd;

use crate::netns::enter::enter;

/// 0 never, 1 always when safe (by timestamps), 2 for loopback only.
const SETTING: &str = "/proc/sys/net/ipv4/tcp_tw_reuse";

/// Sets it to 1 where it is 2; returns whether it was changed.
///
/// # Errors
/// When the namespace cannot be entered or /proc/sys cannot be written.
pub fn add(netns: impl AsFd) -> io::Result<bool> {
    replace(netns, "2", "1")
}

/// Sets it back to 2 where it is 1.
///
/// # Errors
/// As [`add`].
pub fn remove(netns: impl AsFd) -> io::Result<bool> {
    replace(netns, "1", "2")
}

fn replace(netns: impl AsFd, from: &str, to: &str) -> io::Result<bool> {
    enter(netns, || {
        let is = std::fs::read_to_string(SETTING)?;
        if is.trim() != from {
            return Ok(false);
        }
        std::fs::write(SETTING, to).map(|()| true)
    })
    .map_err(io::Error::other)?
}

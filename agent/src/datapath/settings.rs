//! Settings of a pod's network namespace (ip-sysctl) that capture needs, as a table: what, from, to, and why.

use std::io;

use agent_common::pod::changed::{MIGRATE, TW_REUSE, WIRE};

/// Settings of network namespaces in this process' /proc. In containers that are not privileged they are read-only.
const OWN: &str = "/proc/sys/net";
/// The same in the node's /proc, as Istio's DaemonSet mounts it.
const OF_NODE: &str = "/host/proc/sys/net";

/// One setting.
struct Setting {
    /// Bit of [`agent_common::pod::changed`] that it goes with.
    bit: u32,
    /// File under /proc/sys/net.
    name: &'static str,
    /// Its value without us; with any other value it is left alone.
    from: &'static str,
    /// Its value with us.
    to: &'static str,
}

const fn setting(bit: u32, name: &'static str, from: &'static str, to: &'static str) -> Setting {
    Setting { bit, name, from, to }
}

/// All settings.
const SETTINGS: [Setting; 5] = [
    // When the older of two proxies closes its listener, the connections that it has not accepted yet go to the other.
    setting(MIGRATE, "ipv4/tcp_migrate_req", "0", "1"),
    // The proxy's connections to an IPv6 application come from the pod's own address (`packet_source` in the programs
    // says why). By default only loopback addresses may use a port in TIME_WAIT again after a second: a pod's IPv6 port
    // would take about 470 short connections a second.
    setting(TW_REUSE, "ipv4/tcp_tw_reuse", "2", "1"),
    // The application's answers, and the resets of closed ports, carry the mark of what they answer.
    setting(WIRE, "ipv4/tcp_fwmark_accept", "0", "1"),
    setting(WIRE, "ipv4/fwmark_reflect", "0", "1"),
    setting(WIRE, "ipv6/fwmark_reflect", "0", "1"),
];

/// Makes the changes with these bits in the namespace that this thread is in; settings that the kernel lacks are left
/// out. Returns the bits of settings that were changed.
///
/// # Errors
/// When /proc/sys cannot be read or written.
pub fn make(bits: u32) -> io::Result<u32> {
    each(bits, |setting| replace(setting.name, setting.from, setting.to))
}

/// Undoes the changes with these bits.
///
/// # Errors
/// As [`make`].
pub fn undo(bits: u32) -> io::Result<u32> {
    each(bits, |setting| replace(setting.name, setting.to, setting.from))
}

fn each(bits: u32, change: impl Fn(&Setting) -> io::Result<bool>) -> io::Result<u32> {
    let mut changed = 0;
    for setting in SETTINGS.iter().filter(|setting| setting.bit & bits != 0) {
        if change(setting)? {
            changed |= setting.bit;
        }
    }
    Ok(changed)
}

fn replace(name: &str, from: &str, to: &str) -> io::Result<bool> {
    let path = format!("{OWN}/{name}");
    let failed = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("{path}: {error}; the agent needs a writable /proc/sys, or one at {OF_NODE}"),
        )
    };
    match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(error)),
        Ok(is) if is.trim() != from => Ok(false),
        Ok(_) => write(name, to).map(|()| true).map_err(failed),
    }
}

/// Whichever /proc it is, the settings are those of the namespace that this thread is in.
fn write(name: &str, value: &str) -> io::Result<()> {
    match std::fs::write(format!("{OWN}/{name}"), value) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            std::fs::write(format!("{OF_NODE}/{name}"), value).map_err(|_| error)
        }
        done => done,
    }
}

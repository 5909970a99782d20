//! Listeners of a proxy that are older than its programs: taken from the proxy's process and put in `LISTENERS`.
//!
//! New listeners come there in the kernel, by `proxy_sockets`. Here pidfd_getfd(2) gives us the proxy's own sockets;
//! the copies are closed again, the map does not hold a listener open.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use agent_common::flow::ListenerKey;
use agent_common::limits::LISTENER_SLOTS;
use agent_common::ports;
use aya::maps::{HashMap, MapData};
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::sys::socket;

/// The map.
type Listeners = HashMap<MapData, ListenerKey, u64>;

/// `BPF_NOEXIST`: make, do not replace.
const NOEXIST: u64 = 1;

/// Registers the inbound listeners of a process, in all network namespaces; returns how many were new.
///
/// # Errors
/// When the process cannot be read; a descriptor that goes away meanwhile is passed over.
pub fn adopt(map: &mut Listeners, pid: u32, proc_root: &Path) -> io::Result<usize> {
    let mut adopted = 0;
    for listener in listeners(pid, proc_root)? {
        // So that an application on a port of the proxy's connections can start again; children inherit it.
        sockopt::set_socket_reuseaddr(&listener, true)?;
        let local = SocketAddr::try_from(rustix::net::getsockname(&listener)?)?;
        if local.port() == ports::INBOUND && register(map, &listener)? {
            adopted += 1;
        }
    }
    Ok(adopted)
}

/// Puts a listener in the first free slot, unless it has one.
fn register(map: &mut Listeners, listener: &OwnedFd) -> io::Result<bool> {
    let cookie = sockopt::socket_cookie(listener)?;
    let netns = socket::netns_cookie(listener)?;
    let slots = (0..LISTENER_SLOTS).map(|slot| ListenerKey {
        netns,
        slot,
        reserved: 0,
    });
    let (mut taken, mut free) = (Vec::new(), None);
    for key in slots {
        match map.get(&key, 0) {
            Ok(cookie) => taken.push(cookie),
            Err(_) => free = free.or(Some(key)),
        }
    }
    match free {
        Some(key) if !taken.contains(&cookie) => {
            let descriptor = listener.as_raw_fd() as u64;
            map.insert(key, descriptor, NOEXIST).map_err(io::Error::other)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Our copies of a process' TCP listeners.
fn listeners(pid: u32, proc_root: &Path) -> io::Result<Vec<OwnedFd>> {
    let process = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd = pidfd_open(process, PidfdFlags::empty())?;
    let mut found = Vec::new();
    for entry in fs::read_dir(proc_root.join(pid.to_string()).join("fd"))? {
        let entry = entry?;
        let is_socket =
            fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let Some(number) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .filter(|_| is_socket)
        else {
            continue;
        };
        let Ok(copy) = pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) else {
            continue;
        };
        if is_tcp_listener(&copy) {
            found.push(copy);
        }
    }
    Ok(found)
}

fn is_tcp_listener(fd: &OwnedFd) -> bool {
    sockopt::socket_protocol(fd).is_ok_and(|protocol| protocol == Some(rustix::net::ipproto::TCP))
        && sockopt::socket_acceptconn(fd).unwrap_or(false)
}

//! System calls that no safe library offers: the only `unsafe` of this crate.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub mod bpf;

/// Moves the process that `command` starts into a network namespace, and into a cgroup by its open `cgroup.procs`.
pub fn enter_on_exec(command: &mut Command, netns: OwnedFd, cgroup: Option<OwnedFd>) {
    let enter = move || {
        if let Some(procs) = &cgroup {
            rustix::io::write(procs, b"0")?;
        }
        move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec and makes two plain system calls on descriptors that it owns; it
    // neither allocates nor locks.
    unsafe {
        command.pre_exec(enter);
    }
}

/// Moves the process that `command` starts into a mount namespace.
pub fn enter_mounts_on_exec(command: &mut Command, mounts: OwnedFd) {
    let enter = move || {
        Ok(move_into_link_name_space(
            mounts.as_fd(),
            Some(LinkNameSpaceType::Mount),
        )?)
    };
    // SAFETY: the closure runs between fork and exec and makes one plain system call on a descriptor that it owns; it
    // neither allocates nor locks.
    unsafe {
        command.pre_exec(enter);
    }
}

/// Has `work` called when this process exits by itself (atexit(3)): statics are not dropped then.
pub fn at_exit(work: extern "C" fn()) {
    // SAFETY: `work` is a function of this program, which is there to its end. It fails when memory ran out only.
    unsafe {
        libc::atexit(work);
    }
}

/// Sets a socket option that is an int.
///
/// # Errors
/// What setsockopt(2) says.
pub fn set_option(socket: impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `fd` is open while it is borrowed, and the pointer and length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Binds a socket to a network device (`SO_BINDTODEVICE`, socket(7)).
///
/// # Errors
/// What setsockopt(2) says.
pub fn bind_to_device(socket: impl AsFd, name: &str) -> io::Result<()> {
    // SAFETY: the name is `name.len()` bytes long, as said, and the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Fills `value` with a socket option. `T` must be plain numbers.
fn get_option<T: Copy>(socket: impl AsFd, level: i32, name: i32, value: &mut T) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let mut length = size_of::<T>() as u32;
    // SAFETY: `fd` is open while it is borrowed, and pointer and length describe `value`; the kernel writes no more
    // than `length` bytes, and the callers below only pass types for which every bit pattern is valid.
    let result = unsafe { libc::getsockopt(fd, level, name, (&raw mut *value).cast(), &raw mut length) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Processor time of all children that have ended and were waited for, and of theirs (`RUSAGE_CHILDREN`).
///
/// # Errors
/// What getrusage(2) says.
pub fn cpu_time_of_children() -> io::Result<Duration> {
    // SAFETY: all-zero bytes are a valid `rusage`: it is plain numbers.
    let mut usage: libc::rusage = unsafe { zeroed() };
    // SAFETY: the kernel fills the struct behind the pointer, which outlives the call.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.cast_unsigned()) + Duration::from_micros(time.tv_usec.cast_unsigned())
    };
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// Cookie of the network namespace of a socket (`SO_NETNS_COOKIE`, Linux 5.14).
///
/// # Errors
/// What getsockopt(2) says.
pub fn netns_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0_u64;
    get_option(socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie)?;
    Ok(cookie)
}

/// The peer's address by `SO_PEERNAME`, the third way by which an application can ask for it. The kernel refuses a
/// buffer that is longer than the address (net/core/sock.c), so both lengths are tried.
///
/// # Errors
/// What getsockopt(2) says.
pub fn peer_name(socket: impl AsFd) -> io::Result<SocketAddr> {
    // SAFETY: all-zero bytes are a valid `sockaddr_in6` and a valid `sockaddr_in`: both are plain numbers.
    let (mut v6, mut v4): (libc::sockaddr_in6, libc::sockaddr_in) = unsafe { (zeroed(), zeroed()) };
    if get_option(&socket, libc::SOL_SOCKET, libc::SO_PEERNAME, &mut v6).is_ok() {
        return Ok(SocketAddr::new(
            IpAddr::from(v6.sin6_addr.s6_addr),
            u16::from_be(v6.sin6_port),
        ));
    }
    get_option(&socket, libc::SOL_SOCKET, libc::SO_PEERNAME, &mut v4)?;
    Ok(SocketAddr::new(
        IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()),
        u16::from_be(v4.sin_port),
    ))
}

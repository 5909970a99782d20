//! Socket options that rustix does not know.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Cookie of the network namespace that a socket was made in (`SO_NETNS_COOKIE`, socket(7); since Linux 5.14).
///
/// # Errors
/// `ENOPROTOOPT` before Linux 5.14.
pub fn netns_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed and so open during the call; the kernel writes at most `length` bytes, which
    // is the size of `cookie`, and any bytes are a valid `u64`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(cookie)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_one_namespace_have_one_cookie() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let cookie = netns_cookie(&tcp).unwrap();
        assert_ne!(cookie, 0);
        assert_eq!(cookie, netns_cookie(&udp).unwrap());
    }

    #[test]
    fn what_is_no_socket_has_no_cookie() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(
            netns_cookie(file).unwrap_err().raw_os_error(),
            Some(libc::ENOTSOCK)
        );
    }
}

//! A client's socket, in all the ways in which applications make one.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use clap::Args;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{
    Timeout, set_socket_linger, set_socket_reuseaddr, set_socket_timeout, set_tcp_nodelay, socket_error,
};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, connect, ipproto, sendto, socket_with,
};
use tests::sys::{bind_to_device, set_option};
use tests::wait::readable;

/// How a client makes its sockets. An IPv4-mapped destination, `[::ffff:10.1.0.3]:80`, makes an IPv6 socket.
#[derive(Args, Clone, Debug)]
pub(crate) struct Client {
    /// Local address; port 0 leaves the port to the kernel.
    #[arg(long)]
    pub(crate) bind: Option<SocketAddr>,
    /// How long connect and each read may take.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    timeout: u64,
    /// `SO_MARK`.
    #[arg(long)]
    mark: Option<i32>,
    /// `SO_BINDTODEVICE`.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Multipath TCP (`IPPROTO_MPTCP`).
    #[arg(long)]
    mptcp: bool,
    /// A connect that does not block.
    #[arg(long)]
    non_blocking: bool,
    /// `TCP_FASTOPEN_CONNECT`.
    #[arg(long)]
    fast_open: bool,
    /// Connects by sending this with `MSG_FASTOPEN`, without connect().
    #[arg(long, value_name = "TEXT")]
    fast_open_message: Option<String>,
    /// Closes with a reset, which leaves no TIME_WAIT.
    #[arg(long)]
    rst: bool,
}

impl Client {
    /// A socket for destinations of this family, bound if asked.
    pub(crate) fn socket(&self, destination: SocketAddr) -> io::Result<OwnedFd> {
        let family = if destination.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let protocol = if self.mptcp { ipproto::MPTCP } else { ipproto::TCP };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(protocol))?;
        if let Some(mark) = self.mark {
            set_option(&socket, libc::SOL_SOCKET, libc::SO_MARK, mark)?;
        }
        if let Some(device) = &self.device {
            bind_to_device(&socket, device)?;
        }
        if self.fast_open {
            set_option(&socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)?;
        }
        if let Some(local) = self.bind {
            set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &local)?;
        }
        Ok(socket)
    }

    /// Connects a socket. Running out of time is ETIMEDOUT.
    pub(crate) fn connect(&self, socket: OwnedFd, destination: SocketAddr) -> io::Result<TcpStream> {
        let limit = Duration::from_millis(self.timeout);
        // SO_SNDTIMEO also limits a blocking connect (socket(7)).
        set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(limit))?;
        if let Some(text) = &self.fast_open_message {
            let flags = SendFlags::from_bits_retain(libc::MSG_FASTOPEN.cast_unsigned());
            sendto(&socket, text.as_bytes(), flags, &destination)?;
        } else if self.non_blocking {
            rustix::io::ioctl_fionbio(&socket, true)?;
            connect_and_poll(&socket, destination, limit)?;
            rustix::io::ioctl_fionbio(&socket, false)?;
        } else {
            connect(&socket, &destination)?;
        }
        set_tcp_nodelay(&socket, true)?;
        if self.rst {
            set_socket_linger(&socket, Some(Duration::ZERO))?;
        }
        Ok(socket.into())
    }

    /// A new connection.
    pub(crate) fn dial(&self, destination: SocketAddr) -> io::Result<TcpStream> {
        self.connect(self.socket(destination)?, destination)
    }

    /// A new connection which is only begun.
    pub(crate) fn begin(&self, destination: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.socket(destination)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        match connect(&socket, &destination) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
            Err(error) => Err(error.into()),
        }
    }
}

fn connect_and_poll(socket: &OwnedFd, destination: SocketAddr, limit: Duration) -> io::Result<()> {
    match connect(socket, &destination) {
        Err(Errno::INPROGRESS) => {}
        other => return Ok(other?),
    }
    let writable = readable(&mut [PollFd::new(socket, PollFlags::OUT)], limit).map_err(io::Error::other)?;
    if !writable {
        return Err(Errno::TIMEDOUT.into());
    }
    Ok(socket_error(socket)??)
}

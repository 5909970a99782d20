//! Sockets of type `SOCK_SEQPACKET` in the Unix family: whole packets, with a descriptor beside them.
//!
//! Tokio's stream types carry the descriptor, because they bring readiness and `SO_PEERCRED`; their own read and write
//! are never called, since they know no packets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// A packet that could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChannelError {
    /// The peer is gone.
    #[error("the peer closed the connection")]
    Closed,
    /// The packet is longer than any message (`MSG_TRUNC`).
    #[error("the peer sent a packet of more than {limit} bytes")]
    TooLong {
        /// Size of the receive buffer.
        limit: usize,
    },
    /// The packet carries descriptors (`MSG_CTRUNC`); the kernel has closed them.
    #[error("the peer sent a descriptor, which no message to the agent has")]
    Descriptor,
    /// Anything else of the kernel.
    #[error("{operation}: {source}")]
    Io {
        /// The system call.
        operation: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl ChannelError {
    /// Tells a peer that is gone from a socket that fails.
    fn from_io(operation: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
                Self::Closed
            }
            _ => Self::Io { operation, source },
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Channel(pub(super) UnixStream);

impl Channel {
    /// Connects, as a proxy does. Needs a running Tokio runtime.
    #[cfg(test)]
    pub(super) fn connect(path: &std::path::Path) -> io::Result<Self> {
        crate::socket_file::dial(path, rustix::net::SocketType::SEQPACKET).map(Self)
    }

    /// Process id of the peer when it called connect or listen (`SO_PEERCRED`, socket(7)): 0 when it has none in our
    /// PID namespace.
    pub(super) fn peer_pid(&self) -> io::Result<u32> {
        let pid = self.0.peer_cred()?.pid().unwrap_or_default();
        Ok(u32::try_from(pid).unwrap_or_default())
    }

    /// Sends one packet, with `descriptor` beside it.
    pub(super) async fn send(
        &self,
        packet: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), ChannelError> {
        let send = || send_now(&self.0, packet, descriptor.as_slice());
        self.0
            .async_io(Interest::WRITABLE, send)
            .await
            .map_err(|e| ChannelError::from_io("sendmsg", e))
    }

    /// Receives one packet of at most `limit` bytes. Safe to cancel: a packet is read at once or not at all.
    pub(super) async fn recv(&self, limit: usize) -> Result<Vec<u8>, ChannelError> {
        let mut packet = vec![0; limit];
        let received = self
            .0
            .async_io(Interest::READABLE, || recv_now(&self.0, &mut packet))
            .await;
        let (bytes, flags) = received.map_err(|e| ChannelError::from_io("recvmsg", e))?;
        if flags.contains(ReturnFlags::CTRUNC) {
            return Err(ChannelError::Descriptor);
        }
        if flags.contains(ReturnFlags::TRUNC) {
            return Err(ChannelError::TooLong { limit });
        }
        if bytes == 0 {
            return Err(ChannelError::Closed);
        }
        packet.truncate(bytes);
        Ok(packet)
    }
}

/// `sendmsg` with `SCM_RIGHTS`. A packet goes out whole or not at all (unix(7)).
fn send_now(stream: &UnixStream, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::NOBUFS.into());
    }
    sendmsg(stream, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// `recvmsg` without room for control messages: descriptors of the peer never enter our table, the kernel drops them
/// and says so by `MSG_CTRUNC` (`scm_detach_fds` in net/core/scm.c).
fn recv_now(stream: &UnixStream, buffer: &mut [u8]) -> io::Result<(usize, ReturnFlags)> {
    let mut control = RecvAncillaryBuffer::default();
    let received = recvmsg(
        stream,
        &mut [IoSliceMut::new(buffer)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    Ok((received.bytes, received.flags))
}

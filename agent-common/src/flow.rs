//! Connections: the keys by which two sockets find each other, and what a socket carries.

use crate::address::{Endpoint, Ip};

/// A TCP connection within a pod's network namespace, seen from the side that connects.
/// Key of `HANDOVER` and `TRUSTED`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Cookie of the pod's network namespace.
    pub netns: u64,
    /// Address of the side that connects.
    pub source: Ip,
    /// Address of the side that accepts.
    pub destination: Ip,
    /// Port of the side that connects, in host order.
    pub source_port: u32,
    /// Port of the side that accepts, in host order.
    pub destination_port: u32,
}

/// Value of `HANDOVER`: what the connecting socket tells the accepting one. Lives from connect to accept; removed by
/// the accepting side, or by the connecting socket when it closes first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Cookie of the connecting socket: only that socket's close removes the entry.
    pub socket: u64,
    /// To the proxy: the original destination. To the application: the client.
    pub endpoint: Endpoint,
    /// One of [`handover`].
    pub kind: u32,
}

/// Values of [`Handover::kind`].
pub mod handover {
    /// From an application to the proxy's outbound listener.
    pub const OUTBOUND: u32 = 1;
    /// From the proxy to the application.
    pub const INBOUND: u32 = 2;
}

/// Value of `TRUSTED`: a connection of the node's own processes (a probe), or of the proxy in `wire` mode, which
/// `inbound` lets pass. Removed when that socket closes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trusted {
    /// Cookie of the connecting socket: only that socket's close removes the entry.
    pub socket: u64,
}

/// Socket storage (`SOCKETS`): what a socket is to us. Dies with its socket.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// One of [`role`].
    pub role: u32,
    /// Original destination or client, as the role says.
    pub endpoint: Endpoint,
    /// Of an application's connection: the source address that we bound it to, if we did. Of the proxy's end: the source
    /// address that the peer would have without capture, if it has another one.
    pub source: Ip,
    /// Key of this socket's entry in `TRUSTED`: its pod's network namespace, else 0.
    pub trusted_netns: u64,
}

/// Values of [`Socket::role`].
pub mod role {
    /// Nothing of ours: a socket that was captured once and then connected elsewhere.
    pub const NONE: u32 = 0;
    /// An application's captured connection; `endpoint` is the original destination.
    pub const APPLICATION: u32 = 1;
    /// The proxy's end of a captured connection; `endpoint` is the original destination.
    pub const PROXY_ACCEPTED: u32 = 2;
    /// The proxy's connection on behalf of a client; `endpoint` is the client.
    pub const PROXY_FOR_CLIENT: u32 = 3;
    /// Any other connection of the proxy.
    pub const PROXY: u32 = 4;
    /// The application's end of a connection that the proxy made for a client; `endpoint` is the client.
    pub const APPLICATION_ACCEPTED: u32 = 5;
    /// A connection with an entry in `TRUSTED`.
    pub const TRUSTED: u32 = 6;
    /// The proxy's connection on behalf of a client in `wire` mode: its source address is the client's own.
    pub const PROXY_WIRE: u32 = 7;
    /// An application's socket, UDP or TCP, that is connected to the proxy's DNS server; `endpoint` is the name server
    /// that it was meant for.
    pub const DNS: u32 = 9;
}

/// Key of `LISTENERS`, a SOCKHASH: the proxy's listeners on [`crate::ports::INBOUND`] in a pod.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerKey {
    /// Cookie of the pod's network namespace.
    pub netns: u64,
    /// 0 up to [`crate::limits::LISTENER_SLOTS`]: the first free one when the listener came. An entry goes with its
    /// socket, so that the listener of an older proxy is found when the newer one dies.
    pub slot: u32,
    /// Always zero.
    pub reserved: u32,
}

/// Stands in the code of `inbound` for the cookie of the pod's network namespace. `sk_lookup` programs have no helper
/// that tells their namespace, so each pod gets its own copy, with its cookie in this number's place.
pub const NETNS_PLACEHOLDER: u64 = u64::from_be_bytes(*b"MESHGATE");

const _: () = assert!(size_of::<Flow>() == 48 && size_of::<Handover>() == 32);
const _: () = assert!(size_of::<Socket>() == 48 && size_of::<ListenerKey>() == 16);
crate::plain_bytes!(Flow, Handover, Trusted, Socket, ListenerKey);

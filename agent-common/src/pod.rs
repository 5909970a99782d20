//! An enrolled pod, as the programs see it (`PODS`) and as people see it (`NAMES`).

use crate::address::Ip;

/// Key of `PODS`, `NAMES` and `COUNTERS`: the cookie of a network namespace, which the kernel never reuses.
/// (`SO_NETNS_COOKIE`, socket(7); `bpf_get_netns_cookie`, bpf-helpers(7).)
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetnsKey {
    /// The cookie.
    pub netns: u64,
}

/// Value of `PODS`: what a hook must know of the pod that it runs for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pod {
    /// What only the layouts of the upgrade tests have: it moves every other field.
    #[cfg(feature = "abi-next")]
    pub trial: u64,
    /// Generation of the pod, from its UID: tells two pods with one address apart.
    pub generation: u64,
    /// Id of the pod's network.
    pub network: u32,
    /// Bits of [`flags`].
    pub flags: u32,
    /// Source of captured IPv4 connections; none if the pod has no IPv4 address.
    pub ip4: Ip,
    /// Source of captured IPv6 connections; none if the pod has no IPv6 address.
    pub ip6: Ip,
}

/// Bits of [`Pod::flags`].
pub mod flags {
    /// The application sees the client's address in the packets, not only at the socket (`wire` mode).
    pub const WIRE: u32 = 1;
    /// DNS questions go to the proxy.
    pub const DNS: u32 = 4;
}

/// Value of `NAMES`: who the pod is, for people and for an agent that starts again. Texts are UTF-8, zero-padded.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodName {
    /// Kubernetes UID.
    pub uid: [u8; 64],
    /// Kubernetes namespace (at most 63 bytes, RFC 1123 label).
    pub namespace: [u8; 64],
    /// Pod name (at most 253 bytes, RFC 1123 subdomain).
    pub name: [u8; 256],
    /// One of [`state`].
    pub state: u32,
    /// Whether `inbound` is attached: 1, or 0 for pods that bypass inbound capture.
    pub inbound: u32,
    /// Bits of [`changed`]: what of the network namespace itself was changed and is to be changed back.
    pub changed: u32,
    /// Always zero.
    pub reserved: u32,
}

/// Bits of [`PodName::changed`].
pub mod changed {
    /// `net.ipv4.tcp_tw_reuse` is 1 where it was 2 (loopback only).
    pub const TW_REUSE: u32 = 1;
    /// The rules, routes and settings of `wire` mode are there.
    pub const WIRE: u32 = 2;
    /// `net.ipv4.tcp_migrate_req` is 1 where it was 0.
    pub const MIGRATE: u32 = 4;
}

/// Values of [`PodName::state`].
pub mod state {
    /// Captured, but the proxy has not accepted the pod: connections are refused.
    pub const PENDING: u32 = 0;
    /// Captured, and the proxy serves the pod.
    pub const ENABLED: u32 = 1;
}

/// Value of `NETWORKS`, whose key is the network's id: its name, UTF-8, zero-padded.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkName {
    /// The name (at most 63 bytes, a label's value).
    pub name: [u8; 64],
}

/// The one value of `SETTINGS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Cookie of the node's own network namespace: its processes' connections to pods are trusted.
    pub node_netns: u64,
    /// Id of the network that the node's own processes are in.
    pub node_network: u32,
    /// Always zero.
    pub reserved: u32,
}

/// Value of [`Pod::trial`].
#[cfg(feature = "abi-next")]
pub const TRIAL: u64 = 0x7472_6961_6c00_0000;

#[cfg(not(feature = "abi-next"))]
const _: () = assert!(size_of::<Pod>() == 48);
const _: () = assert!(size_of::<PodName>() == 400);
const _: () = assert!(size_of::<NetworkName>() == 64 && size_of::<Settings>() == 16);
crate::plain_bytes!(NetnsKey, Pod, PodName, NetworkName, Settings);

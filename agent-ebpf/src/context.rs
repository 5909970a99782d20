//! Reading the kernel's contexts: addresses, ports, sockets, the network namespace.

use agent_common::address::{AddressKey, Endpoint, Ip};
use agent_common::flow::Flow;
use agent_common::pod::{NetnsKey, Pod};
use agent_common::ports;
use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::{bpf_sock, bpf_sock_addr};
use aya_ebpf::helpers::{bpf_get_netns_cookie, bpf_get_socket_cookie, bpf_setsockopt};
use aya_ebpf::programs::{SockAddrContext, SockOpsContext};

use crate::maps::{ADDRESSES, PODS};

/// `IPPROTO_TCP`.
pub(crate) const TCP: u32 = 6;
/// `IPPROTO_UDP`.
const UDP: u32 = 17;
/// `AF_INET`.
pub(crate) const INET: u32 = 2;
/// Result of a cgroup hook: go on.
pub(crate) const ALLOW: i32 = 1;
/// Result of a cgroup hook: the system call fails.
pub(crate) const DENY: i32 = 0;
/// Index of `lo` in every network namespace.
const LOOPBACK_INDEX: u32 = 1;
/// `SO_BINDTODEVICE`.
const SO_BINDTODEVICE: i32 = 25;
/// `SOL_SOCKET`.
const SOL_SOCKET: i32 = 1;
/// `SO_REUSEADDR`.
const SO_REUSEADDR: i32 = 2;
/// `SO_MARK`.
const SO_MARK: i32 = 36;

/// Reads a field of a context where it stands. Ordinary loads of an IPv4 and an IPv6 field in two branches are merged
/// by LLVM into one load at a computed offset, which the verifier refuses ("dereference of modified ctx ptr").
macro_rules! read {
    ($field:expr) => {{
        // SAFETY: the kernel hands out contexts with all of their fields readable; the verifier checks each access.
        unsafe { core::ptr::read_volatile(&raw const $field) }
    }};
}
pub(crate) use read;

/// Writes a field of a context where it stands: merged stores are refused by the verifier.
macro_rules! write {
    ($field:expr, $value:expr) => {{
        // SAFETY: the field is writable in this kind of context; the verifier checks each access.
        unsafe { core::ptr::write_volatile(&raw mut $field, $value) }
    }};
}
pub(crate) use write;

/// Local and remote address of a context that has both families' fields: all loads first, then the choice.
macro_rules! addresses {
    ($ctx:expr) => {{
        let ctx = $ctx;
        let family = read!((*ctx).family);
        let (local4, remote4) = (read!((*ctx).local_ip4), read!((*ctx).remote_ip4));
        let local6 = [
            read!((*ctx).local_ip6[0]),
            read!((*ctx).local_ip6[1]),
            read!((*ctx).local_ip6[2]),
            read!((*ctx).local_ip6[3]),
        ];
        let remote6 = [
            read!((*ctx).remote_ip6[0]),
            read!((*ctx).remote_ip6[1]),
            read!((*ctx).remote_ip6[2]),
            read!((*ctx).remote_ip6[3]),
        ];
        if family == crate::context::INET {
            (
                agent_common::address::Ip::from_v4_word(local4),
                agent_common::address::Ip::from_v4_word(remote4),
            )
        } else {
            (
                agent_common::address::Ip::from_words(local6),
                agent_common::address::Ip::from_words(remote6),
            )
        }
    }};
}
pub(crate) use addresses;

/// Key of the network namespace of the context's socket.
#[inline(always)]
pub(crate) fn netns(ctx: &impl EbpfContext) -> NetnsKey {
    // SAFETY: the helper takes any context of the program types that use this function.
    let netns = unsafe { bpf_get_netns_cookie(ctx.as_ptr()) };
    NetnsKey { netns }
}

/// The enrolled pod in this network namespace.
#[inline(always)]
pub(crate) fn pod(netns: &NetnsKey) -> Option<&'static Pod> {
    // SAFETY: map values stay readable for the run of the program (RCU); user space replaces whole values.
    unsafe { PODS.get(netns) }
}

/// Whether the pod in `netns` owns `ip`.
#[inline(always)]
pub(crate) fn owns(netns: &NetnsKey, pod: &Pod, ip: &Ip) -> bool {
    if ip.same(&pod.ip4) || ip.same(&pod.ip6) {
        return true;
    }
    // SAFETY: as in `pod`.
    match unsafe {
        ADDRESSES.get(&AddressKey {
            network: pod.network,
            ip: *ip,
        })
    } {
        Some(owner) => owner.netns == netns.netns && owner.generation == pod.generation,
        None => false,
    }
}

/// Sets `SO_REUSEADDR` on the context's socket.
#[inline(always)]
pub(crate) fn reuse_address(ctx: &impl EbpfContext) {
    set_option(ctx, SO_REUSEADDR, 1);
}

/// Frees the context's socket from the device that it is bound to; false if the kernel refuses.
#[inline(always)]
pub(crate) fn leave_device(ctx: &impl EbpfContext) -> bool {
    let mut none = [0_u8; 4];
    // SAFETY: the option takes a name of up to 16 bytes; an empty one means no device.
    unsafe {
        bpf_setsockopt(
            ctx.as_ptr(),
            SOL_SOCKET,
            SO_BINDTODEVICE,
            (&raw mut none).cast(),
            4,
        ) == 0
    }
}

/// Sets the mark of the context's socket.
#[inline(always)]
pub(crate) fn set_mark(ctx: &impl EbpfContext, mark: u32) {
    set_option(ctx, SO_MARK, mark);
}

#[inline(always)]
fn set_option(ctx: &impl EbpfContext, name: i32, value: u32) {
    let mut value = value;
    // SAFETY: the option takes four bytes, which `value` has. It cannot fail on a live TCP socket.
    let _ = unsafe { bpf_setsockopt(ctx.as_ptr(), SOL_SOCKET, name, (&raw mut value).cast(), 4) };
}

/// The address that a socket-address hook is asked for.
pub(crate) trait Asked {
    /// The context itself.
    fn raw(&self) -> *mut bpf_sock_addr;

    /// The socket.
    #[inline(always)]
    fn sock(&self) -> *mut bpf_sock {
        // SAFETY: `sk` is a readable field of this context.
        unsafe { (*self.raw()).__bindgen_anon_1.sk }
    }

    /// Whether the socket speaks TCP.
    #[inline(always)]
    fn is_tcp(&self) -> bool {
        read!((*self.raw()).protocol) == TCP
    }

    /// Whether this is about a name server: by UDP or TCP, and its port.
    #[inline(always)]
    fn is_for_name_server(&self) -> bool {
        self.port() == ports::NAME_SERVER && (self.is_tcp() || read!((*self.raw()).protocol) == UDP)
    }

    /// Whether the port asked for is the proxy's.
    #[inline(always)]
    fn is_for_proxys_port(&self) -> bool {
        let port = self.port();
        if self.is_tcp() {
            ports::is_proxys(port)
        } else {
            port == ports::DNS && read!((*self.raw()).protocol) == UDP
        }
    }

    /// The port asked for, in host order.
    #[inline(always)]
    fn port(&self) -> u16 {
        u16::from_be(read!((*self.raw()).user_port) as u16)
    }

    /// Replaces the port.
    #[inline(always)]
    fn set_port(&self, port: u16) {
        write!((*self.raw()).user_port, u32::from(port.to_be()));
    }

    /// The IPv4 address asked for.
    #[inline(always)]
    fn ip4(&self) -> Ip {
        Ip::from_v4_word(read!((*self.raw()).user_ip4))
    }

    /// Replaces the IPv4 address.
    #[inline(always)]
    fn set_ip4(&self, ip: &Ip) {
        write!((*self.raw()).user_ip4, ip.words()[3]);
    }

    /// The IPv6 address asked for; may be v4-mapped.
    #[inline(always)]
    fn ip6(&self) -> Ip {
        let ctx = self.raw();
        Ip::from_words([
            read!((*ctx).user_ip6[0]),
            read!((*ctx).user_ip6[1]),
            read!((*ctx).user_ip6[2]),
            read!((*ctx).user_ip6[3]),
        ])
    }

    /// Replaces the IPv6 address.
    #[inline(always)]
    fn set_ip6(&self, ip: &Ip) {
        let (ctx, words) = (self.raw(), ip.words());
        write!((*ctx).user_ip6[0], words[0]);
        write!((*ctx).user_ip6[1], words[1]);
        write!((*ctx).user_ip6[2], words[2]);
        write!((*ctx).user_ip6[3], words[3]);
    }

    /// Replaces the source address of an IPv4 message.
    #[inline(always)]
    fn set_source4(&self, ip: &Ip) {
        write!((*self.raw()).msg_src_ip4, ip.words()[3]);
    }

    /// Replaces the source address of an IPv6 message.
    #[inline(always)]
    fn set_source6(&self, ip: &Ip) {
        let (ctx, words) = (self.raw(), ip.words());
        write!((*ctx).msg_src_ip6[0], words[0]);
        write!((*ctx).msg_src_ip6[1], words[1]);
        write!((*ctx).msg_src_ip6[2], words[2]);
        write!((*ctx).msg_src_ip6[3], words[3]);
    }

    /// Whether the socket is bound to a device other than `lo`.
    #[inline(always)]
    fn is_bound_to_device(&self) -> bool {
        read!((*self.sock()).bound_dev_if) > LOOPBACK_INDEX
    }

    /// The port that the socket is bound to.
    #[inline(always)]
    fn own_port(&self) -> u16 {
        read!((*self.sock()).src_port) as u16
    }

    /// The port that the socket is connected to, in network order; 0 if it is not connected.
    #[inline(always)]
    fn peer_port(&self) -> u16 {
        read!((*self.sock()).dst_port)
    }

    /// The IPv4 address that the socket is bound to.
    #[inline(always)]
    fn bound4(&self) -> Ip {
        Ip::from_v4_word(read!((*self.sock()).src_ip4))
    }

    /// The IPv6 address that the socket is bound to.
    #[inline(always)]
    fn bound6(&self) -> Ip {
        let sk = self.sock();
        Ip::from_words([
            read!((*sk).src_ip6[0]),
            read!((*sk).src_ip6[1]),
            read!((*sk).src_ip6[2]),
            read!((*sk).src_ip6[3]),
        ])
    }
}

impl Asked for SockAddrContext {
    #[inline(always)]
    fn raw(&self) -> *mut bpf_sock_addr {
        self.sock_addr
    }
}

/// A TCP socket in one of its events.
pub(crate) trait Established {
    /// The socket; null when it is not a full one.
    fn sock(&self) -> *mut bpf_sock;
    /// Its cookie: never reused.
    fn socket_cookie(&self) -> u64;
    /// The remote port, in host order.
    fn remote(&self) -> u32;
    /// The flow as this socket sees it: itself first.
    fn flow_from_here(&self, netns: &NetnsKey) -> Flow;
    /// The flow as the other side, which connected, sees it.
    fn flow_from_there(&self, netns: &NetnsKey) -> Flow;
}

impl Established for SockOpsContext {
    #[inline(always)]
    fn sock(&self) -> *mut bpf_sock {
        // SAFETY: `sk` is a readable field of this context.
        unsafe { (*self.ops).__bindgen_anon_2.sk }
    }

    #[inline(always)]
    fn socket_cookie(&self) -> u64 {
        // SAFETY: the helper takes this context.
        unsafe { bpf_get_socket_cookie(self.as_ptr()) }
    }

    #[inline(always)]
    fn remote(&self) -> u32 {
        u32::from_be(read!((*self.ops).remote_port))
    }

    #[inline(always)]
    fn flow_from_here(&self, netns: &NetnsKey) -> Flow {
        let (local, remote) = addresses!(self.ops);
        Flow {
            netns: netns.netns,
            source: local,
            destination: remote,
            source_port: self.local_port(),
            destination_port: self.remote(),
        }
    }

    #[inline(always)]
    fn flow_from_there(&self, netns: &NetnsKey) -> Flow {
        let (local, remote) = addresses!(self.ops);
        Flow {
            netns: netns.netns,
            source: remote,
            destination: local,
            source_port: self.remote(),
            destination_port: self.local_port(),
        }
    }
}

/// An address and a port.
#[inline(always)]
pub(crate) fn endpoint(ip: Ip, port: u16) -> Endpoint {
    Endpoint {
        ip,
        port: u32::from(port),
    }
}

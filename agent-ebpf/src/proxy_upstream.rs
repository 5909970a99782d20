//! Connections that the proxy makes within a pod's network namespace: to the outside, and to the application.
//!
//! Attached to the proxy's cgroup. The proxy binds to a client's address when it speaks to the application on its
//! behalf; in the packets that becomes an address of the pod, and the client is remembered for the application's
//! accept().

use agent_common::address::Ip;
use agent_common::flow::role;
use agent_common::pod::{NetnsKey, Pod, flags};
use agent_common::ports;
use aya_ebpf::macros::{cgroup_sock_addr, cgroup_sockopt};
use aya_ebpf::programs::{SockAddrContext, SockoptContext};

use crate::context::{ALLOW, Asked, DENY, endpoint, netns, owns, pod, reuse_address, set_mark, write};
use crate::storage;

/// `SOL_IP`.
const SOL_IP: i32 = 0;
/// `SOL_IPV6`.
const SOL_IPV6: i32 = 41;
/// `IP_FREEBIND`.
const IP_FREEBIND: i32 = 15;
/// `IPV6_FREEBIND`.
const IPV6_FREEBIND: i32 = 78;
/// `IP_BIND_ADDRESS_NO_PORT`.
const IP_BIND_ADDRESS_NO_PORT: i32 = 24;

#[cgroup_sock_addr(connect4)]
pub(crate) fn proxy_connect4(ctx: SockAddrContext) -> i32 {
    let netns = netns(&ctx);
    let Some(pod) = pod(&netns) else { return ALLOW };
    connect(&ctx, &netns, pod, &ctx.ip4(), &ctx.bound4())
}

#[cgroup_sock_addr(connect6)]
pub(crate) fn proxy_connect6(ctx: SockAddrContext) -> i32 {
    let netns = netns(&ctx);
    let Some(pod) = pod(&netns) else { return ALLOW };
    connect(&ctx, &netns, pod, &ctx.ip6(), &ctx.bound6())
}

/// Marks the socket as the proxy's. Its local port must not keep an application from binding to the same number.
#[inline(always)]
fn connect(ctx: &SockAddrContext, netns: &NetnsKey, pod: &Pod, destination: &Ip, bound: &Ip) -> i32 {
    if !ctx.is_tcp() {
        return if ctx.is_for_name_server() {
            mark(ctx, role::PROXY)
        } else {
            ALLOW
        };
    }
    reuse_address(ctx);
    if storage::get(ctx.sock()).is_some_and(|socket| socket.role == role::PROXY_FOR_CLIENT) {
        return ALLOW;
    }
    let own = pod.flags & flags::WIRE != 0 && !bound.is_local() && owns(netns, pod, destination);
    let role = if own && !owns(netns, pod, bound) {
        set_mark(ctx, ports::RETURN_MARK);
        role::PROXY_WIRE
    } else {
        role::PROXY
    };
    mark(ctx, role)
}

/// Gives a socket of the proxy its role; the system call fails where the kernel has no memory.
#[inline(always)]
pub(crate) fn mark(ctx: &SockAddrContext, role: u32) -> i32 {
    match storage::make(ctx.sock()) {
        Some(socket) => {
            socket.role = role;
            ALLOW
        }
        None => DENY,
    }
}

#[cgroup_sock_addr(bind4)]
pub(crate) fn proxy_bind4(ctx: SockAddrContext) -> i32 {
    match speaks_for(&ctx, &ctx.ip4()) {
        Speaker::Itself => ALLOW,
        Speaker::NoMemory => DENY,
        Speaker::Client(source) => {
            ctx.set_ip4(&source);
            ALLOW
        }
    }
}

#[cgroup_sock_addr(bind6)]
pub(crate) fn proxy_bind6(ctx: SockAddrContext) -> i32 {
    match speaks_for(&ctx, &ctx.ip6()) {
        Speaker::Itself => ALLOW,
        Speaker::NoMemory => DENY,
        Speaker::Client(source) => {
            ctx.set_ip6(&source);
            ALLOW
        }
    }
}

/// For whom the proxy is about to speak.
enum Speaker {
    /// For nobody else.
    Itself,
    /// For a client, which its socket remembers now; its packets shall come from this address.
    Client(Ip),
    /// For a client that the socket cannot remember.
    NoMemory,
}

/// Finds out whether the proxy binds to the address of a client.
#[inline(always)]
fn speaks_for(ctx: &SockAddrContext, client: &Ip) -> Speaker {
    if ctx.is_for_proxys_port() {
        // A listener, maybe in a pod that is not captured yet: `app_bind` lets only the proxy's pass.
        return match storage::make(ctx.sock()) {
            Some(socket) => {
                socket.role = role::PROXY;
                Speaker::Itself
            }
            None => Speaker::NoMemory,
        };
    }
    if !ctx.is_tcp() || ctx.port() != 0 || client.is_local() {
        return Speaker::Itself;
    }
    let netns = netns(ctx);
    let Some(pod) = pod(&netns) else {
        return Speaker::Itself;
    };
    if pod.flags & flags::WIRE != 0 || owns(&netns, pod, client) {
        return Speaker::Itself;
    }
    if storage::assign(ctx.sock(), role::PROXY_FOR_CLIENT, endpoint(*client, 0)) {
        Speaker::Client(packet_source(client.is_v4(), &pod.ip6))
    } else {
        Speaker::NoMemory
    }
}

/// The source address of the packets from the proxy to the application.
///
/// IPv4: loopback, where ports in TIME_WAIT are used again after a second (`tcp_tw_reuse` = 2, ip-sysctl), so that a pod
/// never runs out of them. IPv6: the pod's own address, because the kernel sends the resets of closed ports and of
/// closed connections to `::1` out of the wrong interface (`tcp_v6_send_response` routes them strictly by the device of
/// the own address) and the proxy would wait for them for minutes; the agent sets `tcp_tw_reuse` to 1 there.
#[inline(always)]
fn packet_source(v4: bool, pod_ip6: &Ip) -> Ip {
    if v4 {
        Ip::from_v4_word(u32::from_ne_bytes([127, 0, 0, 1]))
    } else if pod_ip6.is_none() {
        Ip::from_words([0, 0, 0, 1_u32.to_be()])
    } else {
        *pod_ip6
    }
}

/// Lets the kernel choose the port of such a connection at connect, for the whole 4-tuple, not at bind, for the
/// address alone: the proxy's `IP_FREEBIND` becomes `IP_BIND_ADDRESS_NO_PORT`. Its sockets are transparent besides, so
/// freebind is not missed.
#[cgroup_sockopt(setsockopt)]
pub(crate) fn proxy_setopt(ctx: SockoptContext) -> i32 {
    // SAFETY: the kernel hands out a valid context; level and optname are readable in it.
    let (level, name) = unsafe { ((*ctx.sockopt).level, (*ctx.sockopt).optname) };
    if (level == SOL_IP && name == IP_FREEBIND) || (level == SOL_IPV6 && name == IPV6_FREEBIND) {
        write!((*ctx.sockopt).level, SOL_IP);
        write!((*ctx.sockopt).optname, IP_BIND_ADDRESS_NO_PORT);
    }
    ALLOW
}

//! Outbound TCP of applications: connect() is sent to the proxy, the original destination stays with the socket. Sockets
//! that are connected to a name server, by TCP or UDP, go to the proxy's DNS server (`dns`) in the same way.
//!
//! The destination becomes loopback:15001 or loopback:15053, so whatever fails later ends at the proxy's refusal or at nobody, never
//! outside. The source becomes the pod's address, as it would have been, without choosing a port yet; for IPv6 it is
//! loopback, and both sides are told the pod's address.

use agent_common::address::Ip;
use agent_common::flow::role;
use agent_common::pod::{NetnsKey, Pod};
use agent_common::ports;
use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_bind, bpf_get_prandom_u32, bpf_set_retval};
use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;

use crate::context::{ALLOW, Asked, DENY, endpoint, leave_device, netns, owns, pod};
use crate::count::count;
use crate::{dns, storage};

/// `ENETUNREACH`.
pub(crate) const ENETUNREACH: i32 = 101;

/// What shall happen to a connection, or to a question.
pub(crate) enum Verdict {
    /// It goes where it was meant to.
    Leave,
    /// The system call fails.
    Refuse,
    /// It goes to the proxy at this address and port.
    Capture(Ip, u16),
}

#[cgroup_sock_addr(connect4)]
pub(crate) fn app_connect4(ctx: SockAddrContext) -> i32 {
    let netns = netns(&ctx);
    let Some(pod) = pod(&netns) else { return ALLOW };
    if was_bound(&ctx) {
        bind4(&ctx, &Ip::from_v4_word(0));
    }
    match decide(&ctx, &netns, pod, ctx.ip4(), pod.ip4) {
        Verdict::Leave => ALLOW,
        Verdict::Refuse => DENY,
        Verdict::Capture(proxy, port) => {
            if ctx.bound4().words()[3] == 0 && bind4(&ctx, &pod.ip4) {
                remember_bound(&ctx, &pod.ip4);
            }
            ctx.set_ip4(&proxy);
            ctx.set_port(port);
            ALLOW
        }
    }
}

#[cgroup_sock_addr(connect6)]
pub(crate) fn app_connect6(ctx: SockAddrContext) -> i32 {
    let netns = netns(&ctx);
    let Some(pod) = pod(&netns) else { return ALLOW };
    let destination = ctx.ip6();
    let source = if destination.is_v4() { pod.ip4 } else { pod.ip6 };
    if was_bound(&ctx) {
        bind6(&ctx, &Ip::NONE);
    }
    match decide(&ctx, &netns, pod, destination, source) {
        Verdict::Leave => ALLOW,
        Verdict::Refuse => DENY,
        Verdict::Capture(proxy, port) => {
            // Not for TCP by IPv6: from the pod's address to ::1 the kernel loses resets (`packet_source` in `proxy_upstream`).
            // The proxy would not learn for minutes that an application has gone, and its end would be in the way of
            // the next connection from the same port. Where the application itself binds to that address, it is so.
            let may_bind = destination.is_v4() || !ctx.is_tcp() && !proxy.is_v4();
            if may_bind && ctx.bound6().is_none() && bind6(&ctx, &source) {
                remember_bound(&ctx, &source);
            }
            ctx.set_ip6(&proxy);
            ctx.set_port(port);
            ALLOW
        }
    }
}

/// Decides, and remembers the original destination of a captured connection.
#[inline(always)]
fn decide(ctx: &SockAddrContext, netns: &NetnsKey, pod: &Pod, destination: Ip, source: Ip) -> Verdict {
    if let Some(socket) = storage::get(ctx.sock()) {
        match socket.role {
            // A program of the proxy's cgroup has run before this one.
            role::PROXY | role::PROXY_FOR_CLIENT | role::PROXY_WIRE => return Verdict::Leave,
            _ => socket.role = role::NONE,
        }
    }
    let is_question = dns::is_captured(ctx, pod);
    if !ctx.is_tcp() && !is_question {
        return Verdict::Leave;
    }
    let whole = storage::whole(ctx.sock());
    if let Some(socket) = whole.and_then(storage::get) {
        socket.role = role::NONE;
    }
    if let Some(verdict) = exempt(ctx, netns, pod, &destination, &source) {
        return verdict;
    }
    // Loopback cannot be reached by way of another device: the SYN would leave the pod.
    if ctx.is_bound_to_device() && !leave_device(ctx) {
        count!(netns, outbound_device, destination, ctx.port());
        return Verdict::Refuse;
    }
    let (role, proxy) = if is_question {
        match dns::server(ctx, &destination) {
            Some(server) => (role::DNS, server),
            None => return dns::refuse(netns, &destination),
        }
    } else {
        (role::APPLICATION, proxy_address(destination.is_v4()))
    };
    let original = endpoint(destination, ctx.port());
    if !storage::assign(ctx.sock(), role, original)
        || whole.is_some_and(|sk| !storage::assign(sk, role, original))
    {
        count!(netns, outbound_no_memory);
        return Verdict::Refuse;
    }
    if is_question {
        count!(netns, dns_captured, destination, ctx.port());
        return Verdict::Capture(proxy, ports::DNS);
    }
    count!(netns, outbound_captured, destination, ctx.port());
    Verdict::Capture(proxy, ports::OUTBOUND)
}

/// What happens to a destination that does not go to the proxy; `None` if it does.
#[inline(always)]
pub(crate) fn exempt(
    ctx: &SockAddrContext,
    netns: &NetnsKey,
    pod: &Pod,
    destination: &Ip,
    source: &Ip,
) -> Option<Verdict> {
    if destination.is_local() {
        count!(netns, outbound_loopback, *destination, ctx.port());
        return Some(Verdict::Leave);
    }
    if owns(netns, pod, destination) {
        count!(netns, outbound_own_address, *destination, ctx.port());
        return Some(Verdict::Leave);
    }
    if source.is_none() && !destination.is_v6_link_local() {
        count!(netns, outbound_no_address, *destination, ctx.port());
        return Some(refuse(ENETUNREACH));
    }
    None
}

/// Lets the system call fail with this error.
#[inline(always)]
pub(crate) fn refuse(error: i32) -> Verdict {
    // SAFETY: the helper only sets the result of the system call that this program refuses.
    unsafe { bpf_set_retval(-error) };
    Verdict::Refuse
}

/// Where the proxy is reached: its listener accepts on every loopback address. For IPv4 one of 256 is drawn for each
/// connection, because ports are counted for each pair of addresses: a pod would have 28,000 connections otherwise.
/// IPv6 has one loopback address only.
#[inline(always)]
fn proxy_address(v4: bool) -> Ip {
    if v4 {
        // SAFETY: the helper takes no argument.
        let random = unsafe { bpf_get_prandom_u32() } as u8;
        Ip::from_v4_word(u32::from_ne_bytes([127, 15, random, 1]))
    } else {
        Ip::from_words([0, 0, 0, 1_u32.to_be()])
    }
}

/// Whether this socket was captured before and has the source that it got then. It is connected again: after a failure,
/// or because it was disconnected (`AF_UNSPEC`, connect(2)), where the source would go if the kernel had chosen it.
#[inline(always)]
fn was_bound(ctx: &SockAddrContext) -> bool {
    match storage::get(ctx.sock()) {
        Some(socket) if matches!(socket.role, role::APPLICATION | role::DNS) && !socket.source.is_none() => {
            socket.source = Ip::NONE;
            true
        }
        _ => false,
    }
}

/// Remembers for [`was_bound`] that the source is not the application's own choice.
#[inline(always)]
fn remember_bound(ctx: &SockAddrContext, source: &Ip) {
    if let Some(socket) = storage::get(ctx.sock()) {
        socket.source = *source;
    }
}

/// Binds to an IPv4 address; the port is chosen at connect. A socket that is bound to a port of every address cannot
/// be bound again: it speaks from loopback, as IPv6 sockets do; `sockets` tells the proxy the pod's address, and
/// `peer_name` the application.
#[inline(always)]
fn bind4(ctx: &SockAddrContext, ip: &Ip) -> bool {
    // `struct sockaddr_in`: family and port, address, padding.
    let mut address: [u32; 4] = [u32::from(2_u16), ip.words()[3], 0, 0];
    // SAFETY: the address is 16 bytes, as said.
    unsafe { bpf_bind(ctx.as_ptr().cast(), (&raw mut address).cast(), 16) == 0 }
}

/// Binds an IPv6 socket to a v4-mapped address, or to none, as [`bind4`].
#[inline(always)]
fn bind6(ctx: &SockAddrContext, ip: &Ip) -> bool {
    let words = ip.words();
    // `struct sockaddr_in6`: family and port, flow information, address, scope.
    let mut address: [u32; 7] = [u32::from(10_u16), 0, words[0], words[1], words[2], words[3], 0];
    // SAFETY: the address is 28 bytes, as said.
    unsafe { bpf_bind(ctx.as_ptr().cast(), (&raw mut address).cast(), 28) == 0 }
}

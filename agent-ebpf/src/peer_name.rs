//! getpeername(), accept() and getsockname(): each side sees the addresses that it would see without capture.
//!
//! No question about pods: only sockets of ours have storage, and it dies with them.

use agent_common::address::Ip;
use agent_common::flow::{Socket, role};
use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;

use crate::context::{ALLOW, Asked, netns, pod};
use crate::storage;

#[cgroup_sock_addr(getpeername4)]
pub(crate) fn app_peername4(ctx: SockAddrContext) -> i32 {
    if let Some((ip, port)) = storage::get(ctx.sock()).and_then(|socket| peer(socket)) {
        ctx.set_ip4(&ip);
        if port != 0 {
            ctx.set_port(port);
        }
    }
    ALLOW
}

#[cgroup_sock_addr(getpeername6)]
pub(crate) fn app_peername6(ctx: SockAddrContext) -> i32 {
    if let Some((ip, port)) = storage::get(ctx.sock()).and_then(|socket| peer(socket)) {
        ctx.set_ip6(&ip);
        if port != 0 {
            ctx.set_port(port);
        }
    }
    ALLOW
}

#[cgroup_sock_addr(getsockname4)]
pub(crate) fn app_sockname4(ctx: SockAddrContext) -> i32 {
    if let Some(ip) = own(&ctx, ctx.ip4()) {
        ctx.set_ip4(&ip);
    }
    ALLOW
}

#[cgroup_sock_addr(getsockname6)]
pub(crate) fn app_sockname6(ctx: SockAddrContext) -> i32 {
    if let Some(ip) = own(&ctx, ctx.ip6()) {
        ctx.set_ip6(&ip);
    }
    ALLOW
}

/// The pod's address, for an application's captured connection that speaks from loopback (`outbound` says when).
#[inline(always)]
fn own(ctx: &SockAddrContext, local: Ip) -> Option<Ip> {
    let socket = storage::get(ctx.sock())?;
    if !matches!(socket.role, role::APPLICATION | role::DNS) || !local.is_loopback() {
        return None;
    }
    let pod = pod(&netns(ctx))?;
    let own = if socket.endpoint.ip.is_v4() {
        pod.ip4
    } else {
        pod.ip6
    };
    (!own.is_none()).then_some(own)
}

/// The peer that the socket's owner should see; port 0 keeps the true one.
#[inline(always)]
fn peer(socket: &Socket) -> Option<(Ip, u16)> {
    match socket.role {
        role::APPLICATION | role::DNS => Some((socket.endpoint.ip, socket.endpoint.port as u16)),
        role::APPLICATION_ACCEPTED => Some((socket.endpoint.ip, 0)),
        role::PROXY_ACCEPTED if !socket.source.is_none() => Some((socket.source, 0)),
        _ => None,
    }
}

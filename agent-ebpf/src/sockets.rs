//! Events of TCP sockets: the hand-over between the two ends of a captured connection, trusted flows, listeners.
//!
//! `node_sockets` sees every socket of the node, `proxy_sockets` those of the proxy, and before the other does.

use agent_common::address::{AddressKey, Ip};
use agent_common::flow::{Flow, Handover, ListenerKey, Socket, Trusted, handover, role};
use agent_common::limits::LISTENER_SLOTS;
use agent_common::pod::NetnsKey;
use agent_common::ports;
use aya_ebpf::bindings::{
    BPF_NOEXIST, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB, BPF_SOCK_OPS_STATE_CB, BPF_SOCK_OPS_STATE_CB_FLAG,
    BPF_SOCK_OPS_TCP_CONNECT_CB, BPF_SOCK_OPS_TCP_LISTEN_CB, BPF_TCP_CLOSE, bpf_sock,
};
use aya_ebpf::macros::sock_ops;
use aya_ebpf::programs::SockOpsContext;

use crate::context::{Established, netns, pod, reuse_address};
use crate::count::count;
use crate::maps::{ADDRESSES, HANDOVER, LISTENERS, SETTINGS, TRUSTED};
use crate::storage;

/// Sock_ops programs answer only questions that we do not ask.
const NO_ANSWER: u32 = 1;

#[sock_ops]
pub(crate) fn node_sockets(ctx: SockOpsContext) -> u32 {
    match ctx.op() {
        BPF_SOCK_OPS_TCP_CONNECT_CB => connecting(&ctx),
        BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB => application_accepted(&ctx),
        BPF_SOCK_OPS_STATE_CB if ctx.arg(1) == BPF_TCP_CLOSE => closed(&ctx),
        _ => {}
    }
    NO_ANSWER
}

#[sock_ops]
pub(crate) fn proxy_sockets(ctx: SockOpsContext) -> u32 {
    match ctx.op() {
        BPF_SOCK_OPS_TCP_LISTEN_CB => proxy_listens(&ctx),
        BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB if ctx.local_port() == u32::from(ports::OUTBOUND) => {
            proxy_accepted(&ctx);
        }
        _ => {}
    }
    NO_ANSWER
}

/// A socket is about to send its SYN, and has its addresses.
#[inline(always)]
fn connecting(ctx: &SockOpsContext) {
    let sk = ctx.sock();
    if sk.is_null() {
        return;
    }
    let netns = netns(ctx);
    match storage::get(sk) {
        Some(socket) => match socket.role {
            role::APPLICATION => hand_over(ctx, &netns, socket, handover::OUTBOUND),
            role::PROXY_FOR_CLIENT => hand_over(ctx, &netns, socket, handover::INBOUND),
            role::PROXY_WIRE => trust(ctx, socket, &netns),
            _ => node_connects(ctx, sk, &netns),
        },
        None => node_connects(ctx, sk, &netns),
    }
}

/// Leaves a message for the accepting side.
#[inline(always)]
fn hand_over(ctx: &SockOpsContext, netns: &NetnsKey, socket: &Socket, kind: u32) {
    let message = Handover {
        socket: ctx.socket_cookie(),
        endpoint: socket.endpoint,
        kind,
    };
    if HANDOVER.insert(&ctx.flow_from_here(netns), &message, 0).is_ok() {
        watch_state(ctx);
        if kind == handover::INBOUND {
            count!(
                netns,
                inbound_for_client,
                socket.endpoint.ip,
                socket.endpoint.port
            );
        }
    } else if kind == handover::OUTBOUND {
        count!(
            netns,
            outbound_handover_full,
            socket.endpoint.ip,
            socket.endpoint.port
        );
    } else {
        count!(
            netns,
            inbound_handover_full,
            socket.endpoint.ip,
            socket.endpoint.port
        );
    }
}

/// A process of the node itself connects to an enrolled pod: a probe.
#[inline(always)]
fn node_connects(ctx: &SockOpsContext, sk: *mut bpf_sock, netns: &NetnsKey) {
    let Some(settings) = SETTINGS.get(0) else { return };
    if settings.node_netns != netns.netns {
        return;
    }
    let destination = ctx.flow_from_here(netns).destination;
    let key = AddressKey {
        network: settings.node_network,
        ip: destination,
    };
    // SAFETY: map values stay readable for the run of the program (RCU).
    let Some(owner) = (unsafe { ADDRESSES.get(&key) }) else {
        return;
    };
    let pod = NetnsKey { netns: owner.netns };
    // Storage first: an entry whose socket cannot remove it must not come to be.
    match storage::make(sk) {
        Some(socket) => {
            socket.role = role::TRUSTED;
            trust(ctx, socket, &pod);
        }
        None => count!(&pod, trusted_full),
    }
}

/// Lets this very connection pass `inbound` in the pod's network namespace.
#[inline(always)]
fn trust(ctx: &SockOpsContext, socket: &mut Socket, pod: &NetnsKey) {
    socket.trusted_netns = pod.netns;
    let value = Trusted {
        socket: ctx.socket_cookie(),
    };
    if TRUSTED.insert(&ctx.flow_from_here(pod), &value, 0).is_ok() {
        watch_state(ctx);
    } else {
        count!(pod, trusted_full);
    }
}

/// Asks for the event of this socket's close.
#[inline(always)]
fn watch_state(ctx: &SockOpsContext) {
    let _ = ctx.set_cb_flags((ctx.cb_flags() | BPF_SOCK_OPS_STATE_CB_FLAG) as i32);
}

/// A socket with something of ours in a map is gone.
#[inline(always)]
fn closed(ctx: &SockOpsContext) {
    let sk = ctx.sock();
    if sk.is_null() {
        return;
    }
    let Some(socket) = storage::get(sk) else { return };
    match socket.role {
        role::APPLICATION | role::PROXY_FOR_CLIENT => {
            let flow = ctx.flow_from_here(&netns(ctx));
            // SAFETY: map values stay readable for the run of the program (RCU).
            if unsafe { HANDOVER.get(&flow) }.is_some_and(|left| left.socket == ctx.socket_cookie()) {
                let _ = HANDOVER.remove(&flow);
            }
        }
        role::TRUSTED | role::PROXY_WIRE => {
            let flow = ctx.flow_from_here(&NetnsKey {
                netns: socket.trusted_netns,
            });
            // SAFETY: as above.
            if unsafe { TRUSTED.get(&flow) }.is_some_and(|left| left.socket == ctx.socket_cookie()) {
                let _ = TRUSTED.remove(&flow);
            }
        }
        _ => {}
    }
}

/// Takes the message that the connecting side left, if it is of this kind.
#[inline(always)]
fn take(flow: &Flow, kind: u32) -> Option<Handover> {
    // SAFETY: map values stay readable for the run of the program (RCU).
    let message = *unsafe { HANDOVER.get(flow) }?;
    if message.kind != kind {
        return None;
    }
    let _ = HANDOVER.remove(flow);
    Some(message)
}

/// The application has accepted a connection; from within the pod it may be the proxy's, on behalf of a client.
#[inline(always)]
fn application_accepted(ctx: &SockOpsContext) {
    let sk = ctx.sock();
    if sk.is_null() {
        return;
    }
    let netns = netns(ctx);
    let Some(pod) = pod(&netns) else { return };
    let flow = ctx.flow_from_there(&netns);
    if !flow.source.is_local() && !flow.source.same(&pod.ip6) {
        return;
    }
    if let Some(message) = take(&flow, handover::INBOUND)
        && storage::assign(sk, role::APPLICATION_ACCEPTED, message.endpoint)
    {
        count!(
            &netns,
            inbound_client_restored,
            message.endpoint.ip,
            message.endpoint.port
        );
    }
}

/// The proxy has accepted a connection on its outbound port.
#[inline(always)]
fn proxy_accepted(ctx: &SockOpsContext) {
    let sk = ctx.sock();
    if sk.is_null() {
        return;
    }
    let netns = netns(ctx);
    let Some(pod) = pod(&netns) else { return };
    let flow = ctx.flow_from_there(&netns);
    let Some(message) = take(&flow, handover::OUTBOUND) else {
        count!(&netns, outbound_not_handed_over);
        return;
    };
    let Some(socket) = storage::make(sk) else {
        count!(&netns, outbound_not_handed_over);
        return;
    };
    // An application speaks from loopback by IPv6, and where its socket was bound to a port of every address.
    socket.source = match (flow.source.is_local(), flow.source.is_v4()) {
        (false, _) => Ip::NONE,
        (true, true) => pod.ip4,
        (true, false) => pod.ip6,
    };
    socket.endpoint = message.endpoint;
    socket.role = role::PROXY_ACCEPTED;
    count!(
        &netns,
        outbound_handed_over,
        message.endpoint.ip,
        message.endpoint.port
    );
}

/// The proxy listens in some network namespace; children inherit the option.
#[inline(always)]
fn proxy_listens(ctx: &SockOpsContext) {
    reuse_address(ctx);
    if ctx.local_port() != u32::from(ports::INBOUND) {
        return;
    }
    let netns = netns(ctx);
    for slot in 0..LISTENER_SLOTS {
        let key = ListenerKey {
            netns: netns.netns,
            slot,
            reserved: 0,
        };
        if LISTENERS.add(key, ctx.ops, u64::from(BPF_NOEXIST)) {
            count!(&netns, listener_added);
            return;
        }
    }
    count!(&netns, listener_full);
}

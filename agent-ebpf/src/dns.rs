//! DNS: questions of applications go to the proxy's DNS server, and answers come from the name server that was asked.
//!
//! Sockets that are connected to a name server are `outbound`'s; here are messages that name their destination. All of
//! them end at one socket of the proxy's, so the question's source address says which name server was meant, and the
//! proxy answers from that address ([`agent_common::dns`]). Where nobody listens nothing is sent elsewhere.

use agent_common::address::Ip;
use agent_common::dns::Alias;
use agent_common::flow::role;
use agent_common::pod::{NetnsKey, Pod, flags};
use agent_common::ports;
use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::{bpf_sock_tuple, bpf_sock_tuple__bindgen_ty_1__bindgen_ty_2 as Tuple6};
use aya_ebpf::helpers::generated::{bpf_sk_lookup_udp, bpf_sk_release};
use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;

use crate::context::{ALLOW, Asked, DENY, leave_device, netns, pod};
use crate::count::count;
use crate::outbound::{ENETUNREACH, Verdict, exempt, refuse as fail};
use crate::proxy_upstream::mark;
use crate::storage;

/// `EAGAIN`.
const EAGAIN: i32 = 11;
/// `BPF_F_CURRENT_NETNS`: the socket's own network namespace.
const OWN_NETNS: u64 = u64::MAX;

#[cgroup_sock_addr(sendmsg4)]
pub(crate) fn app_sendmsg4(ctx: SockAddrContext) -> i32 {
    if ctx.port() != ports::NAME_SERVER {
        return ALLOW;
    }
    let netns = netns(&ctx);
    let Some(pod) = pod(&netns) else { return ALLOW };
    let server = ctx.ip4();
    match decide(&ctx, &netns, pod, &server, &pod.ip4) {
        Verdict::Leave => ALLOW,
        Verdict::Refuse => DENY,
        Verdict::Capture(proxy, port) => {
            let Some(slot) = remember(&ctx, &netns, &server) else {
                return DENY;
            };
            let bound = ctx.bound4();
            if let Some(alias) = alias(&ctx, slot, bound.words()[3] == 0, bound.same(&pod.ip4)) {
                ctx.set_source4(&alias.address(true));
            }
            ctx.set_ip4(&proxy);
            ctx.set_port(port);
            ALLOW
        }
    }
}

#[cgroup_sock_addr(sendmsg6)]
pub(crate) fn app_sendmsg6(ctx: SockAddrContext) -> i32 {
    if ctx.port() != ports::NAME_SERVER {
        return ALLOW;
    }
    let netns = netns(&ctx);
    let Some(pod) = pod(&netns) else { return ALLOW };
    let server = ctx.ip6();
    match decide(&ctx, &netns, pod, &server, &pod.ip6) {
        Verdict::Leave => ALLOW,
        Verdict::Refuse => DENY,
        Verdict::Capture(proxy, port) => {
            let Some(slot) = remember(&ctx, &netns, &server) else {
                return DENY;
            };
            let bound = ctx.bound6();
            if let Some(alias) = alias(&ctx, slot, bound.is_none(), bound.same(&pod.ip6)) {
                ctx.set_source6(&alias.address(false));
            }
            ctx.set_ip6(&proxy);
            ctx.set_port(port);
            ALLOW
        }
    }
}

/// Keeps the name server that a socket asks, and returns its slot.
#[inline(always)]
fn remember(ctx: &SockAddrContext, netns: &NetnsKey, server: &Ip) -> Option<usize> {
    let asked = storage::make_asked(ctx.sock());
    if asked.is_none() {
        count!(netns, dns_no_memory);
    }
    Some(asked?.ask(server))
}

/// The source of a question; none where the answer must come to the socket's own address and from the proxy's: it is
/// connected, or bound to an address that the proxy's side does not know.
#[inline(always)]
fn alias(ctx: &SockAddrContext, slot: usize, is_unbound: bool, is_pods: bool) -> Option<Alias> {
    (ctx.peer_port() == 0 && (is_unbound || is_pods)).then_some(Alias { slot, is_pods })
}

/// Decides about a message to a name server.
#[inline(always)]
fn decide(ctx: &SockAddrContext, netns: &NetnsKey, pod: &Pod, server: &Ip, source: &Ip) -> Verdict {
    if !is_captured(ctx, pod) {
        return Verdict::Leave;
    }
    if let Some(socket) = storage::get(ctx.sock()) {
        match socket.role {
            // A program of the proxy's cgroup has run before this one.
            role::PROXY => return Verdict::Leave,
            // It was connected, and is not any more.
            role::DNS if ctx.peer_port() == 0 => socket.role = role::NONE,
            _ => {}
        }
    }
    if let Some(verdict) = exempt(ctx, netns, pod, server, source) {
        return verdict;
    }
    // The kernel has chosen the device already, and loopback cannot be reached by it: the next message can.
    if ctx.is_bound_to_device() && leave_device(ctx) {
        count!(netns, dns_unreachable, *server, ctx.port());
        return fail(EAGAIN);
    }
    // The kernel sends no message from an IPv6 socket to where only IPv4 leads, and none to ::1 by a device.
    match self::server(ctx, server) {
        Some(proxy) if proxy.is_v4() == server.is_v4() && !server.is_v6_link_local() => {
            count!(netns, dns_captured, *server, ctx.port());
            Verdict::Capture(proxy, ports::DNS)
        }
        _ => refuse(netns, server),
    }
}

/// Whether this is about a name server, in a pod whose DNS is captured.
#[inline(always)]
pub(crate) fn is_captured(ctx: &SockAddrContext, pod: &Pod) -> bool {
    pod.flags & flags::DNS != 0 && ctx.is_for_name_server()
}

/// Refuses what cannot reach the proxy's DNS server.
#[inline(always)]
pub(crate) fn refuse(netns: &NetnsKey, server: &Ip) -> Verdict {
    count!(netns, dns_unreachable, *server, ports::NAME_SERVER);
    fail(ENETUNREACH)
}

/// Where the proxy's DNS server is reached in place of this name server: on `::1` it is not where `lo` has no IPv6, and
/// by IPv4 a socket with an IPv6 address of its own cannot go there.
#[inline(always)]
pub(crate) fn server(ctx: &SockAddrContext, server: &Ip) -> Option<Ip> {
    if server.is_v4() || !listens6(ctx) {
        let is_bound6 = !server.is_v4() && !ctx.bound6().is_none();
        return (!is_bound6).then(|| Ip::from_v4_word(u32::from_ne_bytes([127, 0, 0, 1])));
    }
    Some(Ip::from_words(LOOPBACK6))
}

/// `::1`.
const LOOPBACK6: [u32; 4] = [0, 0, 0, 1_u32.to_be()];

/// Whether somebody listens on `[::1]:15053`.
#[inline(always)]
fn listens6(ctx: &SockAddrContext) -> bool {
    let mut tuple = Tuple6 {
        saddr: LOOPBACK6,
        daddr: LOOPBACK6,
        sport: 0,
        dport: ports::DNS.to_be(),
    };
    // SAFETY: the tuple is of the size that stands for IPv6; a socket that is found is released, which is its only use.
    unsafe {
        let tuple: *mut bpf_sock_tuple = (&raw mut tuple).cast();
        let found = bpf_sk_lookup_udp(ctx.as_ptr(), tuple, size_of::<Tuple6>() as u32, OWN_NETNS, 0);
        if found.is_null() {
            return false;
        }
        bpf_sk_release(found.cast());
    }
    true
}

#[cgroup_sock_addr(recvmsg4)]
pub(crate) fn app_recvmsg4(ctx: SockAddrContext) -> i32 {
    if ctx.port() == ports::DNS
        && let Some(server) = answerer(&ctx, &ctx.ip4())
    {
        ctx.set_ip4(&server);
        ctx.set_port(ports::NAME_SERVER);
    }
    ALLOW
}

#[cgroup_sock_addr(recvmsg6)]
pub(crate) fn app_recvmsg6(ctx: SockAddrContext) -> i32 {
    if ctx.port() == ports::DNS
        && let Some(server) = answerer(&ctx, &ctx.ip6())
    {
        ctx.set_ip6(&server);
        ctx.set_port(ports::NAME_SERVER);
    }
    ALLOW
}

/// The name server that an answer of the proxy's DNS server is meant to be from.
#[inline(always)]
fn answerer(ctx: &SockAddrContext, from: &Ip) -> Option<Ip> {
    let server = match storage::get(ctx.sock()) {
        Some(socket) if socket.role == role::DNS && from.is_loopback() => socket.endpoint.ip,
        _ => storage::asked(ctx.sock())?.answerer(from)?,
    };
    let netns = netns(ctx);
    count!(&netns, dns_answered, server, ports::NAME_SERVER);
    Some(server)
}

#[cgroup_sock_addr(sendmsg4)]
pub(crate) fn proxy_sendmsg4(ctx: SockAddrContext) -> i32 {
    if ctx.is_for_name_server() {
        return mark(&ctx, role::PROXY);
    }
    let to = ctx.ip4();
    if let Some(alias) = answered(&ctx, &to) {
        ctx.set_source4(&to);
        if alias.is_pods
            && let Some(pod) = pod(&netns(&ctx))
        {
            ctx.set_ip4(&pod.ip4);
        }
    }
    ALLOW
}

#[cgroup_sock_addr(sendmsg6)]
pub(crate) fn proxy_sendmsg6(ctx: SockAddrContext) -> i32 {
    if ctx.is_for_name_server() {
        return mark(&ctx, role::PROXY);
    }
    let to = ctx.ip6();
    if let Some(alias) = answered(&ctx, &to) {
        ctx.set_source6(&to);
        let home = match pod(&netns(&ctx)) {
            Some(pod) if alias.is_pods => pod.ip6,
            _ => Ip::from_words(LOOPBACK6),
        };
        ctx.set_ip6(&home);
    }
    ALLOW
}

/// The alias that the proxy's DNS server answers to, if this is such an answer.
#[inline(always)]
fn answered(ctx: &SockAddrContext, to: &Ip) -> Option<Alias> {
    Alias::read(to).filter(|_| ctx.own_port() == ports::DNS)
}

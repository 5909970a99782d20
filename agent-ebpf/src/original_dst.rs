//! `SO_ORIGINAL_DST` for the proxy, in place of conntrack's: from the accepted socket's storage, and for inbound
//! connections their local address. ztunnel would look there itself, Envoy would not.
//!
//! Attached to the proxy's cgroup. A dual-stack listener accepts IPv4 peers as v4-mapped, so the address itself
//! decides which of the two levels answers: SOL_IP a `sockaddr_in`, SOL_IPV6 a `sockaddr_in6`. At the other level the
//! kernel's own error stands, and the proxy asks at the next.

use agent_common::address::{Endpoint, Ip};
use agent_common::flow::role;
use agent_common::ports;
use aya_ebpf::bindings::bpf_sock;
use aya_ebpf::macros::cgroup_sockopt;
use aya_ebpf::programs::SockoptContext;

use crate::context::{ALLOW, endpoint, netns, pod, read, write};
use crate::storage;

/// `SOL_IP`.
const SOL_IP: i32 = 0;
/// `SOL_IPV6`.
const SOL_IPV6: i32 = 41;
/// `SO_ORIGINAL_DST` and `IP6T_SO_ORIGINAL_DST`.
const SO_ORIGINAL_DST: i32 = 80;
/// `AF_INET`.
const INET: u16 = 2;
/// `AF_INET6`.
const INET6: u16 = 10;

#[cgroup_sockopt(getsockopt)]
pub(crate) fn proxy_getopt(outer: SockoptContext) -> i32 {
    let ctx = outer.sockopt;
    // SAFETY: the kernel hands out a valid context, and these fields are readable in it.
    let (level, name, sk) = unsafe { ((*ctx).level, (*ctx).optname, (*ctx).__bindgen_anon_1.sk) };
    if name != SO_ORIGINAL_DST || (level != SOL_IP && level != SOL_IPV6) || sk.is_null() {
        return ALLOW;
    }
    let original = match storage::get(sk) {
        Some(socket) if socket.role == role::PROXY_ACCEPTED => socket.endpoint,
        None if pod(&netns(&outer)).is_some() => local(sk),
        _ => return ALLOW,
    };
    if original.port == 0 || original.ip.is_v4() != (level == SOL_IP) {
        return ALLOW;
    }
    // SAFETY: as above.
    let (value, end) = unsafe {
        (
            (*ctx).__bindgen_anon_2.optval.cast::<u8>(),
            (*ctx).__bindgen_anon_3.optval_end.cast::<u8>(),
        )
    };
    let port = (original.port as u16).to_be();
    let words = original.ip.words();
    if level == SOL_IP {
        // SAFETY: only compared, not read.
        if unsafe { value.add(16) } > end {
            return ALLOW;
        }
        // SAFETY: 16 bytes are there, as just checked.
        unsafe {
            value.cast::<u16>().write(INET);
            value.add(2).cast::<u16>().write(port);
            value.add(4).cast::<u32>().write(words[3]);
            value.add(8).cast::<u64>().write(0);
        }
        write!((*ctx).optlen, 16);
    } else {
        // SAFETY: only compared, not read.
        if unsafe { value.add(28) } > end {
            return ALLOW;
        }
        // SAFETY: 28 bytes are there, as just checked.
        unsafe {
            value.cast::<u16>().write(INET6);
            value.add(2).cast::<u16>().write(port);
            value.add(4).cast::<u32>().write(0);
            value.add(8).cast::<u32>().write(words[0]);
            value.add(12).cast::<u32>().write(words[1]);
            value.add(16).cast::<u32>().write(words[2]);
            value.add(20).cast::<u32>().write(words[3]);
            value.add(24).cast::<u32>().write(0);
        }
        write!((*ctx).optlen, 28);
    }
    write!((*ctx).retval, 0);
    ALLOW
}

/// The socket's own address; with port 0 where that is a port of the proxy's. `inbound` redirects nothing to another port,
/// so a connection has such a port because its client dialled it, or because a rule that somebody else left in the pod
/// redirected it there: conntrack knows which.
#[inline(always)]
fn local(sk: *mut bpf_sock) -> Endpoint {
    let port = match read!((*sk).src_port) as u16 {
        own if ports::is_proxys(own) => 0,
        other => other,
    };
    if read!((*sk).family) == u32::from(INET) {
        return endpoint(Ip::from_v4_word(read!((*sk).src_ip4)), port);
    }
    let words = [
        read!((*sk).src_ip6[0]),
        read!((*sk).src_ip6[1]),
        read!((*sk).src_ip6[2]),
        read!((*sk).src_ip6[3]),
    ];
    endpoint(Ip::from_words(words), port)
}

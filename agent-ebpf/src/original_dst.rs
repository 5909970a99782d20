//! `SO_ORIGINAL_DST` for the proxy, in place of conntrack's: from the accepted socket's storage.
//!
//! Attached to the proxy's cgroup. A dual-stack listener accepts IPv4 peers as v4-mapped, so the address in the storage
//! decides which of the two levels answers: SOL_IP a `sockaddr_in`, SOL_IPV6 a `sockaddr_in6`. At the other level the
//! kernel's own error stands, and the proxy asks at the next.

use agent_common::flow::role;
use aya_ebpf::macros::cgroup_sockopt;
use aya_ebpf::programs::SockoptContext;

use crate::context::{ALLOW, write};
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
pub(crate) fn proxy_getopt(ctx: SockoptContext) -> i32 {
    let ctx = ctx.sockopt;
    // SAFETY: the kernel hands out a valid context, and these fields are readable in it.
    let (level, name, sk) = unsafe { ((*ctx).level, (*ctx).optname, (*ctx).__bindgen_anon_1.sk) };
    if name != SO_ORIGINAL_DST || (level != SOL_IP && level != SOL_IPV6) || sk.is_null() {
        return ALLOW;
    }
    let Some(socket) = storage::get(sk) else {
        return ALLOW;
    };
    let original = socket.endpoint;
    if socket.role != role::PROXY_ACCEPTED || original.ip.is_v4() != (level == SOL_IP) {
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

//! bind() of applications in enrolled pods: the proxy's ports are the proxy's, and its sockets on the application's port must
//! not be in the way.
//!
//! The proxy accepts connections to podIP:port in the application's place, and such a socket may be in TIME_WAIT when
//! the application starts. With SO_REUSEADDR bind() ignores it; a second listener still gets EADDRINUSE (socket(7)).

use agent_common::flow::role;
use aya_ebpf::helpers::bpf_set_retval;
use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;

use crate::context::{ALLOW, Asked, DENY, netns, pod, reuse_address};
use crate::storage;

/// `EADDRINUSE`.
const EADDRINUSE: i32 = 98;

#[cgroup_sock_addr(bind4)]
pub(crate) fn app_bind4(ctx: SockAddrContext) -> i32 {
    bind(&ctx)
}

#[cgroup_sock_addr(bind6)]
pub(crate) fn app_bind6(ctx: SockAddrContext) -> i32 {
    bind(&ctx)
}

#[inline(always)]
fn bind(ctx: &SockAddrContext) -> i32 {
    let is_proxys = ctx.is_for_proxys_port();
    if !(ctx.is_tcp() || is_proxys) || ctx.port() == 0 || pod(&netns(ctx)).is_none() {
        return ALLOW;
    }
    if is_proxys && storage::get(ctx.sock()).is_none_or(|socket| socket.role != role::PROXY) {
        // SAFETY: the helper only sets the result of the system call that this program refuses.
        unsafe { bpf_set_retval(-EADDRINUSE) };
        return DENY;
    }
    if ctx.is_tcp() {
        reuse_address(ctx);
    }
    ALLOW
}

//! bind() of applications in enrolled pods: the proxy's sockets on the application's port must not be in the way.
//!
//! The proxy accepts connections to podIP:port in the application's place, and such a socket may be in TIME_WAIT when
//! the application starts. With SO_REUSEADDR bind() ignores it; a second listener still gets EADDRINUSE (socket(7)).

use aya_ebpf::macros::cgroup_sock_addr;
use aya_ebpf::programs::SockAddrContext;

use crate::context::{ALLOW, Asked, netns, pod, reuse_address};

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
    if ctx.is_tcp() && ctx.port() != 0 && pod(&netns(ctx)).is_some() {
        reuse_address(ctx);
    }
    ALLOW
}

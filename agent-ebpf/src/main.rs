//! The kernel programs: one file for each row of the table in docs/datapath.md, all maps in one file.
//!
//! Three kinds of attachment: `app_*` and `node_sockets` at the node's root cgroup, where they see every process and
//! act only for enrolled pods; `proxy_*` at the proxy's cgroup, which is how the proxy is recognised (the kernel runs
//! a cgroup's own programs before those of the root); `inbound` in each enrolled pod's network namespace.
#![no_std]
#![no_main]
#![allow(
    clippy::needless_pass_by_value,
    reason = "aya's macros hand contexts over by value"
)]
#![allow(
    clippy::needless_borrows_for_generic_args,
    reason = "by reference keys and values are not copied again"
)]

mod app_bind;
mod context;
mod count;
mod dns;
mod inbound;
mod listeners;
mod maps;
mod original_dst;
mod outbound;
mod peer_name;
mod proxy_upstream;
mod sockets;
mod storage;

/// Never reached: the verifier admits no panic.
#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// `bpf_setsockopt` and others are for GPL-compatible programs.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual BSD/GPL\0";

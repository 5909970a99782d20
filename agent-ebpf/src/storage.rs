//! What each socket is to us: socket storage.

use agent_common::address::Endpoint;
use agent_common::dns::Asked;
use agent_common::flow::Socket;
use aya_ebpf::bindings::{BPF_SK_STORAGE_GET_F_CREATE, bpf_sock};
use aya_ebpf::btf_maps::SkStorage;
use aya_ebpf::helpers::generated::{bpf_sk_storage_get, bpf_skc_to_mptcp_sock};

use crate::maps::{ASKED, SOCKETS};

/// A socket's storage, if it has one.
#[inline(always)]
pub(crate) fn get(sk: *mut bpf_sock) -> Option<&'static mut Socket> {
    find(&raw const SOCKETS, sk, 0)
}

/// A socket's storage, zeroed and made if it has none; `None` when the kernel has no memory.
///
/// A socket that was connected before keeps what it had: the caller writes every field that its role reads.
#[inline(always)]
pub(crate) fn make(sk: *mut bpf_sock) -> Option<&'static mut Socket> {
    find(&raw const SOCKETS, sk, u64::from(BPF_SK_STORAGE_GET_F_CREATE))
}

/// The name servers that an unconnected socket has asked, if it has.
#[inline(always)]
pub(crate) fn asked(sk: *mut bpf_sock) -> Option<&'static mut Asked> {
    find(&raw const ASKED, sk, 0)
}

/// The name servers that an unconnected socket has asked, none if it has not yet; `None` when the kernel has no memory.
#[inline(always)]
pub(crate) fn make_asked(sk: *mut bpf_sock) -> Option<&'static mut Asked> {
    find(&raw const ASKED, sk, u64::from(BPF_SK_STORAGE_GET_F_CREATE))
}

/// A socket's value in a map of socket storage.
#[inline(always)]
fn find<T>(map: *const SkStorage<T>, sk: *mut bpf_sock, flags: u64) -> Option<&'static mut T> {
    // SAFETY: `sk` comes from the context (the verifier checks that); without an initial value the kernel zeroes new
    // storage. The value lives as long as the socket, which the context holds.
    unsafe {
        bpf_sk_storage_get(map.cast_mut().cast(), sk.cast(), core::ptr::null_mut(), flags)
            .cast::<T>()
            .as_mut()
    }
}

/// The application's socket, where `sk` is a part (subflow) of a multipath connection: the application asks it for its
/// names, and connect() goes by way of the part.
#[inline(always)]
pub(crate) fn whole(sk: *mut bpf_sock) -> Option<*mut bpf_sock> {
    // SAFETY: `sk` comes from the context; the helper returns null where there is no such socket, and what it returns
    // lives as long as its part.
    let whole = unsafe { bpf_skc_to_mptcp_sock(sk.cast()) };
    (!whole.is_null()).then_some(whole.cast())
}

/// Gives a socket a role with an endpoint; false when the kernel has no memory.
#[inline(always)]
pub(crate) fn assign(sk: *mut bpf_sock, role: u32, endpoint: Endpoint) -> bool {
    match make(sk) {
        Some(socket) => {
            socket.endpoint = endpoint;
            socket.role = role;
            true
        }
        None => false,
    }
}

//! The SOCKHASH of the proxy's listeners.
//!
//! A map type of its own, because the value must have eight bytes for user space to read it (it gets the socket's
//! cookie then, `sock_hash_lookup_sys` in net/core/sock_map.c), and the library's has four.

use agent_common::flow::ListenerKey;
use agent_common::limits;
use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::bpf_map_type::BPF_MAP_TYPE_SOCKHASH;
use aya_ebpf::bindings::bpf_sock_ops;
use aya_ebpf::helpers::{bpf_map_lookup_elem, bpf_sk_assign, bpf_sk_release, bpf_sock_hash_update};
use aya_ebpf::programs::SkLookupContext;

/// A BTF map definition: the loader reads the fields' types, nobody reads their values.
#[repr(C)]
pub(crate) struct Listeners {
    r#type: *const [i32; BPF_MAP_TYPE_SOCKHASH as usize],
    key: *const ListenerKey,
    value: *const u64,
    max_entries: *const [i32; limits::LISTENERS],
}

// SAFETY: the pointers are never followed, see above.
unsafe impl Sync for Listeners {}

impl Listeners {
    pub(crate) const fn new() -> Self {
        Self {
            r#type: core::ptr::null(),
            key: core::ptr::null(),
            value: core::ptr::null(),
            max_entries: core::ptr::null(),
        }
    }

    /// Puts the context's socket in the map; false when there is an entry already, or no room.
    #[inline(always)]
    pub(crate) fn add(&self, mut key: ListenerKey, ops: *mut bpf_sock_ops, flags: u64) -> bool {
        // SAFETY: the map, the key and the context are what the helper takes.
        unsafe {
            bpf_sock_hash_update(
                ops,
                (&raw const *self).cast_mut().cast(),
                (&raw mut key).cast(),
                flags,
            ) == 0
        }
    }

    /// Gives the packet's connection to the listener; false when there is none, or one of the other family.
    #[inline(always)]
    pub(crate) fn steer(&self, ctx: &SkLookupContext, key: ListenerKey) -> bool {
        // SAFETY: the map and the key are what the helper takes.
        let listener =
            unsafe { bpf_map_lookup_elem((&raw const *self).cast_mut().cast(), (&raw const key).cast()) };
        if listener.is_null() {
            return false;
        }
        // SAFETY: a socket from a map is referenced and must be released, which follows.
        let assigned = unsafe { bpf_sk_assign(ctx.as_ptr().cast(), listener, 0) };
        // SAFETY: as above.
        unsafe { bpf_sk_release(listener) };
        assigned == 0
    }
}

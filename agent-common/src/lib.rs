//! What the kernel programs and user space must agree on: map keys and values, names, sizes, ports and marks.
//!
//! Every type is `#[repr(C)]` without implicit padding, so that its bytes are the map's bytes and `bpftool`
//! prints each field by name. A change of any layout here is a change of [`ABI_VERSION`].

#![cfg_attr(not(any(test, feature = "user")), no_std)]

pub mod address;
pub mod counters;
pub mod dns;
pub mod flow;
pub mod limits;
pub mod pod;
pub mod ports;

/// Version of every layout in this crate; part of the pin path, `/sys/fs/bpf/meshgate/v<N>/`.
#[cfg(not(feature = "abi-next"))]
pub const ABI_VERSION: u32 = 1;
/// That of the other layouts, to which the tests upgrade.
#[cfg(feature = "abi-next")]
pub const ABI_VERSION: u32 = 2;

/// Declares a type as plain bytes to aya.
macro_rules! plain_bytes {
    ($($t:ty),+ $(,)?) => {
        $(
            #[cfg(feature = "user")]
            // SAFETY: `repr(C)`, `Copy`, made of integers and integer arrays only, and the size assertion beside
            // its definition proves that there is no padding: every bit pattern is a value.
            unsafe impl aya::Pod for $t {}
        )+
    };
}
pub(crate) use plain_bytes;

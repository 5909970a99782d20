//! Counting decisions, by pod, and telling them one by one when that is asked for.

use agent_common::address::Ip;
use aya_ebpf::Global;

/// Adds one to a counter of the pod in `$netns`; not counted where no pod is enrolled. `$peer` is the other end of the
/// connection and its port, where the program knows them.
macro_rules! count {
    ($netns:expr, $counter:ident) => {
        crate::count::count!($netns, $counter, agent_common::address::Ip::NONE, 0_u32)
    };
    ($netns:expr, $counter:ident, $peer:expr, $port:expr) => {
        if let Some(counters) = crate::maps::COUNTERS.get_ptr_mut($netns) {
            // SAFETY: a per-CPU value, and the program does not migrate while it runs.
            unsafe { (*counters).$counter += 1 };
            if crate::count::is_told() {
                const COUNTER: usize = core::mem::offset_of!(agent_common::counters::PodCounters, $counter);
                crate::count::tell(($netns).netns, COUNTER, &$peer, u32::from($port));
            }
        }
    };
}
pub(crate) use count;

/// Not zero where decisions are told. The agent sets it before it loads the programs: then it is a constant, and the
/// verifier removes what it makes unreachable, so what is not asked for costs nothing.
#[unsafe(no_mangle)]
static TELLING: Global<u8> = Global::new(0);

/// Whether decisions are told.
#[inline(always)]
pub(crate) fn is_told() -> bool {
    TELLING.load() != 0
}

/// Writes one decision to the agent's log; the counter is told by its place among the others, in bytes.
#[inline(never)]
pub(crate) fn tell(netns: u64, counter: usize, peer: &Ip, port: u32) {
    aya_log_ebpf::info!(&(), "{} {} {:i} {}", netns, counter, peer.octets, port);
}

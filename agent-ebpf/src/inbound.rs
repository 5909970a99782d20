//! Inbound TCP: the SYN of a connection from outside is given to the proxy's listener in the pod.
//!
//! Attached to the pod's network namespace; consulted for packets that belong to no connection yet. Nothing is
//! rewritten: the proxy's accepted socket has the original destination as its local address. Without a listener the
//! connection is refused, never passed.

use agent_common::address::Ip;
use agent_common::flow::{Flow, ListenerKey, NETNS_PLACEHOLDER};
use agent_common::limits::LISTENER_SLOTS;
use agent_common::pod::NetnsKey;
use agent_common::ports;
use aya_ebpf::bindings::sk_action::{SK_DROP, SK_PASS};
use aya_ebpf::macros::sk_lookup;
use aya_ebpf::programs::SkLookupContext;

use crate::context::{TCP, addresses, owns, pod, read};
use crate::count::count;
use crate::maps::{LISTENERS, TRUSTED};

#[sk_lookup]
pub(crate) fn inbound(ctx: SkLookupContext) -> u32 {
    if read!((*ctx.lookup).protocol) != TCP {
        return SK_PASS;
    }
    let netns = NetnsKey {
        netns: NETNS_PLACEHOLDER,
    };
    let Some(pod) = pod(&netns) else { return SK_PASS };
    let (destination, source): (Ip, Ip) = addresses!(ctx.lookup);
    if destination.is_local() {
        return SK_PASS;
    }
    let port = read!((*ctx.lookup).local_port);
    let source_port = u32::from(u16::from_be(read!((*ctx.lookup).remote_port)));
    if port == u32::from(ports::HBONE) {
        count!(&netns, inbound_hbone, source, source_port);
        return SK_PASS;
    }
    if source.is_local() || source.same(&destination) || owns(&netns, pod, &source) {
        count!(&netns, inbound_local, source, source_port);
        return SK_PASS;
    }
    let flow = Flow {
        netns: netns.netns,
        source,
        destination,
        source_port,
        destination_port: port,
    };
    // SAFETY: map values stay readable for the run of the program (RCU).
    if unsafe { TRUSTED.get(&flow) }.is_some() {
        count!(&netns, inbound_trusted, source, source_port);
        return SK_PASS;
    }
    for slot in 0..LISTENER_SLOTS {
        let key = ListenerKey {
            netns: netns.netns,
            slot,
            reserved: 0,
        };
        if LISTENERS.steer(&ctx, key) {
            count!(&netns, inbound_captured, source, source_port);
            return SK_PASS;
        }
    }
    count!(&netns, inbound_refused, source, source_port);
    SK_DROP
}

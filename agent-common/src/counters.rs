//! What was decided, counted for each pod: value of the per-CPU map `COUNTERS`.

/// Declares [`PodCounters`] with its names, so that the programs, `bpftool` and the CLI use the same words.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident),+ $(,)?) => {
        /// Decisions for one pod on one CPU, since it was enrolled. The entry with netns 0 is the node itself.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct PodCounters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl PodCounters {
            /// Each counter's name, what it counts, and its value.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+), self.$name)),+].into_iter()
            }

            /// Adds another CPU's counters.
            pub fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
            }
        }
    };
}

counters! {
    /// Connects of an application that were sent to the proxy.
    outbound_captured,
    /// Connects, and messages to name servers, to loopback or an unspecified address: left alone.
    outbound_loopback,
    /// Connects, and messages to name servers, to one of the pod's own addresses: left alone.
    outbound_own_address,
    /// Connects, and messages to name servers, refused (ENETUNREACH): the pod has no address of that family.
    outbound_no_address,
    /// Connects refused (EPERM): the socket is bound to a device that it cannot be freed from.
    outbound_device,
    /// Connects refused (EPERM): the kernel had no memory for the socket's original destination.
    outbound_no_memory,
    /// Original destinations handed to the proxy at its accept.
    outbound_handed_over,
    /// Connections that the proxy accepted on its outbound port without an original destination.
    outbound_not_handed_over,
    /// Connections to the proxy whose original destination found no room: the proxy refuses them.
    outbound_handover_full,
    /// Connections from outside that were given to the proxy.
    inbound_captured,
    /// Connections from outside to the HBONE port: left alone.
    inbound_hbone,
    /// Connections that stay in the pod (from loopback or an own address): left alone.
    inbound_local,
    /// Connections of the node's own processes: left alone.
    inbound_trusted,
    /// Connections from outside refused: no proxy listens.
    inbound_refused,
    /// Connections of the proxy to the application on behalf of a client.
    inbound_for_client,
    /// Clients made known to the application at its accept.
    inbound_client_restored,
    /// Connections of the proxy whose client found no room: the application sees loopback.
    inbound_handover_full,
    /// Connections of the node's own processes that found no room among the trusted ones: captured.
    trusted_full,
    /// Listeners of the proxy that were registered.
    listener_added,
    /// Listeners of the proxy that found no free slot.
    listener_full,
    /// Connects and messages to a name server that were sent to the proxy's DNS server.
    dns_captured,
    /// Answers of the proxy's DNS server that were given the address of the name server that was asked.
    dns_answered,
    /// Connects and messages to a name server refused: from that socket the proxy's DNS server cannot be reached.
    dns_unreachable,
    /// Messages to a name server refused (EPERM): the kernel had no memory for the server's address.
    dns_no_memory,
}

const _: () = assert!(size_of::<PodCounters>().is_multiple_of(8));
crate::plain_bytes!(PodCounters);

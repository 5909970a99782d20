//! Ports, marks and numbers of the ambient contract (Istio, architecture/ambient/ztunnel.md).

/// The proxy's listener for outbound connections of the pod.
pub const OUTBOUND: u16 = 15001;
/// The proxy's listener for inbound connections that are not HBONE.
pub const INBOUND: u16 = 15006;
/// The proxy's listener for HBONE; the original destination is the listener itself, so it is never redirected.
pub const HBONE: u16 = 15008;
/// The proxy's DNS server: UDP and TCP, on `127.0.0.1` and, where `lo` has IPv6, on `::1`.
pub const DNS: u16 = 15053;
/// Where DNS servers listen, and what is captured as DNS.
pub const NAME_SERVER: u16 = 53;
/// Whether only the proxy may bind to this port in an enrolled pod, by TCP; by UDP it is [`DNS`] alone.
#[inline(always)]
#[must_use]
pub const fn is_proxys(port: u16) -> bool {
    matches!(port, OUTBOUND | INBOUND | HBONE | DNS)
}

/// Mark of a pod's connection whose answers must come back to the proxy (`wire` mode only).
pub const RETURN_MARK: u32 = 0x111;
/// Bits of a mark that belong to the mesh.
pub const MARK_MASK: u32 = 0xfff;
/// Routing table of `wire` mode: everything is local, by way of `lo`.
pub const RETURN_TABLE: u32 = 100;
/// Priority of the rule that leads to [`RETURN_TABLE`].
pub const RETURN_RULE_PRIORITY: u32 = 32764;

//! A captured pod, as the maps hold it: what is compared with what should be.

use std::net::IpAddr;

use crate::ids::{NetworkName, PodRef};

/// Cookie of a network namespace: never reused while the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetnsCookie(pub u64);

/// Everything the maps say of one captured pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEntry {
    /// Who it is.
    pub pod: PodRef,
    /// Its network namespace.
    pub netns: NetnsCookie,
    /// Its network.
    pub network: NetworkName,
    /// Its addresses in its network, as Kubernetes says: those that belong to this pod and no newer one.
    pub addresses: Vec<IpAddr>,
    /// Source of captured IPv4 connections.
    pub source4: Option<IpAddr>,
    /// Source of captured IPv6 connections.
    pub source6: Option<IpAddr>,
    /// The application sees the client's address in the packets (`wire` mode).
    pub wire: bool,
    /// DNS questions go to the proxy.
    pub dns: bool,
    /// Connections from outside are captured (false: annotation `ambient.istio.io/bypass-inbound-capture`).
    pub inbound: bool,
    /// The proxy has accepted the pod.
    pub enabled: bool,
}

impl PodEntry {
    /// Whether the maps hold nothing but the pod's name, or no address of it.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.addresses.is_empty() && self.source4.is_none() && self.source6.is_none() && !self.enabled
    }
}

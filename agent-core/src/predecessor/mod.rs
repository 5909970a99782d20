//! What Istio's node agent leaves in a pod that it enrolled, by name (istio/istio, cni/pkg/iptables and cni/pkg/nftables),
//! and what of it goes when. In reading order: [`connections`], [`nft`], [`xtables`], [`host`].
//!
//! It goes in two steps. Rules that lead *new* connections to the proxy go as soon as our programs do the same. Rules that
//! lead answers of *open* connections back to the proxy go with the last of these connections.

pub mod connections;
pub mod host;
pub mod nft;
pub mod xtables;

/// The chains of a pod, which iptables' `PREROUTING` and `OUTPUT` jump to. Both are in each table that has any: a sidecar's
/// rules have an `ISTIO_OUTPUT` too, but no `ISTIO_PRERT`.
pub const CHAINS: [&str; 2] = ["ISTIO_PRERT", "ISTIO_OUTPUT"];

/// The table of iptables whose rules answers need.
pub const ANSWERS: &str = "mangle";
/// The tables of iptables whose rules see new connections only.
pub const OPENINGS: [&str; 2] = ["nat", "raw"];

/// How much is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What leads new connections to the proxy.
    Openings,
    /// All.
    Everything,
}

/// How a pod's namespace is to be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clearing {
    /// The rule and the routes by which answers come back are ours too (`wire` mode): they stay.
    pub keeps_routes: bool,
    /// What open connections need stays until they have ended.
    pub waits: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// Nothing is left.
    Gone,
    /// New connections see nothing of it; so many older ones still need the rest.
    Draining(usize),
}

//! What Istio's node agent leaves in the node's own network namespace: connections of the node's processes to enrolled pods
//! get another source address, by which its rules in the pods know probes. Our programs know probes by their true source.

use super::nft::{Chain, Family, Table};

/// The chain of iptables, which `POSTROUTING` of table `nat` jumps to.
pub const CHAIN: &str = "ISTIO_POSTRT";
/// The sets (ipset) of the addresses of pods whose probes get another source, IPv4 and IPv6.
pub const SETS: [&str; 2] = ["istio-inpod-probes-v4", "istio-inpod-probes-v6"];

/// The tables in which the chain may be.
#[must_use]
pub fn shared_tables() -> [Table; 2] {
    [Family::V4, Family::V6].map(|family| Table {
        family,
        name: "nat".to_owned(),
    })
}

/// The table of Istio's nft backend, with its sets.
#[must_use]
pub fn own_table() -> Table {
    Table {
        family: Family::Inet,
        name: "istio-ambient-nat".to_owned(),
    }
}

/// Where a jump to the chain can be.
#[must_use]
pub fn jumping_chain(table: &Table) -> Chain {
    Chain {
        table: table.clone(),
        name: "POSTROUTING".to_owned(),
    }
}

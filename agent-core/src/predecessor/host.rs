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

/// Whether [`own_table`] can be removed, or only its rules: with the last nat chain of a family the kernel stops to translate
/// that family's connections that are open. `translating` are the tables of nf_tables with such chains, `legacy` the
/// families that have them in iptables-legacy.
#[must_use]
pub fn own_table_may_go(translating: &[Table], legacy: &[Family]) -> bool {
    [Family::V4, Family::V6].iter().all(|family| {
        let is_another = |table: &Table| {
            *table != own_table() && (table.family == *family || table.family == Family::Inet)
        };
        legacy.contains(family) || translating.iter().any(is_another)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_goes_where_others_translate_both_families() {
        let [v4, v6] = shared_tables();
        let inet = Table {
            family: Family::Inet,
            name: "mine".to_owned(),
        };
        let rows: [(&[Table], &[Family], bool); 7] = [
            (&[own_table()], &[], false),
            (&[own_table(), v4.clone()], &[], false),
            (&[own_table(), v6.clone()], &[Family::V6], false),
            (&[own_table(), v4.clone()], &[Family::V6], true),
            (&[v4, v6, own_table()], &[], true),
            (&[own_table(), inet], &[], true),
            (&[own_table()], &[Family::V4, Family::V6], true),
        ];
        for (translating, legacy, expected) in rows {
            assert_eq!(
                own_table_may_go(translating, legacy),
                expected,
                "{translating:?} {legacy:?}"
            );
        }
    }
}

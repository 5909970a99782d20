//! Istio's rules in the node's own network namespace, by which probes get another source address: made harmless first, by
//! emptying the sets that they look into, then removed where that cannot harm others.
//!
//! Two things stay, without effect. In iptables-legacy a rule can be removed only by replacing its whole table, which on a node
//! is kube-proxy's too. And the emptied table of Istio's nft backend stays where nobody else translates connections: the
//! kernel would stop to translate those that are open.

use std::fs;
use std::io;

use agent_core::predecessor::host::{CHAIN, SETS, jumping_chain, own_table, own_table_may_go, shared_tables};
use agent_core::predecessor::nft::{self, Removal, Table, without};
use agent_core::predecessor::xtables;

use super::ipset;
use super::nf_tables::Kernel;
use crate::sys::xtables::{Family, Tables};

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Something was there.
    pub anything: bool,
    /// What stays, by the command that removes it.
    pub left: Vec<String>,
}

/// A family in iptables-legacy.
struct Legacy {
    family: Family,
    nft: nft::Family,
    layout: xtables::Layout,
    names: &'static str,
    tool: &'static str,
}

const LEGACY: [Legacy; 2] = [
    Legacy {
        family: Family::V4,
        nft: nft::Family::V4,
        layout: xtables::V4,
        names: "/proc/thread-self/net/ip_tables_names",
        tool: "iptables-legacy",
    },
    Legacy {
        family: Family::V6,
        nft: nft::Family::V6,
        layout: xtables::V6,
        names: "/proc/thread-self/net/ip6_tables_names",
        tool: "ip6tables-legacy",
    },
];

/// Removes Istio's rules and sets from the namespace that the calling thread is in.
///
/// # Errors
/// When the kernel refuses; what was removed until then stays removed.
pub fn remove() -> io::Result<Removed> {
    let mut removed = Removed::default();
    for set in SETS {
        removed.anything |= ipset::flush(set)?;
    }
    if let Some(kernel) = Kernel::open()? {
        let tables = kernel.tables()?;
        removed.anything |= remove_chains(&kernel, &tables)?;
        if tables.contains(&own_table()) {
            removed.anything = true;
            removed.left.extend(remove_own_table(&kernel)?);
        }
    }
    for family in &LEGACY {
        removed.left.extend(family.chain_that_stays()?);
    }
    for set in SETS {
        ipset::destroy(set)?;
    }
    Ok(removed)
}

/// Removes the chain from the tables of iptables-nft.
fn remove_chains(kernel: &Kernel, tables: &[Table]) -> io::Result<bool> {
    let shared: Vec<Table> = shared_tables()
        .into_iter()
        .filter(|table| tables.contains(table))
        .collect();
    if shared.is_empty() {
        return Ok(false);
    }
    let (chains, mut removals) = (kernel.chains()?, Vec::new());
    for table in shared.iter().filter(|table| table.holds(&[CHAIN], &chains)) {
        let rules = kernel.rules(table, Some(&jumping_chain(table).name))?;
        removals.extend(without(table, &[CHAIN], &rules));
    }
    if removals.is_empty() {
        return Ok(false);
    }
    kernel.remove(&removals).map(|()| true)
}

/// Removes the table of Istio's nft backend, or what is in it: then the command that removes the table.
fn remove_own_table(kernel: &Kernel) -> io::Result<Option<String>> {
    let legacy: Vec<_> = LEGACY
        .iter()
        .filter(|family| family.translates())
        .map(|family| family.nft)
        .collect();
    if own_table_may_go(&kernel.translating()?, &legacy) {
        return kernel.remove(&[Removal::Table(own_table())]).map(|()| None);
    }
    kernel.remove(&[Removal::RulesOfTable(own_table())])?;
    Ok(Some(format!("nft delete table inet {}", own_table().name)))
}

impl Legacy {
    /// Whether the namespace has the table; to ask the kernel for it would make it.
    fn translates(&self) -> bool {
        let names = fs::read_to_string(self.names).unwrap_or_default();
        names.lines().any(|name| name == "nat")
    }

    /// The command that removes the chain, if it is there.
    fn chain_that_stays(&self) -> io::Result<Option<String>> {
        if !self.translates() {
            return Ok(None);
        }
        let table = Tables::open(self.family)?.read("nat")?;
        let is_there = matches!(xtables::without(&table, self.layout, &[CHAIN]), Ok(Some(_)));
        let nat = format!("{} -t nat", self.tool);
        Ok(is_there.then(|| format!("{nat} -D POSTROUTING -j {CHAIN}; {nat} -F {CHAIN}; {nat} -X {CHAIN}")))
    }
}

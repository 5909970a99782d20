//! Istio's rules in the node's own network namespace, by which probes get another source address: made harmless first, by
//! emptying the sets that they look into, then removed where that cannot harm others.
//!
//! In iptables-legacy a rule can be removed only by replacing its whole table, which on a node is kube-proxy's too; there the
//! chain stays, without effect.

use std::fs;
use std::io;

use agent_core::predecessor::host::{CHAIN, SETS, jumping_chain, own_table, shared_tables};
use agent_core::predecessor::nft::{Removal, Table, without};
use agent_core::predecessor::xtables;

use super::ipset;
use super::nf_tables::Kernel;
use crate::sys::xtables::{Family, Tables};

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Something was there.
    pub anything: bool,
    /// Chains of iptables-legacy that stay, by the command that removes them.
    pub left: Vec<String>,
}

/// Removes Istio's rules and sets from the namespace that the calling thread is in.
///
/// # Errors
/// When the kernel refuses; what was removed until then stays removed.
pub fn remove() -> io::Result<Removed> {
    let mut removed = Removed::default();
    for set in SETS {
        removed.anything |= ipset::flush(set)?;
    }
    removed.anything |= remove_from_nft()?;
    removed.left = legacy_chains()?;
    for set in SETS {
        ipset::destroy(set)?;
    }
    Ok(removed)
}

fn remove_from_nft() -> io::Result<bool> {
    let Some(kernel) = Kernel::open()? else {
        return Ok(false);
    };
    let tables = kernel.tables()?;
    let mut removals = Vec::new();
    if tables.contains(&own_table()) {
        removals.push(Removal::Table(own_table()));
    }
    let shared: Vec<Table> = shared_tables()
        .into_iter()
        .filter(|table| tables.contains(table))
        .collect();
    if !shared.is_empty() {
        let chains = kernel.chains()?;
        for table in shared.iter().filter(|table| table.holds(&[CHAIN], &chains)) {
            let rules = kernel.rules(table, Some(&jumping_chain(table).name))?;
            removals.extend(without(table, &[CHAIN], &rules));
        }
    }
    if removals.is_empty() {
        return Ok(false);
    }
    kernel.remove(&removals).map(|()| true)
}

fn legacy_chains() -> io::Result<Vec<String>> {
    let families = [
        (
            Family::V4,
            xtables::V4,
            "/proc/thread-self/net/ip_tables_names",
            "iptables",
        ),
        (
            Family::V6,
            xtables::V6,
            "/proc/thread-self/net/ip6_tables_names",
            "ip6tables",
        ),
    ];
    let mut left = Vec::new();
    for (family, layout, path, tool) in families {
        let names = fs::read_to_string(path).unwrap_or_default();
        if !names.lines().any(|name| name == "nat") {
            continue;
        }
        let table = Tables::open(family)?.read("nat")?;
        if matches!(xtables::without(&table, layout, &[CHAIN]), Ok(Some(_))) {
            left.push(format!(
                "{tool}-legacy -t nat -D POSTROUTING -j {CHAIN}; {tool}-legacy -t nat -F {CHAIN}; {tool}-legacy -t nat -X {CHAIN}"
            ));
        }
    }
    Ok(left)
}

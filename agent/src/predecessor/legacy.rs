//! Rules in tables of iptables-legacy. The kernel replaces a table as a whole, unless it has got or lost a rule meanwhile.

use std::fs;
use std::io;

use agent_core::predecessor::xtables::{self, Edited, Layout, V4, V6, without};
use agent_core::predecessor::{ANSWERS, CHAINS, Extent, OPENINGS};

use crate::sys::xtables::{Family, Tables};

/// A table of this namespace that has chains of Istio's.
#[derive(Debug)]
pub(super) struct Table {
    family: Family,
    name: &'static str,
}

/// The tables of a family that are there. To ask the kernel for one that is not would make it.
const NAMES: [(Family, &str); 2] = [
    (Family::V4, "/proc/thread-self/net/ip_tables_names"),
    (Family::V6, "/proc/thread-self/net/ip6_tables_names"),
];

/// The tables of this namespace that have chains of Istio's.
pub(super) fn tables_of_pod() -> io::Result<Vec<Table>> {
    let mut found = Vec::new();
    for (family, path) in NAMES {
        let names = match fs::read_to_string(path) {
            Ok(names) => names,
            // A kernel without iptables-legacy, or without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(io::Error::new(error.kind(), format!("{path}: {error}"))),
        };
        let ours = [ANSWERS].into_iter().chain(OPENINGS);
        for name in ours.filter(|ours| names.lines().any(|line| line == *ours)) {
            let table = Table { family, name };
            if table.edit(&table.read()?)?.is_some() {
                found.push(table);
            }
        }
    }
    Ok(found)
}

impl Table {
    fn read(&self) -> io::Result<xtables::Table> {
        Tables::open(self.family)?.read(self.name)
    }

    /// What the table would be without Istio's chains, if it has them.
    fn edit(&self, is: &xtables::Table) -> io::Result<Option<Edited>> {
        without(is, layout(self.family), &CHAINS).map_err(|error| {
            io::Error::other(format!(
                "table {} of iptables-legacy ({:?}): {error}; restart the pod to be rid of Istio's rules",
                self.name, self.family
            ))
        })
    }

    /// Takes Istio's chains out, if the table is one of those that are to go.
    pub(super) fn remove(&self, extent: Extent) -> io::Result<()> {
        if extent == Extent::Openings && self.name == ANSWERS {
            return Ok(());
        }
        let is = self.read()?;
        match self.edit(&is)? {
            Some(edited) => Tables::open(self.family)?.replace(self.name, is.count, &edited),
            None => Ok(()),
        }
    }
}

const fn layout(family: Family) -> Layout {
    match family {
        Family::V4 => V4,
        Family::V6 => V6,
    }
}

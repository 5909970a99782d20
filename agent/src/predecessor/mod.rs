//! What Istio's node agent left behind: its rules in a pod's network namespace and in the node's, removed by the kernel's own
//! interfaces, never by tools. All functions work in the namespace that the calling thread is in. In reading order:

mod netlink;
mod nf_tables;
mod legacy;
mod connections;
mod ipset;
pub mod host;

use std::io;

use agent_core::predecessor::Extent;

use nf_tables::Ruleset;

/// The rules of a pod, as far as they are Istio's.
#[derive(Debug)]
pub struct Rules {
    nft: Ruleset,
    legacy: Vec<legacy::Table>,
}

impl Rules {
    /// Looks; `None` where there are none. For a pod without any rules that is one question to the kernel.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn find() -> io::Result<Option<Self>> {
        let found = Self {
            nft: Ruleset::of_pod()?,
            legacy: legacy::tables_of_pod()?,
        };
        let is_empty = found.nft.is_empty() && found.legacy.is_empty();
        Ok((!is_empty).then_some(found))
    }

    /// Removes so much of them. What is there beside them stays as it is.
    ///
    /// # Errors
    /// When the kernel refuses, or somebody else changes a table at the same time: to be tried again.
    pub fn remove(&self, extent: Extent) -> io::Result<()> {
        self.nft.remove(extent)?;
        self.legacy.iter().try_for_each(|table| table.remove(extent))
    }

    /// Whether there are such rules here, and answers of connections come back by them.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn are_here() -> io::Result<bool> {
        Ok(Self::find()?.is_some())
    }

    /// How many connections are open that need what [`Extent::Openings`] leaves.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn users() -> io::Result<usize> {
        connections::count()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::netns::enter::enter;
    use crate::netns::fixture::{TestNetns, needs_root};

    #[test]
    fn a_look_at_a_namespace_without_rules_costs_well_below_a_millisecond_and_makes_no_table() {
        needs_root!();
        let netns = TestNetns::new(&["10.9.8.5/32"]);
        let mut costs: Vec<_> = (0..200)
            .map(|_| {
                let start = Instant::now();
                assert!(!enter(&netns.fd, Rules::are_here).unwrap().unwrap());
                start.elapsed()
            })
            .collect();
        costs.sort();
        let median = costs[costs.len() / 2];
        eprintln!("look: median {median:?}, worst {:?}", costs.last().unwrap());
        assert!(median.as_micros() < 1000, "{median:?}");
        let names = enter(&netns.fd, || {
            std::fs::read_to_string("/proc/thread-self/net/ip_tables_names").unwrap_or_default()
        });
        assert_eq!(names.unwrap(), "");
    }
}

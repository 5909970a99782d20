//! Writing pods into the maps and out of them, in an order that survives the agent's death at any point: `NAMES` comes
//! first and goes last, so that a restarted agent knows of whatever may be left; `PODS` comes last and goes first, for
//! with that row the hooks act.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;

use agent_common::address::{AddressKey, AddressOwner};
use agent_common::counters::PodCounters;
use agent_common::limits::GONE;
use agent_common::pod::{NetnsKey, Settings};
use agent_core::entry::{NetnsCookie, PodEntry};
use agent_core::ids::{NetworkName, PodUid};
use aya::maps::{MapError, PerCpuValues};

use super::kernel::error_of;
use super::tables::Tables;
use super::{orphans, rows};
use crate::chain::chain;
use crate::ports::PortError;

/// `BPF_ANY`: make or replace.
const ANY: u64 = 0;
/// Id of the network without a name.
const UNNAMED: u32 = 0;

/// The maps, and what this process knows to be in them.
pub struct Store {
    /// The maps.
    pub tables: Tables,
    networks: HashMap<NetworkName, u32>,
    entries: HashMap<PodUid, PodEntry>,
    node_network: NetworkName,
}

impl Store {
    /// The maps as they are; nothing is changed yet.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn open(tables: Tables, node_network: NetworkName) -> Result<Self, PortError> {
        let unreadable = |error: &dyn Display| error_of("read", "maps", error, true);
        let networks = tables.network_names().map_err(|error| unreadable(&error))?;
        Ok(Self {
            tables,
            networks: ids(networks),
            entries: HashMap::new(),
            node_network,
        })
    }

    /// Learns what is captured. A UID that stands there twice (the agent died while its pod moved to another network
    /// namespace) keeps its newer namespace.
    ///
    /// # Errors
    /// When the maps cannot be read or repaired.
    pub fn adopt(&mut self) -> Result<usize, PortError> {
        let mut entries = self
            .tables
            .entries()
            .map_err(|error| error_of("read", "maps", &error, true))?;
        entries.sort_by_key(|entry| entry.netns);
        for entry in entries {
            if let Some(older) = self.entries.insert(entry.pod.uid.clone(), entry) {
                self.erase(&older)?;
                self.forget(older.netns)?;
            }
        }
        Ok(self.entries.len())
    }

    /// Says what the node is.
    ///
    /// # Errors
    /// When a map refuses.
    pub fn write_settings(&mut self, node_netns: NetnsCookie) -> Result<(), PortError> {
        let unnamed = self.intern(&NetworkName::default())?;
        debug_assert_eq!(unnamed, UNNAMED, "the unnamed network is interned first");
        let node_network = self.intern(&self.node_network.clone())?;
        let settings = Settings {
            node_netns: node_netns.0,
            node_network,
            reserved: 0,
        };
        self.tables
            .settings
            .set(0, settings, ANY)
            .map_err(|error| map_error("SETTINGS", &error))?;
        // With these two the pods' last row has no room: it is one more than pods there can be.
        self.start_counting(NetnsKey { netns: GONE })?;
        self.start_counting(NetnsKey { netns: 0 })
    }

    /// Records the pod's name, before anything else of it: with the changes to its network namespace that are about to
    /// be made.
    ///
    /// # Errors
    /// When the map is full.
    pub fn announce(&mut self, entry: &PodEntry, changed: u32) -> Result<(), PortError> {
        let row = rows::name(entry, changed);
        self.tables
            .names
            .insert(key(entry.netns), row, ANY)
            .map_err(|error| map_error("NAMES", &error))
    }

    /// Writes or replaces a pod.
    ///
    /// # Errors
    /// When a map is full; a pod that was not there is not there after that either.
    pub fn write(&mut self, entry: &PodEntry, changed: u32) -> Result<(), PortError> {
        if let Err(error) = self.try_write(entry, changed) {
            if !self.entries.contains_key(&entry.pod.uid) {
                self.erase(entry)?;
            }
            return Err(error);
        }
        let old = self.entries.insert(entry.pod.uid.clone(), entry.clone());
        match old {
            Some(old) if old.netns != entry.netns => {
                self.erase(&old)?;
                self.forget(old.netns)?;
            }
            Some(old) => self.remove_addresses(&old, &entry.addresses)?,
            None => {}
        }
        self.forget_networks()
    }

    fn try_write(&mut self, entry: &PodEntry, changed: u32) -> Result<(), PortError> {
        let (network, key) = (self.intern(&entry.network)?, key(entry.netns));
        self.announce(entry, changed)?;
        self.start_counting(key)?;
        for (address, owner) in rows::addresses(entry, network) {
            self.tables
                .addresses
                .insert(address, owner, ANY)
                .map_err(|error| map_error("ADDRESSES", &error))?;
        }
        self.tables
            .pods
            .insert(key, rows::pod(entry, network), ANY)
            .map_err(|error| map_error("PODS", &error))
    }

    /// Removes a pod, and only this one: the UID decides. Its name stays until [`Store::forget`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(&mut self, uid: &PodUid) -> Result<(), PortError> {
        let Some(entry) = self.entries.get(uid).cloned() else {
            return Ok(());
        };
        self.erase(&entry)?;
        self.entries.remove(uid);
        self.forget_networks()
    }

    /// Forgets the name of what was in a network namespace, unless a pod is captured there.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn forget(&mut self, netns: NetnsCookie) -> Result<(), PortError> {
        if self.entries.values().any(|entry| entry.netns == netns) {
            return Ok(());
        }
        ignore_missing(self.tables.names.remove(&key(netns))).map_err(|error| map_error("NAMES", &error))
    }

    /// Removes rows that belong to no pod, and returns how many there were. Every pod that should be captured must have
    /// been written before.
    ///
    /// # Errors
    /// When a map cannot be read or written.
    pub fn sweep(&mut self) -> Result<usize, PortError> {
        let of_pod = |entry: &PodEntry| {
            let network = self.networks.get(&entry.network);
            network.map(|network| rows::addresses(entry, *network))
        };
        let addresses = self.entries.values().filter_map(of_pod).flatten();
        let addresses = addresses.map(|(address, _)| address).collect();
        self.forget_networks()?;
        let networks = self.networks.values().copied().collect();
        orphans::sweep(&mut self.tables, &addresses, &networks)
            .map_err(|error| error_of("sweep", "maps", &error, true))
    }

    /// The pods that are captured, or half so.
    pub fn entries(&self) -> impl Iterator<Item = &PodEntry> {
        self.entries.values()
    }

    /// Whether a pod is captured in this network namespace, or half so.
    #[must_use]
    pub fn knows(&self, netns: NetnsCookie) -> bool {
        self.entries.values().any(|entry| entry.netns == netns)
    }

    fn erase(&mut self, entry: &PodEntry) -> Result<(), PortError> {
        let key = key(entry.netns);
        ignore_missing(self.tables.pods.remove(&key)).map_err(|error| map_error("PODS", &error))?;
        self.remove_addresses(entry, &[])?;
        self.stop_counting(key)
    }

    /// Removes a pod's counters. What they counted is added to the sums of pods that are gone.
    fn stop_counting(&mut self, key: NetnsKey) -> Result<(), PortError> {
        let gone = NetnsKey { netns: GONE };
        let counters = &mut self.tables.counters;
        if let (Ok(last), Ok(sums)) = (counters.get(&key, 0), counters.get(&gone, 0)) {
            let add = |(sum, last): (&PodCounters, &PodCounters)| {
                let mut sum = *sum;
                sum.add(last);
                sum
            };
            let sums: Vec<_> = sums.iter().zip(last.iter()).map(add).collect();
            let written = PerCpuValues::try_from(sums)
                .map_err(|error| error_of("count", "CPUs", &error, true))
                .and_then(|sums| {
                    let written = counters.insert(gone, sums, ANY);
                    written.map_err(|error| map_error("COUNTERS", &error))
                });
            written?;
        }
        ignore_missing(counters.remove(&key)).map_err(|error| map_error("COUNTERS", &error))
    }

    /// Removes addresses that a pod had and has no more; those that a newer pod has taken stay.
    fn remove_addresses(&mut self, old: &PodEntry, keep: &[std::net::IpAddr]) -> Result<(), PortError> {
        let Some(network) = self.networks.get(&old.network) else {
            return Ok(());
        };
        for (key, own) in rows::addresses(old, *network) {
            let is_kept = keep.iter().any(|ip| {
                AddressKey {
                    ip: (*ip).into(),
                    ..key
                } == key
            });
            if !is_kept && self.owner(&key).is_some_and(|owner| owner.netns == own.netns) {
                ignore_missing(self.tables.addresses.remove(&key))
                    .map_err(|error| map_error("ADDRESSES", &error))?;
            }
        }
        Ok(())
    }

    fn owner(&self, key: &AddressKey) -> Option<AddressOwner> {
        self.tables.addresses.get(key, 0).ok()
    }

    fn start_counting(&mut self, key: NetnsKey) -> Result<(), PortError> {
        if self.tables.counters.get(&key, 0).is_ok() {
            return Ok(());
        }
        let zero = no_counters().map_err(|error| error_of("count", "CPUs", &error, true))?;
        self.tables
            .counters
            .insert(key, zero, ANY)
            .map_err(|error| map_error("COUNTERS", &error))
    }

    /// The id of a network; a new one gets the lowest free id.
    fn intern(&mut self, network: &NetworkName) -> Result<u32, PortError> {
        if let Some(id) = self.networks.get(network) {
            return Ok(*id);
        }
        let taken: BTreeSet<u32> = self.networks.values().copied().collect();
        let id = (0..).find(|id| !taken.contains(id)).unwrap_or(u32::MAX);
        self.tables
            .networks
            .insert(id, rows::network(network), ANY)
            .map_err(|error| map_error("NETWORKS", &error))?;
        self.networks.insert(network.clone(), id);
        Ok(id)
    }

    /// Forgets networks that no pod is in any more.
    fn forget_networks(&mut self) -> Result<(), PortError> {
        let used: BTreeSet<&NetworkName> = self.entries.values().map(|entry| &entry.network).collect();
        let is_used =
            |name: &NetworkName| name.0.is_empty() || *name == self.node_network || used.contains(name);
        let unused: Vec<_> = self
            .networks
            .iter()
            .filter(|(name, _)| !is_used(name))
            .map(|(name, id)| (name.clone(), *id))
            .collect();
        for (name, id) in unused {
            ignore_missing(self.tables.networks.remove(&id))
                .map_err(|error| map_error("NETWORKS", &error))?;
            self.networks.remove(&name);
        }
        Ok(())
    }
}

/// Ids by name, the lowest of each. The unnamed network has id 0 and nobody else has: what somebody wrote besides is as if
/// it were not there, and goes with the rows that belong to no pod.
fn ids(rows: BTreeMap<u32, NetworkName>) -> HashMap<NetworkName, u32> {
    let mut ids = HashMap::new();
    for (id, name) in rows {
        if name.0.is_empty() == (id == UNNAMED) {
            ids.entry(name).or_insert(id);
        }
    }
    ids
}

fn key(netns: NetnsCookie) -> NetnsKey {
    NetnsKey { netns: netns.0 }
}

fn no_counters() -> std::io::Result<PerCpuValues<PodCounters>> {
    let cpus = aya::util::nr_cpus().map_err(|(_, error)| error)?;
    PerCpuValues::try_from(vec![PodCounters::default(); cpus])
}

fn ignore_missing(result: Result<(), MapError>) -> Result<(), MapError> {
    match result {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

fn map_error(name: &'static str, error: &MapError) -> PortError {
    let text = chain(error);
    let is_full = matches!(error, MapError::SyscallError(error) if matches!(error.io_error.raw_os_error(), Some(libc::E2BIG | libc::ENOSPC)));
    let cause = if is_full {
        format!("the map is full ({text}); take pods out of the mesh or off this node")
    } else {
        text
    };
    error_of("write map", name, &cause, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_rows_say_the_unnamed_network_has_the_first_id_and_each_name_one() {
        let rows = [(0, "spoiled"), (3, "east"), (7, "east"), (9, "")];
        let rows = rows.map(|(id, name)| (id, NetworkName::from(name)));
        let expected = HashMap::from([(NetworkName::from("east"), 3)]);
        assert_eq!(ids(rows.into()), expected);
        let right = [(0, NetworkName::default()), (1, NetworkName::from("east"))];
        assert_eq!(ids(right.into()).len(), 2);
    }
}

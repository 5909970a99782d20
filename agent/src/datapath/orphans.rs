//! Rows that belong to no captured pod: what a crash between two writes, or somebody's hand, left in the maps.

use std::collections::HashSet;

use agent_common::address::AddressKey;
use agent_common::limits::GONE;
use agent_common::pod::NetnsKey;
use aya::maps::MapError;

use super::tables::{Tables, TablesError, map_error};

/// Removes the orphans and returns how many there were. Pods are known by their rows in `NAMES`, and a pod that should be
/// captured must be there before: its row in `PODS` may be all that captures it. `addresses` are those of all pods, and
/// `networks` the ids of the networks that they are in.
///
/// # Errors
/// When a map cannot be read or written.
pub fn sweep(
    tables: &mut Tables,
    addresses: &HashSet<AddressKey>,
    networks: &HashSet<u32>,
) -> Result<usize, TablesError> {
    let names: HashSet<_> = all(tables.names.keys(), "NAMES")?;
    let pods = orphans(all(tables.pods.keys(), "PODS")?, &names);
    let addresses = orphans(all(tables.addresses.keys(), "ADDRESSES")?, addresses);
    let counters = orphans(all(tables.counters.keys(), "COUNTERS")?, &with_node(names));
    let networks = orphans(all(tables.networks.keys(), "NETWORKS")?, networks);
    for key in &pods {
        tables.pods.remove(key).map_err(map_error("PODS"))?;
    }
    for key in &addresses {
        tables.addresses.remove(key).map_err(map_error("ADDRESSES"))?;
    }
    for key in &counters {
        tables.counters.remove(key).map_err(map_error("COUNTERS"))?;
    }
    for id in &networks {
        tables.networks.remove(id).map_err(map_error("NETWORKS"))?;
    }
    Ok(pods.len() + addresses.len() + counters.len() + networks.len())
}

fn all<T, C: FromIterator<T>>(
    keys: impl Iterator<Item = Result<T, MapError>>,
    name: &'static str,
) -> Result<C, TablesError> {
    keys.collect::<Result<_, _>>().map_err(map_error(name))
}

fn orphans<K: Eq + std::hash::Hash>(there: Vec<K>, known: &HashSet<K>) -> Vec<K> {
    there.into_iter().filter(|key| !known.contains(key)).collect()
}

/// The counters of the node itself are kept under a network namespace of 0, those of pods that are gone under [`GONE`].
fn with_node(mut names: HashSet<NetnsKey>) -> HashSet<NetnsKey> {
    names.extend([0, GONE].map(|netns| NetnsKey { netns }));
    names
}

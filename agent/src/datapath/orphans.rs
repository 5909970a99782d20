//! Rows that belong to no pod in `NAMES`: what a crash between two writes, or somebody's hand, left in the other maps.

use std::collections::BTreeMap;

use agent_common::address::{AddressKey, AddressOwner};
use agent_common::pod::{NetnsKey, Pod, PodName};
use agent_core::ids::PodUid;
use aya::maps::MapError;

use super::rows::text;
use super::tables::{Tables, TablesError, map_error};

/// Keys of rows to remove.
#[derive(Debug, Default, PartialEq, Eq)]
struct Orphans {
    pods: Vec<NetnsKey>,
    addresses: Vec<AddressKey>,
    counters: Vec<NetnsKey>,
}

/// Removes the orphans and returns how many there were. A pod that should be captured must be in `NAMES` before: its row
/// in `PODS` may be all that captures it.
///
/// # Errors
/// When a map cannot be read or written.
pub fn sweep(tables: &mut Tables) -> Result<usize, TablesError> {
    let names: Vec<_> = all(tables.names.iter(), "NAMES")?;
    let pods: Vec<_> = all(tables.pods.iter(), "PODS")?;
    let addresses: Vec<_> = all(tables.addresses.iter(), "ADDRESSES")?;
    let counters: Vec<_> = all(tables.counters.keys(), "COUNTERS")?;
    let found = orphans(&names, &pods, &addresses, &counters);
    for key in &found.pods {
        tables.pods.remove(key).map_err(map_error("PODS"))?;
    }
    for key in &found.addresses {
        tables.addresses.remove(key).map_err(map_error("ADDRESSES"))?;
    }
    for key in &found.counters {
        tables.counters.remove(key).map_err(map_error("COUNTERS"))?;
    }
    Ok(found.pods.len() + found.addresses.len() + found.counters.len())
}

fn all<T>(
    rows: impl Iterator<Item = Result<T, MapError>>,
    name: &'static str,
) -> Result<Vec<T>, TablesError> {
    rows.collect::<Result<_, _>>().map_err(map_error(name))
}

fn orphans(
    names: &[(NetnsKey, PodName)],
    pods: &[(NetnsKey, Pod)],
    addresses: &[(AddressKey, AddressOwner)],
    counters: &[NetnsKey],
) -> Orphans {
    let generations: BTreeMap<_, _> = names
        .iter()
        .map(|(key, name)| (key.netns, PodUid(text(&name.uid)).generation()))
        .collect();
    let networks: BTreeMap<_, _> = pods.iter().map(|(key, pod)| (key.netns, pod.network)).collect();
    let is_known = |key: &NetnsKey| generations.contains_key(&key.netns);
    let belongs = |key: &AddressKey, owner: &AddressOwner| {
        generations.get(&owner.netns) == Some(&owner.generation)
            && networks.get(&owner.netns) == Some(&key.network)
    };
    Orphans {
        pods: pods
            .iter()
            .map(|(key, _)| *key)
            .filter(|key| !is_known(key))
            .collect(),
        addresses: addresses
            .iter()
            .filter(|(key, owner)| !belongs(key, owner))
            .map(|(key, _)| *key)
            .collect(),
        // The one of netns 0 is the node's.
        counters: counters
            .iter()
            .copied()
            .filter(|key| key.netns != 0 && !is_known(key))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use agent_common::address::Ip;

    use super::*;
    use crate::datapath::rows::padded;

    fn name(netns: u64, uid: &str) -> (NetnsKey, PodName) {
        let row = PodName {
            uid: padded(uid),
            namespace: padded("ns"),
            name: padded("pod"),
            state: 1,
            inbound: 1,
            changed: 0,
            reserved: 0,
        };
        (NetnsKey { netns }, row)
    }

    fn pod(netns: u64, uid: &str, network: u32) -> (NetnsKey, Pod) {
        let row = Pod {
            generation: PodUid::from(uid).generation(),
            network,
            flags: 0,
            ip4: Ip::NONE,
            ip6: Ip::NONE,
        };
        (NetnsKey { netns }, row)
    }

    fn address(network: u32, ip: &str, netns: u64, uid: &str) -> (AddressKey, AddressOwner) {
        let key = AddressKey {
            network,
            ip: ip.parse::<IpAddr>().unwrap().into(),
        };
        let generation = PodUid::from(uid).generation();
        (key, AddressOwner { netns, generation })
    }

    #[test]
    fn rows_without_a_name_are_orphans_and_no_others() {
        let addresses = [
            address(3, "10.0.0.1", 7, "a"),
            address(3, "10.0.0.2", 8, "b"),
            address(3, "10.0.0.3", 7, "b"),
            address(4, "10.0.0.1", 7, "a"),
        ];
        let found = orphans(
            &[name(7, "a")],
            &[pod(7, "a", 3), pod(8, "b", 3)],
            &addresses,
            &[0, 7, 9].map(|netns| NetnsKey { netns }),
        );
        let expected = Orphans {
            pods: vec![NetnsKey { netns: 8 }],
            addresses: addresses[1..].iter().map(|(key, _)| *key).collect(),
            counters: vec![NetnsKey { netns: 9 }],
        };
        assert_eq!(found, expected);
    }
}

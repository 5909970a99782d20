//! Between the maps' bytes and the agent's words: texts, addresses, pods.

use std::collections::BTreeMap;
use std::net::IpAddr;

use agent_common::address::{AddressKey, AddressOwner, Ip};
use agent_common::pod::{NetnsKey, NetworkName as NetworkRow, Pod, PodName, flags, state};
use agent_core::entry::{NetnsCookie, PodEntry};
use agent_core::ids::{NetworkName, PodRef, PodUid};

/// A text as a zero-padded array; cut if it is too long (the sources refuse such names before).
#[must_use]
pub fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let mut end = text.len().min(N);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

/// The text in a zero-padded array.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The row of `PODS`.
#[must_use]
pub fn pod(entry: &PodEntry, network: u32) -> Pod {
    let ip = |source: Option<IpAddr>| source.map_or(Ip::NONE, Ip::from);
    Pod {
        #[cfg(feature = "abi-next")]
        trial: agent_common::pod::TRIAL,
        generation: entry.pod.uid.generation(),
        network,
        flags: flag(entry.wire, flags::WIRE) | flag(entry.dns, flags::DNS),
        ip4: ip(entry.source4),
        ip6: ip(entry.source6),
    }
}

fn flag(is_set: bool, bit: u32) -> u32 {
    if is_set { bit } else { 0 }
}

/// The row of `NAMES`; `changed` are bits of [`agent_common::pod::changed`].
#[must_use]
pub fn name(entry: &PodEntry, changed: u32) -> PodName {
    PodName {
        uid: padded(&entry.pod.uid.0),
        namespace: padded(&entry.pod.namespace),
        name: padded(&entry.pod.name),
        state: if entry.enabled {
            state::ENABLED
        } else {
            state::PENDING
        },
        inbound: u32::from(entry.inbound),
        changed,
        reserved: 0,
    }
}

/// The row of `NETWORKS`.
#[must_use]
pub fn network(name: &NetworkName) -> NetworkRow {
    NetworkRow {
        name: padded(&name.0),
    }
}

/// The rows of `ADDRESSES`.
#[must_use]
pub fn addresses(entry: &PodEntry, network: u32) -> Vec<(AddressKey, AddressOwner)> {
    let owner = AddressOwner {
        netns: entry.netns.0,
        generation: entry.pod.uid.generation(),
    };
    entry
        .addresses
        .iter()
        .map(|ip| {
            (
                AddressKey {
                    network,
                    ip: (*ip).into(),
                },
                owner,
            )
        })
        .collect()
}

/// Puts rows together again to what was captured. A pod in `NAMES` without a row in `PODS` was being enrolled or
/// removed when the agent died: it is told as one, so that it is repaired. Rows of another generation are not the pod's.
#[must_use]
pub fn entries(
    names: &[(NetnsKey, PodName)],
    pods: &BTreeMap<NetnsKey, Pod>,
    addresses: &[(AddressKey, AddressOwner)],
    networks: &BTreeMap<u32, NetworkName>,
) -> Vec<PodEntry> {
    let mut by_owner: BTreeMap<(u64, u64), Vec<IpAddr>> = BTreeMap::new();
    for (key, owner) in addresses {
        let owner = (owner.netns, owner.generation);
        by_owner.entry(owner).or_default().push(key.ip.into());
    }
    let source = |ip: Ip| (!ip.is_none()).then(|| ip.into());
    names
        .iter()
        .map(|(key, name)| {
            let generation = PodUid(text(&name.uid)).generation();
            let pod = pods.get(key).filter(|pod| pod.generation == generation);
            let has = |bit| pod.is_some_and(|pod| pod.flags & bit != 0);
            PodEntry {
                pod: PodRef {
                    uid: PodUid(text(&name.uid)),
                    namespace: text(&name.namespace),
                    name: text(&name.name),
                },
                netns: NetnsCookie(key.netns),
                network: pod
                    .and_then(|pod| networks.get(&pod.network))
                    .cloned()
                    .unwrap_or_default(),
                addresses: by_owner.remove(&(key.netns, generation)).unwrap_or_default(),
                source4: pod.and_then(|pod| source(pod.ip4)),
                source6: pod.and_then(|pod| source(pod.ip6)),
                wire: has(flags::WIRE),
                dns: has(flags::DNS),
                inbound: name.inbound != 0,
                enabled: pod.is_some() && name.state == state::ENABLED,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_and_long_ones_are_cut_at_a_character() {
        assert_eq!(text(&padded::<8>("abc")), "abc");
        assert_eq!(text(&padded::<4>("abcdef")), "abcd");
        assert_eq!(text(&padded::<4>("abcö")), "abc");
    }

    #[test]
    fn a_pod_is_read_back_as_it_was_written() {
        let entry = PodEntry {
            pod: PodRef {
                uid: PodUid::from("u-1"),
                namespace: "ns".into(),
                name: "web".into(),
            },
            netns: NetnsCookie(7),
            network: NetworkName::from("east"),
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            source4: Some("10.0.0.1".parse().unwrap()),
            source6: Some("fd00::1".parse().unwrap()),
            wire: true,
            dns: true,
            inbound: true,
            enabled: true,
        };
        let key = NetnsKey { netns: 7 };
        let read = entries(
            &[(key, name(&entry, 0))],
            &BTreeMap::from([(key, pod(&entry, 3))]),
            &addresses(&entry, 3),
            &BTreeMap::from([(3, NetworkName::from("east"))]),
        );
        assert_eq!(read, [entry]);
    }
}

//! Which pod owns an address of a network: of all pods that claim it, the newest.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{NetworkAddress, PodUid};

/// One pod's claim to an address. The order is the rule: the last one owns it, that is the pod that was created last,
/// and of two from the same second the one with the greater UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    created: i64,
    uid: PodUid,
}

/// All claims to addresses on this node.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    claims: BTreeMap<NetworkAddress, BTreeSet<Claim>>,
    held: BTreeMap<PodUid, (Claim, BTreeSet<NetworkAddress>)>,
}

impl Addresses {
    /// Replaces what a pod claims; `created` is its age in seconds since the epoch. Claims to nothing forget the pod.
    /// Returns the other pods that claim one of the addresses concerned: what they own may have changed.
    pub fn claim(
        &mut self,
        uid: &PodUid,
        created: i64,
        addresses: BTreeSet<NetworkAddress>,
    ) -> BTreeSet<PodUid> {
        let claim = Claim {
            created,
            uid: uid.clone(),
        };
        if self
            .held
            .get(uid)
            .is_some_and(|(held, of)| *held == claim && *of == addresses)
        {
            return BTreeSet::new();
        }
        let mut rivals = self.give_up(uid);
        for address in &addresses {
            let claims = self.claims.entry(address.clone()).or_default();
            rivals.extend(claims.iter().map(|claim| claim.uid.clone()));
            claims.insert(claim.clone());
        }
        if !addresses.is_empty() {
            self.held.insert(uid.clone(), (claim, addresses));
        }
        rivals
    }

    /// The pod that owns an address.
    #[must_use]
    pub fn owner(&self, address: &NetworkAddress) -> Option<&PodUid> {
        self.claims.get(address)?.last().map(|claim| &claim.uid)
    }

    fn give_up(&mut self, uid: &PodUid) -> BTreeSet<PodUid> {
        let mut rivals = BTreeSet::new();
        let Some((claim, addresses)) = self.held.remove(uid) else {
            return rivals;
        };
        for address in addresses {
            let Some(claims) = self.claims.get_mut(&address) else {
                continue;
            };
            claims.remove(&claim);
            rivals.extend(claims.iter().map(|claim| claim.uid.clone()));
            if claims.is_empty() {
                self.claims.remove(&address);
            }
        }
        rivals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(network: &str, ip: &str) -> NetworkAddress {
        NetworkAddress {
            network: network.into(),
            ip: ip.parse().unwrap(),
        }
    }

    fn uids(names: &[&str]) -> BTreeSet<PodUid> {
        names.iter().map(|&name| PodUid::from(name)).collect()
    }

    #[test]
    fn the_pod_that_was_created_last_owns_the_address_whoever_claims_first() {
        for order in [["old", "new"], ["new", "old"]] {
            let mut addresses = Addresses::default();
            for uid in order {
                let created = if uid == "new" { 2 } else { 1 };
                addresses.claim(&uid.into(), created, [address("", "10.0.0.1")].into());
            }
            assert_eq!(addresses.owner(&address("", "10.0.0.1")), Some(&"new".into()));
        }
    }

    #[test]
    fn of_two_pods_from_one_second_the_greater_uid_owns_the_address() {
        let mut addresses = Addresses::default();
        addresses.claim(&"b".into(), 1, [address("", "10.0.0.1")].into());
        addresses.claim(&"a".into(), 1, [address("", "10.0.0.1")].into());
        assert_eq!(addresses.owner(&address("", "10.0.0.1")), Some(&"b".into()));
    }

    #[test]
    fn rivals_are_told_when_an_address_is_taken_and_when_it_is_given_back() {
        let mut addresses = Addresses::default();
        let contested = address("", "10.0.0.1");
        assert_eq!(
            addresses.claim(&"old".into(), 1, [contested.clone()].into()),
            uids(&[])
        );
        assert_eq!(
            addresses.claim(&"new".into(), 2, [contested.clone()].into()),
            uids(&["old"])
        );
        assert_eq!(
            addresses.claim(&"new".into(), 2, [contested.clone()].into()),
            uids(&[]),
            "nothing new"
        );
        assert_eq!(addresses.claim(&"new".into(), 2, BTreeSet::new()), uids(&["old"]));
        assert_eq!(addresses.owner(&contested), Some(&"old".into()));
        assert_eq!(addresses.claim(&"old".into(), 1, BTreeSet::new()), uids(&[]));
        assert_eq!(addresses.owner(&contested), None);
        assert!(
            addresses.claims.is_empty() && addresses.held.is_empty(),
            "{addresses:?}"
        );
    }

    #[test]
    fn one_ip_in_two_networks_is_two_addresses() {
        let mut addresses = Addresses::default();
        addresses.claim(&"a".into(), 1, [address("east", "10.0.0.1")].into());
        assert_eq!(
            addresses.claim(&"b".into(), 2, [address("west", "10.0.0.1")].into()),
            uids(&[])
        );
        assert_eq!(addresses.owner(&address("east", "10.0.0.1")), Some(&"a".into()));
        assert_eq!(addresses.owner(&address("west", "10.0.0.1")), Some(&"b".into()));
    }
}

//! One consistent view of the pods and namespaces that matter to this node: facts go in, wishes come out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::address::Addresses;
use crate::enrolment::{Decision, Rules, decide};
use crate::facts::{BadObject, Fact, NamespaceFacts, Phase, Place, PodFacts, SourceState};
use crate::ids::{NamespaceRef, NetworkAddress, NetworkName, PodUid};
use crate::network::network_of;
use crate::problem::Problem;
use crate::wish::{Capture, Wish};

use listing::Listing;

mod listing;
mod sandbox;

/// The view, and the wishes that follow from it. The order in which different objects are told does not matter.
#[derive(Clone, Debug)]
pub struct Catalog {
    place: Place,
    rules: Rules,
    pods: BTreeMap<PodUid, PodFacts>,
    pod_list: Listing<PodUid>,
    namespaces: BTreeMap<NamespaceRef, KnownNamespace>,
    namespace_list: Listing<NamespaceRef>,
    addresses: Addresses,
    wishes: BTreeMap<PodUid, Wish>,
    bad: BTreeMap<String, Vec<BadObject>>,
    source: SourceState,
}

/// A namespace. Its labels still count after its deletion until the last pod that they decide about is gone too, so
/// that a late order of events never takes a living pod out of the mesh.
#[derive(Clone, Debug)]
struct KnownNamespace {
    facts: NamespaceFacts,
    deleted: bool,
}

impl Catalog {
    /// An empty catalog for a node.
    #[must_use]
    pub fn new(place: Place, rules: Rules) -> Self {
        Self {
            place,
            rules,
            pods: BTreeMap::new(),
            pod_list: Listing::default(),
            namespaces: BTreeMap::new(),
            namespace_list: Listing::default(),
            addresses: Addresses::default(),
            wishes: BTreeMap::new(),
            bad: BTreeMap::new(),
            source: SourceState::Current,
        }
    }

    /// Takes in what a source says. Returns the pods whose wish is another one now. Pods and namespaces of other nodes
    /// and clusters are ignored.
    ///
    /// A pod that came and went while the source was not looking is never named here: whoever acts on wishes must
    /// compare all that it holds with [`Catalog::wish`] after each [`Fact::PodsListed`].
    pub fn apply(&mut self, fact: Fact) -> BTreeSet<PodUid> {
        let mut touched = BTreeSet::new();
        match fact {
            Fact::PodsRelist => self.pod_list.begin(),
            Fact::PodsListed => touched = self.pods_listed(),
            Fact::Pod(pod) => touched = self.pod_told(*pod),
            Fact::PodGone(uid) => touched = self.pod_gone(uid),
            Fact::NamespacesRelist => self.namespace_list.begin(),
            Fact::NamespacesListed => self.namespaces_listed(),
            Fact::Namespace(namespace) => touched = self.namespace_told(namespace),
            Fact::NamespaceGone(namespace) => self.namespace_gone(&namespace),
            Fact::Bad(bad) => self.object_bad(bad),
            Fact::Good { object } => drop(self.bad.remove(&object)),
            Fact::SourceState(state) => self.source = state,
        }
        self.evaluate(touched)
    }

    /// What should be true of a pod; [`Wish::Gone`] for one that is not known. Says nothing reliable before
    /// [`Catalog::complete`].
    #[must_use]
    pub fn wish(&self, uid: &PodUid) -> Wish {
        self.wishes.get(uid).cloned().unwrap_or(Wish::Gone)
    }

    /// The wishes for all pods of this node, in the order of their UIDs; none is [`Wish::Gone`].
    pub fn wishes(&self) -> impl Iterator<Item = (&PodUid, &Wish)> {
        self.wishes.iter()
    }

    /// All pods of this node with their wishes, in the order of their UIDs.
    pub fn pods(&self) -> impl Iterator<Item = (&PodFacts, &Wish)> {
        self.wishes
            .iter()
            .filter_map(|(uid, wish)| Some((self.pods.get(uid)?, wish)))
    }

    /// Whether the pods and the namespaces have both been listed completely at least once. Before that, a pod that is
    /// not known may well exist, and nothing may be removed for its absence.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.pod_list.was_complete() && self.namespace_list.was_complete()
    }

    /// What an operator should look at now.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let source = match &self.source {
            SourceState::Current => None,
            SourceState::Stale { problem } => Some(Problem::source_stale(problem)),
        };
        let bad = self.bad.values().flatten().map(Problem::bad_object);
        let captures = self.wishes.values().filter_map(|wish| match wish {
            Wish::Captured(capture) => Some(capture),
            Wish::Gone | Wish::Outside(_) => None,
        });
        source
            .into_iter()
            .chain(bad)
            .chain(captures.flat_map(Problem::of_capture))
            .collect()
    }
}

/// What each fact changes. Where that can change wishes, the pods to evaluate again are returned.
impl Catalog {
    fn pods_listed(&mut self) -> BTreeSet<PodUid> {
        let gone = self.pod_list.end(self.pods.keys());
        gone.into_iter().flat_map(|uid| self.pod_gone(uid)).collect()
    }

    fn pod_told(&mut self, pod: PodFacts) -> BTreeSet<PodUid> {
        let uid = pod.pod.uid.clone();
        if pod.node != self.place.node {
            return self.pod_gone(uid);
        }
        self.pod_list.name(&uid);
        self.pods.insert(uid.clone(), pod);
        [uid].into()
    }

    fn pod_gone(&mut self, uid: PodUid) -> BTreeSet<PodUid> {
        if self.pods.remove(&uid).is_none() {
            return BTreeSet::new();
        }
        self.forget_deleted_namespaces();
        [uid].into()
    }

    fn namespaces_listed(&mut self) {
        for namespace in self.namespace_list.end(self.namespaces.keys()) {
            self.namespace_gone(&namespace);
        }
    }

    fn namespace_told(&mut self, facts: NamespaceFacts) -> BTreeSet<PodUid> {
        let namespace = facts.namespace.clone();
        if namespace.cluster != *self.place.cluster() {
            return BTreeSet::new();
        }
        self.namespace_list.name(&namespace);
        let unchanged = self
            .namespaces
            .get(&namespace)
            .is_some_and(|known| known.facts == facts);
        self.namespaces.insert(
            namespace.clone(),
            KnownNamespace {
                facts,
                deleted: false,
            },
        );
        if unchanged {
            return BTreeSet::new();
        }
        self.pods_decided_by(&namespace).cloned().collect()
    }

    /// Changes no wish: the labels go only when they decide about no pod any more.
    fn namespace_gone(&mut self, namespace: &NamespaceRef) {
        if let Some(known) = self.namespaces.get_mut(namespace) {
            known.deleted = true;
            self.forget_deleted_namespaces();
        }
    }

    fn object_bad(&mut self, bad: BadObject) {
        let problems = self.bad.entry(bad.object.clone()).or_default();
        if !problems.contains(&bad) {
            problems.push(bad);
        }
    }

    fn forget_deleted_namespaces(&mut self) {
        let deleted = self
            .namespaces
            .iter()
            .filter(|(_, known)| known.deleted)
            .map(|(namespace, _)| namespace);
        let unused: Vec<_> = deleted
            .filter(|namespace| self.pods_decided_by(namespace).next().is_none())
            .cloned()
            .collect();
        for namespace in unused {
            self.namespaces.remove(&namespace);
        }
    }

    /// The pods in a namespace; all pods, if it is the one that names the cluster's network.
    fn pods_decided_by(&self, namespace: &NamespaceRef) -> impl Iterator<Item = &PodUid> {
        let all = namespace.name == self.place.system_namespace;
        self.pods
            .iter()
            .filter(move |(_, pod)| all || pod.pod.namespace == namespace.name)
            .map(|(uid, _)| uid)
    }
}

/// From facts to wishes.
impl Catalog {
    fn evaluate(&mut self, touched: BTreeSet<PodUid>) -> BTreeSet<PodUid> {
        let rivals: Vec<_> = touched.iter().flat_map(|uid| self.claim_addresses(uid)).collect();
        let mut affected = touched;
        affected.extend(rivals);
        affected.retain(|uid| self.renew_wish(uid));
        affected
    }

    /// Returns the pods that the new claims may take an address from, or give one back to.
    fn claim_addresses(&mut self, uid: &PodUid) -> BTreeSet<PodUid> {
        let Some(pod) = self.pods.get(uid) else {
            return self.addresses.claim(uid, 0, BTreeSet::new());
        };
        let claims = if owns_addresses(pod) {
            self.addresses_of(pod).collect()
        } else {
            BTreeSet::new()
        };
        self.addresses.claim(uid, pod.created, claims)
    }

    /// Returns whether the wish has changed.
    fn renew_wish(&mut self, uid: &PodUid) -> bool {
        match self.pods.get(uid).map(|pod| self.wish_for(pod)) {
            Some(wish) => {
                let changed = self.wishes.get(uid) != Some(&wish);
                self.wishes.insert(uid.clone(), wish);
                changed
            }
            None => self.wishes.remove(uid).is_some(),
        }
    }

    fn wish_for(&self, pod: &PodFacts) -> Wish {
        match decide(pod, self.namespace(&pod.pod.namespace), &self.rules) {
            Decision::Outside(reason) => Wish::Outside(reason),
            Decision::Capture(options) => {
                let mut capture = Capture {
                    pod: pod.pod.clone(),
                    service_account: pod.service_account.clone(),
                    network: self.network(pod),
                    addresses: Vec::new(),
                    lost: Vec::new(),
                    options,
                };
                self.share_addresses(pod, &mut capture);
                Wish::Captured(capture)
            }
        }
    }

    fn share_addresses(&self, pod: &PodFacts, capture: &mut Capture) {
        for address in self.addresses_of(pod) {
            let owner = self.addresses.owner(&address).and_then(|uid| self.pods.get(uid));
            let ip = address.ip;
            match owner.map(|owner| &owner.pod) {
                Some(owner) if owner.uid != pod.pod.uid => capture.lost.push((ip, owner.clone())),
                _ => capture.addresses.push(ip),
            }
        }
    }

    /// The addresses of a pod, each once, in the order of its status.
    fn addresses_of(&self, pod: &PodFacts) -> impl Iterator<Item = NetworkAddress> {
        let network = self.network(pod);
        let mut seen = BTreeSet::new();
        let ips = pod
            .ips
            .iter()
            .map(IpAddr::to_canonical)
            .filter(move |ip| seen.insert(*ip));
        ips.map(move |ip| NetworkAddress {
            network: network.clone(),
            ip,
        })
    }

    fn network(&self, pod: &PodFacts) -> NetworkName {
        network_of(pod, self.namespace(&self.place.system_namespace), &self.place)
    }

    fn namespace(&self, name: &str) -> Option<&NamespaceFacts> {
        let namespace = NamespaceRef {
            cluster: self.place.cluster().clone(),
            name: name.to_owned(),
        };
        self.namespaces.get(&namespace).map(|known| &known.facts)
    }
}

/// The addresses of a pod on the node's network are the node's, and those of a pod that ended may be given again.
fn owns_addresses(pod: &PodFacts) -> bool {
    !pod.host_network && pod.phase != Phase::Terminal
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

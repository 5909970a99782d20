//! What holds for any facts in any order.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::labels::{DATAPLANE_MODE, NETWORK};
use crate::samples::{namespace, node, place, pod};

/// UIDs and the namespaces of their pods, which never change.
const PODS: [(&str, &str); 5] = [
    ("a", "default"),
    ("b", "default"),
    ("c", "other"),
    ("d", "other"),
    ("e", "istio-system"),
];
const NAMESPACES: [&str; 3] = ["default", "other", "istio-system"];

/// A pod that may share its address, its network and its age with others.
fn pods(uid: &'static str, namespace: &'static str) -> impl Strategy<Value = Fact> {
    let addresses = proptest::sample::subsequence(vec!["10.0.0.1", "10.0.0.2", "fd00::1"], 0..=3);
    let network = select(vec![None, Some("east"), Some("west")]);
    let phase = select(vec![
        Phase::Running,
        Phase::Running,
        Phase::Pending,
        Phase::Terminal,
    ]);
    let mode = select(vec![None, Some("ambient"), Some("none")]);
    let node_name = select(vec!["node-1", "node-1", "node-1", "node-2"]);
    let host_network = prop::bool::weighted(0.1);
    (addresses, network, phase, mode, node_name, host_network, 0..3_i64).prop_map(
        move |(addresses, network, phase, mode, node_name, host_network, created)| {
            let mut facts = pod(uid);
            facts.ips = addresses.iter().map(|text| text.parse().unwrap()).collect();
            facts
                .labels
                .extend(network.map(|value| (NETWORK.to_owned(), value.to_owned())));
            facts
                .labels
                .extend(mode.map(|value| (DATAPLANE_MODE.to_owned(), value.to_owned())));
            facts.pod.namespace = namespace.to_owned();
            facts.node = node(node_name);
            (facts.phase, facts.host_network, facts.created) = (phase, host_network, created);
            Fact::Pod(Box::new(facts))
        },
    )
}

fn namespaces(name: &'static str) -> impl Strategy<Value = Fact> {
    let ambient = select(vec![None, Some("ambient")]);
    let network = select(vec![None, Some("east")]);
    (ambient, network).prop_map(move |(ambient, network)| {
        let mut facts = namespace(name);
        facts
            .labels
            .extend(ambient.map(|value| (DATAPLANE_MODE.to_owned(), value.to_owned())));
        facts
            .labels
            .extend(network.map(|value| (NETWORK.to_owned(), value.to_owned())));
        Fact::Namespace(facts)
    })
}

/// What happens to each object, in its own order: pods change and may go, namespaces change.
fn histories() -> impl Strategy<Value = Vec<Vec<Fact>>> {
    let of_pods: Vec<_> = PODS
        .into_iter()
        .map(|(uid, namespace)| {
            let gone = Just(Fact::PodGone(uid.into()));
            prop::collection::vec(prop_oneof![4 => pods(uid, namespace), 1 => gone], 0..4)
        })
        .collect();
    let of_namespaces: Vec<_> = NAMESPACES
        .into_iter()
        .map(|name| prop::collection::vec(namespaces(name), 0..3))
        .collect();
    (of_pods, of_namespaces).prop_map(|(pods, namespaces)| [pods, namespaces].concat())
}

/// One order of all facts that keeps the order for each object.
fn interleaved(mut histories: Vec<Vec<Fact>>, picks: &[Index]) -> Vec<Fact> {
    let mut order = Vec::new();
    for history in &mut histories {
        history.reverse();
    }
    for pick in picks.iter().cycle() {
        histories.retain(|history| !history.is_empty());
        if histories.is_empty() {
            break;
        }
        order.extend(pick.get_mut(&mut histories).pop());
    }
    order
}

fn catalog_of(facts: impl IntoIterator<Item = Fact>) -> Catalog {
    let mut catalog = Catalog::new(place(), Rules::default());
    for fact in facts {
        catalog.apply(fact);
    }
    catalog
}

fn picks() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 30)
}

proptest! {
    #[test]
    fn any_order_of_the_same_facts_ends_in_the_same_wishes(histories in histories(), picks in picks()) {
        let one = catalog_of(histories.concat());
        let other = catalog_of(interleaved(histories, &picks));
        prop_assert_eq!(&one.wishes, &other.wishes);
        prop_assert_eq!(one.problems(), other.problems());
    }

    #[test]
    fn an_address_is_never_owned_by_two_pods_of_one_network(histories in histories(), picks in picks()) {
        let mut catalog = catalog_of([]);
        for fact in interleaved(histories, &picks) {
            catalog.apply(fact);
            let mut owned = BTreeSet::new();
            for (uid, wish) in catalog.wishes() {
                let Wish::Captured(capture) = wish else { continue };
                for ip in &capture.addresses {
                    prop_assert!(owned.insert((capture.network.clone(), *ip)), "{uid} has {ip} too");
                }
            }
        }
    }

    #[test]
    fn exactly_the_pods_whose_wish_changed_are_named(histories in histories(), picks in picks()) {
        let mut catalog = catalog_of([]);
        for fact in interleaved(histories, &picks) {
            let before = catalog.wishes.clone();
            let named = catalog.apply(fact);
            let all: BTreeSet<_> = before.keys().chain(catalog.wishes.keys()).cloned().collect();
            let changed: BTreeSet<_> =
                all.into_iter().filter(|uid| before.get(uid) != catalog.wishes.get(uid)).collect();
            prop_assert_eq!(named, changed);
        }
    }

    #[test]
    fn a_list_of_what_is_there_changes_nothing(histories in histories(), picks in picks()) {
        let mut catalog = catalog_of(interleaved(histories, &picks));
        let pods: Vec<_> = catalog.pods.values().cloned().collect();
        let namespaces: Vec<_> = catalog.namespaces.values().map(|known| known.facts.clone()).collect();
        let list = [Fact::NamespacesRelist, Fact::PodsRelist]
            .into_iter()
            .chain(pods.into_iter().map(|pod| Fact::Pod(Box::new(pod))))
            .chain(namespaces.into_iter().map(Fact::Namespace))
            .chain([Fact::PodsListed, Fact::NamespacesListed]);
        for fact in list {
            prop_assert_eq!(catalog.apply(fact), BTreeSet::new());
        }
        prop_assert!(catalog.complete());
    }
}

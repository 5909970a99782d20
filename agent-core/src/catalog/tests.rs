//! How facts become wishes, one behaviour a test.

use super::*;
use crate::enrolment::Reason;
use crate::labels::{DATAPLANE_MODE, DNS_CAPTURE, NETWORK};
use crate::problem::ProblemKind;
use crate::samples::{namespace, node, place, pod};

/// A catalog that was told of namespace `default`, labelled ambient, and of `istio-system`.
fn catalog() -> Catalog {
    let mut catalog = Catalog::new(place(), Rules::default());
    catalog.apply(labelled_namespace("default", DATAPLANE_MODE, "ambient"));
    catalog.apply(Fact::Namespace(namespace("istio-system")));
    catalog
}

fn labelled_namespace(name: &str, label: &str, value: &str) -> Fact {
    let mut facts = namespace(name);
    facts.labels.insert(label.to_owned(), value.to_owned());
    Fact::Namespace(facts)
}

fn pod_with(uid: &str, change: impl FnOnce(&mut PodFacts)) -> Fact {
    let mut facts = pod(uid);
    change(&mut facts);
    Fact::Pod(Box::new(facts))
}

fn aged(uid: &str, created: i64, addresses: &[&str]) -> Fact {
    pod_with(uid, |pod| {
        pod.created = created;
        pod.ips = ips(addresses);
    })
}

fn gone(uid: &str) -> Fact {
    Fact::PodGone(uid.into())
}

fn namespace_gone(name: &str) -> Fact {
    Fact::NamespaceGone(namespace(name).namespace)
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn uids(names: &[&str]) -> BTreeSet<PodUid> {
    names.iter().map(|&name| name.into()).collect()
}

fn capture(catalog: &Catalog, uid: &str) -> Capture {
    match catalog.wish(&uid.into()) {
        Wish::Captured(capture) => capture,
        other => panic!("{uid}: {other:?}"),
    }
}

mod addresses;

#[test]
fn a_captured_pod_is_described_completely() {
    let mut catalog = catalog();
    catalog.apply(labelled_namespace("istio-system", NETWORK, "east"));
    let changed = catalog.apply(pod_with("a", |pod| {
        pod.service_account = "web".to_owned();
        pod.ips = ips(&["10.0.0.7", "::ffff:10.0.0.7", "fd00::7"]);
    }));
    assert_eq!(changed, uids(&["a"]));
    let capture = capture(&catalog, "a");
    assert_eq!(capture.pod, pod("a").pod);
    assert_eq!(capture.service_account, "web");
    assert_eq!(capture.network.as_str(), "east");
    assert_eq!(capture.addresses, ips(&["10.0.0.7", "fd00::7"]));
    assert!(capture.lost.is_empty() && capture.options.inbound);
}

#[test]
fn the_same_fact_twice_changes_nothing() {
    let mut catalog = catalog();
    assert_eq!(catalog.apply(aged("a", 1, &["10.0.0.1"])), uids(&["a"]));
    assert_eq!(catalog.apply(aged("a", 1, &["10.0.0.1"])), uids(&[]));
    assert_eq!(
        catalog.apply(labelled_namespace("default", DATAPLANE_MODE, "ambient")),
        uids(&[])
    );
}

#[test]
fn a_pod_waits_for_its_address_and_for_its_namespace() {
    let mut catalog = Catalog::new(place(), Rules::default());
    catalog.apply(aged("a", 1, &[]));
    assert_eq!(catalog.wish(&"a".into()), Wish::Outside(Reason::NamespaceUnknown));
    assert_eq!(
        catalog.apply(labelled_namespace("default", DATAPLANE_MODE, "ambient")),
        uids(&["a"])
    );
    assert_eq!(catalog.wish(&"a".into()), Wish::Outside(Reason::NoAddress));
    assert_eq!(catalog.apply(aged("a", 1, &["10.0.0.1"])), uids(&["a"]));
    assert_eq!(capture(&catalog, "a").addresses, ips(&["10.0.0.1"]));
}

#[test]
fn a_namespace_label_concerns_the_pods_of_that_namespace() {
    let mut catalog = catalog();
    catalog.apply(aged("a", 1, &["10.0.0.1"]));
    catalog.apply(aged("b", 1, &["10.0.0.2"]));
    catalog.apply(pod_with("c", |pod| pod.pod.namespace = "other".to_owned()));
    assert_eq!(
        catalog.apply(Fact::Namespace(namespace("default"))),
        uids(&["a", "b"])
    );
    assert_eq!(
        catalog.wish(&"a".into()),
        Wish::Outside(Reason::NoSelectorMatches)
    );
    assert_eq!(
        catalog.apply(labelled_namespace("default", "team", "x")),
        uids(&[]),
        "nothing reads this label"
    );
}

#[test]
fn the_network_label_of_the_system_namespace_concerns_all_pods_that_do_not_say_themselves() {
    let mut catalog = catalog();
    catalog.apply(aged("a", 1, &["10.0.0.1"]));
    catalog.apply(pod_with("b", |pod| {
        pod.labels.insert(NETWORK.to_owned(), "west".to_owned());
    }));
    assert_eq!(
        catalog.apply(labelled_namespace("istio-system", NETWORK, "east")),
        uids(&["a"])
    );
    assert_eq!(capture(&catalog, "a").network.as_str(), "east");
    assert_eq!(capture(&catalog, "b").network.as_str(), "west");
}

#[test]
fn pods_and_namespaces_of_other_nodes_and_clusters_are_ignored() {
    let mut catalog = catalog();
    catalog.apply(aged("a", 1, &["10.0.0.1"]));
    assert_eq!(
        catalog.apply(pod_with("b", |pod| pod.node = node("node-2"))),
        uids(&[])
    );
    assert_eq!(
        catalog.apply(pod_with("c", |pod| pod.node.cluster = "other".into())),
        uids(&[])
    );
    let mut foreign = namespace("default");
    foreign.namespace.cluster = "other".into();
    assert_eq!(catalog.apply(Fact::Namespace(foreign)), uids(&[]));
    assert_eq!(catalog.namespaces.len(), 2);
    assert_eq!(
        catalog
            .pods()
            .map(|(pod, _)| pod.pod.uid.clone())
            .collect::<BTreeSet<_>>(),
        uids(&["a"])
    );
    assert_eq!(catalog.problems(), []);
}

#[test]
fn what_a_list_does_not_name_is_gone_when_it_ends() {
    let mut catalog = catalog();
    for (uid, ip) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        catalog.apply(aged(uid, 1, &[ip]));
    }
    catalog.apply(Fact::PodsRelist);
    catalog.apply(aged("c", 1, &["10.0.0.3"]));
    catalog.apply(Fact::PodsRelist);
    assert_eq!(catalog.apply(aged("a", 1, &["10.0.0.1"])), uids(&[]));
    assert_ne!(catalog.wish(&"b".into()), Wish::Gone, "the list has not ended");
    assert_eq!(
        catalog.apply(Fact::PodsListed),
        uids(&["b", "c"]),
        "the first list was given up"
    );
    assert_eq!(catalog.wish(&"b".into()), Wish::Gone);
    assert_eq!(catalog.apply(Fact::PodsListed), uids(&[]), "no list has begun");
}

#[test]
fn a_namespace_that_a_list_names_is_known_when_its_first_pod_comes() {
    let mut catalog = catalog();
    catalog.apply(Fact::NamespacesRelist);
    catalog.apply(labelled_namespace("default", DATAPLANE_MODE, "ambient"));
    catalog.apply(Fact::NamespacesListed);
    catalog.apply(aged("a", 1, &["10.0.0.1"]));
    assert_eq!(capture(&catalog, "a").addresses, ips(&["10.0.0.1"]));
}

#[test]
fn it_is_complete_when_both_lists_have_ended_once() {
    let pods = [Fact::PodsRelist, Fact::PodsListed];
    let namespaces = [Fact::NamespacesRelist, Fact::NamespacesListed];
    for (first, second) in [(&pods, &namespaces), (&namespaces, &pods)] {
        let mut catalog = Catalog::new(place(), Rules::default());
        catalog.apply(first[1].clone());
        catalog.apply(second[1].clone());
        assert!(!catalog.complete(), "no list had begun");
        for fact in first.iter().chain(&second[..1]) {
            catalog.apply(fact.clone());
            assert!(!catalog.complete(), "after {fact:?}");
        }
        catalog.apply(second[1].clone());
        assert!(catalog.complete());
        catalog.apply(first[0].clone());
        assert!(catalog.complete(), "a later list takes nothing back");
    }
}

#[test]
fn the_labels_of_a_deleted_namespace_count_until_its_last_pod_is_gone() {
    let delete: [fn(&mut Catalog) -> BTreeSet<PodUid>; 2] = [
        |catalog| catalog.apply(namespace_gone("default")),
        |catalog| {
            catalog.apply(Fact::NamespacesRelist);
            catalog.apply(Fact::NamespacesListed)
        },
    ];
    for delete in delete {
        let mut catalog = catalog();
        catalog.apply(aged("a", 1, &["10.0.0.1"]));
        assert_eq!(delete(&mut catalog), uids(&[]));
        catalog.apply(aged("a", 1, &["10.0.0.2"]));
        assert_eq!(capture(&catalog, "a").addresses, ips(&["10.0.0.2"]));
        assert_eq!(catalog.apply(gone("a")), uids(&["a"]));
        catalog.apply(aged("b", 1, &["10.0.0.1"]));
        assert_eq!(catalog.wish(&"b".into()), Wish::Outside(Reason::NamespaceUnknown));
    }
}

#[test]
fn the_network_of_a_deleted_system_namespace_counts_while_there_are_pods() {
    let mut catalog = catalog();
    catalog.apply(labelled_namespace("istio-system", NETWORK, "east"));
    catalog.apply(aged("a", 1, &["10.0.0.1"]));
    assert_eq!(catalog.apply(namespace_gone("istio-system")), uids(&[]));
    assert_eq!(capture(&catalog, "a").network.as_str(), "east");
    catalog.apply(gone("a"));
    catalog.apply(aged("b", 1, &["10.0.0.1"]));
    assert_eq!(capture(&catalog, "b").network.as_str(), "");
}

#[test]
fn a_namespace_that_comes_again_is_not_forgotten_with_its_last_pod() {
    let mut catalog = catalog();
    catalog.apply(aged("a", 1, &["10.0.0.1"]));
    catalog.apply(namespace_gone("default"));
    catalog.apply(labelled_namespace("default", DATAPLANE_MODE, "ambient"));
    catalog.apply(gone("a"));
    catalog.apply(aged("b", 1, &["10.0.0.1"]));
    assert_eq!(capture(&catalog, "b").addresses, ips(&["10.0.0.1"]));
}

#[test]
fn problems_last_until_their_cause_is_over() {
    let bad = |problem: &str| BadObject {
        object: "pod default/x".to_owned(),
        problem: problem.to_owned(),
        fix: "correct it".to_owned(),
    };
    let stale = SourceState::Stale {
        problem: "forbidden".to_owned(),
    };
    let kinds = |catalog: &Catalog| {
        catalog
            .problems()
            .iter()
            .map(|problem| problem.kind)
            .collect::<Vec<_>>()
    };
    let mut catalog = catalog();
    for fact in [
        Fact::Bad(bad("no UID")),
        Fact::Bad(bad("no UID")),
        Fact::Bad(bad("no node")),
    ] {
        assert_eq!(catalog.apply(fact), uids(&[]));
    }
    assert_eq!(kinds(&catalog), [ProblemKind::BadObject; 2]);
    catalog.apply(Fact::SourceState(stale));
    catalog.apply(pod_with("a", |pod| {
        pod.annotations.insert(DNS_CAPTURE.to_owned(), "maybe".to_owned());
    }));
    assert_eq!(
        kinds(&catalog),
        [
            ProblemKind::SourceStale,
            ProblemKind::BadObject,
            ProblemKind::BadObject,
            ProblemKind::AnnotationIgnored
        ]
    );
    catalog.apply(Fact::Good {
        object: "pod default/x".to_owned(),
    });
    catalog.apply(Fact::SourceState(SourceState::Current));
    catalog.apply(aged("a", 100, &["10.0.0.1"]));
    assert_eq!(kinds(&catalog), []);
}

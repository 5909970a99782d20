//! Who has an address that several pods claim.

use super::*;

#[test]
fn the_newer_pod_has_the_address_and_the_older_one_gets_it_back() {
    let mut catalog = catalog();
    catalog.apply(aged("old", 1, &["10.0.0.1", "fd00::1"]));
    assert_eq!(
        catalog.apply(aged("new", 2, &["10.0.0.1"])),
        uids(&["new", "old"])
    );
    assert_eq!(capture(&catalog, "new").addresses, ips(&["10.0.0.1"]));
    let old = capture(&catalog, "old");
    assert_eq!(old.addresses, ips(&["fd00::1"]));
    assert_eq!(old.lost, [(ips(&["10.0.0.1"])[0], pod("new").pod)]);

    assert_eq!(catalog.apply(gone("new")), uids(&["new", "old"]));
    assert_eq!(catalog.wish(&"new".into()), Wish::Gone);
    assert_eq!(capture(&catalog, "old").addresses, ips(&["10.0.0.1", "fd00::1"]));
    assert_eq!(catalog.problems(), []);
}

#[test]
fn a_pod_that_lost_its_only_address_is_still_captured() {
    let mut catalog = catalog();
    catalog.apply(aged("new", 2, &["10.0.0.1"]));
    catalog.apply(aged("old", 1, &["10.0.0.1"]));
    assert_eq!(capture(&catalog, "old").addresses, ips(&[]));
    assert_eq!(capture(&catalog, "new").addresses, ips(&["10.0.0.1"]));
}

#[test]
fn a_newer_pod_outside_the_mesh_takes_the_address_too() {
    let mut catalog = catalog();
    catalog.apply(aged("old", 1, &["10.0.0.1"]));
    let changed = catalog.apply(pod_with("new", |pod| pod.pod.namespace = "elsewhere".to_owned()));
    assert_eq!(changed, uids(&["new", "old"]));
    assert_eq!(capture(&catalog, "old").addresses, ips(&[]));
}

#[test]
fn a_conflict_names_both_pods_the_address_the_network_and_what_to_do() {
    let mut catalog = catalog();
    catalog.apply(labelled_namespace("istio-system", NETWORK, "east"));
    catalog.apply(aged("old", 1, &["10.0.0.1"]));
    catalog.apply(aged("new", 2, &["10.0.0.1"]));
    let problems = catalog.problems();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].kind, ProblemKind::AddressConflict);
    let text = problems[0].to_string();
    for part in [
        "default/old (old)",
        "default/new (new)",
        "10.0.0.1",
        "network east",
        "delete one of the two pods",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn pods_that_ended_or_use_the_network_of_the_node_claim_no_address() {
    let mut catalog = catalog();
    catalog.apply(aged("a", 1, &["10.0.0.1"]));
    catalog.apply(pod_with("ended", |pod| pod.phase = Phase::Terminal));
    catalog.apply(pod_with("host", |pod| pod.host_network = true));
    assert_eq!(capture(&catalog, "a").addresses, ips(&["10.0.0.1"]));
    assert_eq!(catalog.wish(&"ended".into()), Wish::Outside(Reason::Terminal));
    assert_eq!(catalog.wish(&"host".into()), Wish::Outside(Reason::HostNetwork));
    assert_eq!(catalog.problems(), []);
}

#[test]
fn an_older_pod_gets_its_address_back_when_the_newer_one_ends() {
    let mut catalog = catalog();
    catalog.apply(aged("old", 1, &["10.0.0.1"]));
    catalog.apply(aged("new", 2, &["10.0.0.1"]));
    assert_eq!(
        catalog.apply(pod_with("new", |pod| pod.phase = Phase::Terminal)),
        uids(&["new", "old"])
    );
    assert_eq!(capture(&catalog, "old").addresses, ips(&["10.0.0.1"]));
}

#[test]
fn one_ip_in_two_networks_belongs_to_two_pods() {
    let mut catalog = catalog();
    for (uid, network) in [("a", "east"), ("b", "west")] {
        catalog.apply(pod_with(uid, |pod| {
            pod.labels.insert(NETWORK.to_owned(), network.to_owned());
        }));
    }
    assert_eq!(capture(&catalog, "a").addresses, capture(&catalog, "b").addresses);
    assert_eq!(catalog.problems(), []);
}

//! Pods that come by the CNI plugin, before they have a process.

use agent_core::enrolment::Reason;

use super::*;
use crate::enrol::fake::netns;
use crate::enrol::{Admission, AdmissionError};

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_admitted_when_it_is_captured_and_served() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    let admitted = node.handle.admit(pod("a"), netns(7)).await;
    assert_eq!(admitted, Ok(Admission::Captured));
    node.quiet().await;
    node.assert_log(["attach a 7", "add a", "capture a enabled", "annotate a Enabled"]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_fails_without_a_proxy_and_the_next_attempt_succeeds() {
    let node = Node::with_proxy(ProxyMode::Absent).await;
    let error = node.handle.admit(pod("a"), netns(7)).await.unwrap_err();
    assert!(error.to_string().contains("no proxy is connected"), "{error}");
    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    node.fake.take_log();
    assert_eq!(
        node.handle.admit(pod("a"), netns(8)).await,
        Ok(Admission::Captured)
    );
    node.quiet().await;
    node.assert_log([
        "release a",
        "del a",
        "detach 7",
        "attach a 8",
        "add a",
        "capture a enabled",
        "annotate a Enabled",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_outside_the_mesh_is_let_through() {
    let node = Node::with_proxy(ProxyMode::Absent).await;
    let outsider = PodFacts {
        labels: StringMap::new(),
        ..pod("a")
    };
    let admitted = node.handle.admit(outsider, netns(7)).await;
    assert_eq!(admitted, Ok(Admission::Outside(Reason::NoSelectorMatches)));
    assert_eq!(node.report("a").unwrap().netns, None, "its namespace is not held");
    node.assert_log([]);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_of_another_node_is_refused() {
    let node = Node::with_proxy(ProxyMode::Absent).await;
    let mut elsewhere = pod("a");
    elsewhere.node.name = "node-2".to_owned();
    assert_eq!(
        node.handle.admit(elsewhere, netns(7)).await,
        Err(AdmissionError::Gone)
    );
}

#[tokio::test(start_paused = true)]
async fn the_addresses_of_the_sandbox_hold_until_kubelet_reports_them() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.handle.admit(pod("a"), netns(7)).await.unwrap();
    node.quiet().await;
    node.fake.take_log();
    let carrying = carrying_enabled(pod("a"));
    let stale = vec!["10.0.0.99".parse().unwrap()];
    for ips in [Vec::new(), stale, carrying.ips.clone()] {
        node.tell_pod(PodFacts {
            ips,
            ..carrying.clone()
        })
        .await;
    }
    node.assert_log([]);
    assert_eq!(node.report("a").unwrap().addresses, carrying.ips);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_waits_for_the_labels_of_its_namespace() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    let mut facts = pod("a");
    facts.pod.namespace = "new".to_owned();
    let handle = node.handle.clone();
    let admission = tokio::spawn(async move { handle.admit(facts, netns(7)).await });
    node.quiet().await;
    assert!(!admission.is_finished());
    let namespace = NamespaceRef {
        cluster: this_node().cluster,
        name: "new".to_owned(),
    };
    node.tell(Fact::Namespace(NamespaceFacts {
        namespace,
        labels: StringMap::new(),
    }))
    .await;
    assert_eq!(admission.await.unwrap(), Ok(Admission::Captured));
}

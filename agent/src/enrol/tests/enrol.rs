//! Into the mesh.

use super::*;
use crate::ports::PortHolder;

#[tokio::test(start_paused = true)]
async fn a_pod_is_enrolled_make_before_break() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.tell_pod_in(7, pod("a")).await;
    node.assert_log([
        "find a",
        "attach a 7",
        "add a",
        "capture a enabled",
        "annotate a Enabled",
    ]);
    assert_eq!(node.state("a"), Some(State::Enabled));
    assert_eq!(node.report("a").unwrap().reason, None);

    node.tell_pod(carrying_enabled(pod("a"))).await;
    node.assert_log([]);
}

#[tokio::test(start_paused = true)]
async fn without_a_proxy_a_pod_is_closed_and_opened_when_one_comes() {
    let node = Node::with_proxy(ProxyMode::Absent).await;
    node.tell_pod_in(7, pod("a")).await;
    node.assert_log([
        "find a",
        "attach a 7",
        "add a",
        "capture a closed",
        "annotate a Pending",
    ]);
    assert_eq!(node.state("a"), Some(State::Pending));
    assert!(
        node.report("a")
            .unwrap()
            .reason
            .unwrap()
            .contains("no proxy is connected")
    );

    node.pass(Duration::from_secs(60)).await;
    node.assert_log([]);

    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    node.assert_log([
        "attach-proxy 1",
        "add a",
        "capture a enabled",
        "annotate a Enabled",
    ]);
    assert_eq!(node.state("a"), Some(State::Enabled));
    assert_eq!(node.report("a").unwrap().reason, None);
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_closed_and_asked_for_again_with_back_off() {
    let node = Node::with_proxy(ProxyMode::Refuses).await;
    node.fake.world().holders.push(PortHolder {
        port: 15006,
        pid: 4711,
        name: "web".to_owned(),
    });
    node.tell_pod_in(7, pod("a")).await;
    node.assert_log([
        "find a",
        "attach a 7",
        "add a",
        "capture a closed",
        "annotate a Pending",
    ]);
    let reason = node.report("a").unwrap().reason.unwrap();
    for part in ["the proxy refuses", "port 15006", "process 4711 (web)"] {
        assert!(reason.contains(part), "{reason}");
    }

    node.pass(Duration::from_secs(3)).await;
    // After 50 ms, 100 ms and so on, which is 1.55 s for five of them.
    node.assert_log(["add a"; 5]);

    node.fake.world().proxy = ProxyMode::Accepts;
    node.pass(Duration::from_secs(5)).await;
    node.assert_log(["add a", "capture a enabled", "annotate a Enabled"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_process_waits_for_one() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.tell_pod(pod("a")).await;
    node.assert_log(["find a"]);
    assert_eq!(node.state("a"), Some(State::Waiting));
    assert!(node.report("a").unwrap().reason.unwrap().contains("no process"));

    node.tell_pod_in(7, pod("a")).await;
    node.assert_log([
        "find a",
        "attach a 7",
        "add a",
        "capture a enabled",
        "annotate a Enabled",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_process_comes_without_news_is_found_by_back_off() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.tell_pod(pod("a")).await;
    node.fake.take_log();
    node.fake.world().netns.insert("a".into(), 7);
    node.pass(Duration::from_millis(60)).await;
    node.assert_log([
        "find a",
        "attach a 7",
        "add a",
        "capture a enabled",
        "annotate a Enabled",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_changed_pod_is_updated_in_place() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.tell_pod_in(7, carrying_enabled(pod("a"))).await;
    node.fake.take_log();
    let mut dual_stack = carrying_enabled(pod("a"));
    dual_stack.ips.push("fd00::1".parse().unwrap());
    node.tell_pod(dual_stack.clone()).await;
    node.assert_log(["find a", "capture a enabled"]);
    assert_eq!(
        node.fake.world().entries[&PodUid::from("a")].addresses,
        dual_stack.ips
    );
}

#[tokio::test(start_paused = true)]
async fn an_address_goes_from_the_older_pod_to_the_newer_one() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.tell_pod_in(7, carrying_enabled(pod("old"))).await;
    node.fake.take_log();
    let mut newer = pod("new");
    newer.created = 200;
    node.tell_pod_in(8, newer).await;
    let entries = node.fake.world().entries.clone();
    assert!(entries[&PodUid::from("old")].addresses.is_empty());
    assert_eq!(entries[&PodUid::from("new")].addresses, pod("new").ips);
    assert_eq!(
        [node.state("old"), node.state("new")],
        [Some(State::Enabled); 2],
        "both stay captured"
    );
    assert!(
        !node
            .fake
            .take_log()
            .iter()
            .any(|call| call.starts_with("release"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_never_had_its_address_is_captured_all_the_same_and_says_who_has_it() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    let mut newer = pod("new");
    newer.created = 200;
    node.tell_pod_in(8, newer).await;
    node.fake.take_log();
    node.tell_pod_in(7, pod("old")).await;
    assert!(
        node.fake.world().entries[&PodUid::from("old")]
            .addresses
            .is_empty()
    );
    let report = node.report("old").unwrap();
    assert_eq!(report.state, State::Enabled);
    let reason = report.reason.unwrap_or_default();
    assert!(
        reason.contains("belongs to the newer pod default/new"),
        "{reason}"
    );
}

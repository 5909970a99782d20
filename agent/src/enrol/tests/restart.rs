//! The agent starts, and the maps hold what an earlier one left.

use super::*;

/// A node whose maps hold pod `a` in namespace 7; its process is in `netns`, if it has one.
fn left_behind(enabled: bool, netns: Option<u64>) -> Node {
    let fake = Fake::default();
    let entry = entry("a", 7, enabled);
    fake.world().entries.insert(entry.pod.uid.clone(), entry);
    fake.world()
        .netns
        .extend(netns.map(|cookie| ("a".into(), cookie)));
    Node::start(fake)
}

fn is_adopted(node: &Node) -> bool {
    *node.handle.adopted.borrow()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_as_wished_is_adopted_and_written_nowhere() {
    let node = left_behind(true, Some(7));
    node.list(&[carrying_enabled(pod("a"))]).await;
    node.assert_log(["find a", "attach a 7", "add a"]);
    node.handle.adopted().await.unwrap();
    assert_eq!(
        node.state("a"),
        Some(State::Pending),
        "no proxy has confirmed it yet"
    );

    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    node.assert_log(["attach-proxy 1"]);
    assert_eq!(node.state("a"), Some(State::Enabled));
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_before_pods_and_namespaces_are_listed() {
    let node = left_behind(true, Some(7));
    node.tell(Fact::PodsRelist).await;
    node.tell(Fact::PodsListed).await;
    node.quiet().await;
    node.assert_log([]);
    assert!(!is_adopted(&node));
    node.list_namespaces().await;
    node.quiet().await;
    node.assert_log(["release a", "detach 7"]);
    assert!(
        is_adopted(&node),
        "what no wish has was released before proxies get their snapshot"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_snapshot_refuses_becomes_pending() {
    let node = left_behind(true, Some(7));
    node.list(&[carrying_enabled(pod("a"))]).await;
    node.fake.take_log();
    node.fake.world().proxy = ProxyMode::Refuses;
    node.handle.proxies(vec![peer(1)]).await.unwrap();
    node.handle
        .snapshot_done(vec![("a".into(), "no port".to_owned())])
        .await
        .unwrap();
    node.quiet().await;
    node.assert_log(["capture a closed", "annotate a Pending"]);
    assert!(node.report("a").unwrap().reason.unwrap().contains("no port"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_in_another_namespace_leaves_and_is_enrolled_again() {
    let node = left_behind(true, Some(8));
    node.list(&[carrying_enabled(pod("a"))]).await;
    node.assert_log([
        "find a",
        "release a",
        "detach 7",
        "attach a 8",
        "add a",
        "capture a closed",
        "annotate a Pending",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_namespace_is_not_found_is_kept_and_told_to_the_proxy_when_it_is() {
    let node = left_behind(true, None);
    node.list(&[carrying_enabled(pod("a"))]).await;
    node.assert_log(["find a", "keep a"]);
    assert!(is_adopted(&node));

    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    assert_eq!(node.state("a"), Some(State::Enabled));
    node.fake.take_log();

    node.fake.world().netns.insert("a".into(), 7);
    node.pass(Duration::from_secs(5)).await;
    let log = node.fake.take_log();
    assert_eq!(log[log.len() - 3..], ["find a", "attach a 7", "add a"], "{log:?}");
    assert_eq!(node.state("a"), Some(State::Enabled));
}

#[tokio::test(start_paused = true)]
async fn a_changed_pod_is_repaired_in_place() {
    let node = left_behind(true, Some(7));
    let mut moved = carrying_enabled(pod("a"));
    moved.ips = vec!["10.0.0.2".parse().unwrap()];
    node.list(&[moved]).await;
    node.assert_log(["find a", "attach a 7", "capture a enabled", "add a"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_repaired_is_remembered_for_the_snapshot_all_the_same() {
    let node = left_behind(true, Some(7));
    node.fake.world().attach_fails = true;
    node.list(&[carrying_enabled(pod("a"))]).await;
    node.assert_log(["find a", "attach a 7", "add a", "attach a 7"]);
    assert!(is_adopted(&node));
    assert!(
        node.report("a")
            .unwrap()
            .reason
            .unwrap()
            .contains("the kernel refuses")
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_pending_is_opened_when_a_proxy_takes_it() {
    let node = left_behind(false, Some(7));
    node.list(&[pod("a")]).await;
    node.assert_log(["find a", "attach a 7", "add a", "annotate a Pending"]);
    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    node.assert_log([
        "attach-proxy 1",
        "add a",
        "capture a enabled",
        "annotate a Enabled",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_connects_while_the_agent_starts_is_no_reason_to_close_pods() {
    let node = left_behind(true, Some(7));
    node.handle.proxies(vec![peer(1)]).await.unwrap();
    node.list(&[carrying_enabled(pod("a"))]).await;
    node.assert_log(["find a", "attach a 7", "add a"]);
}

//! Pods that Istio's agent enrolled: its rules hold them until they are captured, and go then.

use agent_core::predecessor::Cleared;

use super::*;

/// A node whose agent starts while pod `a` runs in namespace 7 with rules, which go like this.
async fn switching(outcomes: Vec<Result<Cleared, ()>>) -> Node {
    let node = Node::start(Fake::default());
    node.fake.world().netns.insert("a".into(), 7);
    node.fake.world().rules.insert(7, outcomes);
    node.list(&[carrying_enabled(pod("a"))]).await;
    node
}

#[tokio::test(start_paused = true)]
async fn rules_hold_a_pod_until_the_proxy_takes_it_and_go_then() {
    let node = switching(vec![Ok(Cleared::Gone)]).await;
    node.assert_log(["find a", "attach a 7", "add a"]);
    assert!(*node.handle.adopted.borrow(), "proxies get their snapshot");
    let report = node.report("a").unwrap();
    assert_eq!((report.state, report.error), (State::Waiting, None), "not closed");

    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    node.assert_log([
        "attach-proxy 1",
        "add a",
        "capture a enabled",
        "clear 7 waits=true",
    ]);
    assert_eq!(node.report("a").unwrap().reason, None);
}

#[tokio::test(start_paused = true)]
async fn rules_that_cannot_be_removed_are_told_and_tried_again_and_the_pod_is_captured_meanwhile() {
    let node = switching(vec![Err(()), Ok(Cleared::Gone)]).await;
    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    node.fake.take_log();
    assert_eq!(node.state("a"), Some(State::Enabled));
    assert!(
        node.report("a")
            .unwrap()
            .error
            .unwrap()
            .contains("changes the table")
    );
    node.pass(Duration::from_secs(1)).await;
    node.assert_log(["clear 7 waits=true"]);
    assert_eq!(node.report("a").unwrap().error, None);
    node.pass(Duration::from_secs(60)).await;
    node.assert_log([]);
}

#[tokio::test(start_paused = true)]
async fn what_open_connections_need_goes_when_they_have_ended() {
    let node = switching(vec![
        Ok(Cleared::Draining(2)),
        Ok(Cleared::Draining(1)),
        Ok(Cleared::Gone),
    ])
    .await;
    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    node.fake.take_log();
    let report = node.report("a").unwrap();
    assert_eq!((report.state, report.error), (State::Enabled, None));
    assert!(report.reason.unwrap().contains("before the switch-over"));
    node.pass(Duration::from_secs(10)).await;
    node.assert_log(["clear 7 waits=true", "clear 7 waits=true"]);
    assert_eq!(node.report("a").unwrap().reason, None);
}

#[tokio::test(start_paused = true)]
async fn rules_of_a_pod_that_leaves_go_first_and_at_once() {
    let node = switching(vec![Ok(Cleared::Draining(2)), Ok(Cleared::Gone)]).await;
    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    node.fake.take_log();
    node.tell_pod(PodFacts {
        labels: StringMap::new(),
        ..carrying_enabled(pod("a"))
    })
    .await;
    node.assert_log([
        "clear 7 waits=false",
        "annotate a Absent",
        "release a",
        "del a",
        "detach 7",
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_label_went_between_the_two_agents_is_cleared() {
    let node = Node::start(Fake::default());
    node.fake.world().netns.insert("a".into(), 7);
    node.fake.world().rules.insert(7, vec![Ok(Cleared::Gone)]);
    node.list(&[PodFacts {
        labels: StringMap::new(),
        ..carrying_enabled(pod("a"))
    }])
    .await;
    node.assert_log(["find a", "clear 7 waits=false", "annotate a Absent"]);
    assert_eq!(
        node.report("a").unwrap().netns,
        None,
        "its namespace is not held any more"
    );
}

#[tokio::test(start_paused = true)]
async fn rules_hold_a_pod_that_an_agent_had_only_announced_when_it_died() {
    let node = Node::start(Fake::default());
    let announced = PodEntry {
        addresses: Vec::new(),
        source4: None,
        dns: false,
        ..entry("a", 7, false)
    };
    node.fake.world().entries.insert("a".into(), announced);
    node.fake.world().netns.insert("a".into(), 7);
    node.fake.world().rules.insert(7, vec![Ok(Cleared::Gone)]);
    node.list(&[carrying_enabled(pod("a"))]).await;
    node.assert_log(["find a", "attach a 7", "add a"]);
    node.fake.world().proxy = ProxyMode::Accepts;
    node.proxy_connects().await;
    node.assert_log([
        "attach-proxy 1",
        "add a",
        "capture a enabled",
        "clear 7 waits=true",
    ]);
}

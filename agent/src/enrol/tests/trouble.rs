//! Things that fail, and things that come back.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_annotation_that_cannot_be_written_undoes_nothing_and_is_retried() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.fake.world().api_fails = true;
    node.tell_pod_in(7, pod("a")).await;
    node.assert_log([
        "find a",
        "attach a 7",
        "add a",
        "capture a enabled",
        "annotate a Enabled",
    ]);
    assert_eq!(node.state("a"), Some(State::Enabled));
    assert!(node.report("a").unwrap().reason.unwrap().contains("API server"));

    node.pass(Duration::from_millis(200)).await;
    node.assert_log(["annotate a Enabled", "annotate a Enabled"]);
    node.fake.world().api_fails = false;
    node.pass(Duration::from_secs(1)).await;
    node.assert_log(["annotate a Enabled"]);
    assert_eq!(node.report("a").unwrap().reason, None);
}

#[tokio::test(start_paused = true)]
async fn a_full_map_holds_up_only_the_pod_that_finds_no_room() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.fake.world().room = Some(1);
    node.tell_pod_in(7, pod("a")).await;
    let mut second = pod("b");
    second.ips = vec!["10.0.0.2".parse().unwrap()];
    node.tell_pod_in(8, second).await;
    assert_eq!(
        [node.state("a"), node.state("b")],
        [Some(State::Enabled), Some(State::Waiting)]
    );
    assert!(
        node.report("b")
            .unwrap()
            .reason
            .unwrap()
            .contains("the map is full")
    );

    node.tell(Fact::PodGone("a".into())).await;
    node.pass(Duration::from_secs(5)).await;
    assert_eq!(node.state("b"), Some(State::Enabled));
    assert_eq!(node.report("b").unwrap().reason, None);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_cannot_be_attached_is_retried_and_nothing_is_captured_without_it() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.fake.world().attach_fails = true;
    node.tell_pod_in(7, pod("a")).await;
    node.assert_log(["find a", "attach a 7"]);
    node.fake.world().attach_fails = false;
    node.pass(Duration::from_millis(100)).await;
    node.assert_log(["attach a 7", "add a", "capture a enabled", "annotate a Enabled"]);
}

#[tokio::test(start_paused = true)]
async fn when_the_last_proxy_leaves_pods_stay_as_they_are_and_its_programs_are_retired() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.tell_pod_in(7, carrying_enabled(pod("a"))).await;
    node.fake.take_log();
    node.handle.proxies(Vec::new()).await.unwrap();
    node.pass(Duration::from_secs(60)).await;
    node.assert_log(["retire-proxies but []"]);
    assert_eq!(node.state("a"), Some(State::Enabled));

    node.proxy_connects().await;
    node.assert_log(["attach-proxy 1"]);
    assert_eq!(node.state("a"), Some(State::Enabled));
}

#[tokio::test(start_paused = true)]
async fn of_two_proxies_the_one_that_leaves_is_retired() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.handle.proxies(vec![peer(1), peer(2)]).await.unwrap();
    node.handle.proxies(vec![peer(2)]).await.unwrap();
    node.quiet().await;
    node.assert_log(["retire-proxies but [2]"]);
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_somebody_removes_is_written_again() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.tell_pod_in(7, carrying_enabled(pod("a"))).await;
    node.fake.take_log();
    node.tell_pod(pod("a")).await;
    node.assert_log(["annotate a Enabled"]);
}

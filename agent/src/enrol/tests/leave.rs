//! Out of the mesh.

use super::*;

async fn enrolled() -> Node {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.tell_pod_in(7, carrying_enabled(pod("a"))).await;
    node.fake.take_log();
    node
}

fn without_label() -> PodFacts {
    PodFacts {
        labels: StringMap::new(),
        ..carrying_enabled(pod("a"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_loses_its_label_leaves_in_reverse_order() {
    let node = enrolled().await;
    node.tell_pod(without_label()).await;
    node.assert_log(["annotate a Absent", "release a", "del a", "detach 7"]);
    let report = node.report("a").unwrap();
    assert_eq!(
        (report.state, report.wish),
        (State::Outside, "no_selector_matches")
    );
    assert_eq!(report.netns, None, "its namespace is not held any more");
}

#[tokio::test(start_paused = true)]
async fn a_pod_leaves_even_if_its_annotation_cannot_be_cleared_and_that_is_retried() {
    let node = enrolled().await;
    node.fake.world().api_fails = true;
    node.tell_pod(without_label()).await;
    node.assert_log(["annotate a Absent", "release a", "del a", "detach 7"]);
    assert!(node.report("a").unwrap().reason.unwrap().contains("API server"));

    node.fake.world().api_fails = false;
    node.pass(Duration::from_secs(1)).await;
    node.assert_log(["find a", "annotate a Absent"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_gives_up_its_address_first() {
    let node = enrolled().await;
    node.tell_pod(PodFacts {
        phase: Phase::Terminal,
        ..carrying_enabled(pod("a"))
    })
    .await;
    node.assert_log(["release a", "del a", "detach 7", "annotate a Absent"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_removed_without_an_annotation() {
    let node = enrolled().await;
    node.tell(Fact::PodGone("a".into())).await;
    node.quiet().await;
    node.assert_log(["release a", "del a", "detach 7"]);
    assert_eq!(node.report("a"), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_new_list_does_not_name_is_removed() {
    let node = enrolled().await;
    node.list(&[]).await;
    node.assert_log(["release a", "del a", "detach 7"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_the_proxy_is_asked_is_released_at_once_and_dropped_after_the_answer() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.fake.world().slow.insert("a".into());
    node.tell_pod_in(7, pod("a")).await;
    node.assert_log(["find a", "attach a 7", "add a"]);
    node.tell(Fact::PodGone("a".into())).await;
    node.quiet().await;
    node.assert_log([]);
    node.pass(Duration::from_secs(6)).await;
    node.assert_log(["del a", "detach 7"]);
    assert_eq!(node.report("a"), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_never_in_the_mesh_is_left_alone_unless_its_annotation_says_otherwise() {
    let node = Node::with_proxy(ProxyMode::Accepts).await;
    node.tell_pod(PodFacts {
        labels: StringMap::new(),
        ..pod("a")
    })
    .await;
    node.assert_log([]);
    node.tell_pod(without_label()).await;
    node.assert_log(["find a", "annotate a Absent"]);
}

#[tokio::test(start_paused = true)]
async fn a_captured_pod_without_an_address_for_a_moment_stays() {
    let node = enrolled().await;
    node.tell_pod(PodFacts {
        ips: Vec::new(),
        ..carrying_enabled(pod("a"))
    })
    .await;
    node.assert_log([]);
    assert_eq!(node.state("a"), Some(State::Enabled));
}

#[tokio::test(start_paused = true)]
async fn the_worker_ends_with_its_source_and_leaves_pods_captured() {
    let node = enrolled().await;
    let Node {
        fake,
        facts,
        handle,
        worker,
    } = node;
    drop(facts);
    worker.await.unwrap().unwrap();
    assert_eq!(fake.take_log(), [""; 0]);
    assert_eq!(fake.world().entries.len(), 1);
    assert!(handle.proxies(Vec::new()).await.is_err(), "the agent is stopping");
}

//! After the snapshot: adds and dels, several connections, answers that are late, wrong or missing.

use std::time::Duration;

use agent_core::ids::PodUid;
use tokio::time::{Instant, pause};

use super::client::{FakeProxy, Got, added};
use super::node::{Node, StoppedClock, workload};
use crate::ports::Proxy;

#[tokio::test]
async fn an_add_is_done_when_the_proxy_has_acked_it() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let call = node.spawn_add("a");
    assert!(matches!(proxy.read().await, Got::Add(uid, _) if uid == "a"));
    assert!(!call.is_over());
    proxy.ack().await;
    call.outcome().await.expect("acked");
}

#[tokio::test]
async fn the_words_of_a_refusal_reach_the_caller_and_the_pod_can_be_added_again() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let refuse = async {
        proxy.read().await;
        proxy.refuse("failure to start proxy: address in use").await;
    };
    let (call, ()) = tokio::join!(node.add("a"), refuse);
    let error = call.expect_err("refused");
    assert!(
        error.retryable && error.cause.contains("address in use"),
        "{error}"
    );
    let (call, got) = tokio::join!(node.add("a"), proxy.obey());
    call.expect("acked");
    assert!(matches!(got, Got::Add(..)));
    assert_eq!(node.zds.stats().refusals, 1);
}

#[tokio::test]
async fn without_a_proxy_an_add_fails_at_once_but_is_remembered() {
    let mut node = Node::start();
    let error = node.add("a").await.expect_err("nobody is there");
    assert!(error.retryable && error.cause.contains("ztunnel.sock"), "{error}");
    let (_proxy, snapshot) = FakeProxy::ready(&mut node).await;
    assert_eq!(added(&snapshot), ["a"]);
}

#[tokio::test]
async fn of_a_thousand_adds_at_once_each_gets_its_own_answer() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let calls: Vec<_> = (0..1000).map(|i| node.spawn_add(&format!("{i}"))).collect();
    for _ in 0..1000 {
        match proxy.read().await {
            Got::Add(uid, _) if uid.ends_with('7') => proxy.refuse(&format!("not {uid}")).await,
            Got::Add(..) => proxy.ack().await,
            got => panic!("{got:?}"),
        }
    }
    for (i, call) in calls.into_iter().enumerate() {
        match call.outcome().await {
            Ok(()) => assert_ne!(i % 10, 7, "{i}"),
            Err(error) => assert!(error.cause.ends_with(&format!(" not {i}")), "{i}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_missing_ack_is_an_error_after_twenty_seconds_and_ends_the_connection() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let before = Instant::now();
    let call = node.spawn_add("a");
    assert!(matches!(proxy.read().await, Got::Add(..)));
    let clock = StoppedClock::since(before);
    let error = call.outcome().await.expect_err("no ack");
    clock.assert_passed(20);
    assert!(
        error.retryable && error.cause.contains("did not ack within 20 s"),
        "{error}"
    );
    assert_eq!(
        proxy.read().await,
        Got::Closed,
        "a late ack would answer for the next request"
    );
    let (_proxy, snapshot) = FakeProxy::ready(&mut node).await;
    assert_eq!(added(&snapshot), ["a"]);
}

#[tokio::test]
async fn a_slow_ack_within_the_deadline_is_an_ack() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let call = node.spawn_add("a");
    proxy.read().await;
    pause();
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.ack().await;
    call.outcome().await.expect("acked");
}

#[tokio::test]
async fn the_newest_gets_the_adds_and_a_waiting_one_goes_to_the_older_when_it_dies() {
    let mut node = Node::start();
    let (older, _) = FakeProxy::ready(&mut node).await;
    let (newest, _) = FakeProxy::ready(&mut node).await;
    let call = node.spawn_add("a");
    assert!(matches!(newest.read().await, Got::Add(..)));
    assert!(older.hears_nothing());
    drop(newest);
    assert!(matches!(older.obey().await, Got::Add(uid, _) if uid == "a"));
    call.outcome().await.expect("acked by the older");
}

#[tokio::test]
async fn the_last_connection_that_dies_fails_the_waiting_add() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let call = node.spawn_add("a");
    proxy.read().await;
    drop(proxy);
    let error = call.outcome().await.expect_err("nobody is left");
    assert!(error.retryable && error.cause.contains("no proxy"), "{error}");
}

#[tokio::test]
async fn an_older_connection_catches_up_when_it_is_the_newest_again() {
    let mut node = Node::start();
    let (older, _) = FakeProxy::ready(&mut node).await;
    let (newest, _) = FakeProxy::ready(&mut node).await;
    let (call, _) = tokio::join!(node.add("a"), newest.obey());
    call.expect("acked by the newest");
    drop(newest);
    assert!(matches!(older.obey().await, Got::Add(uid, _) if uid == "a"));
}

#[tokio::test]
async fn a_late_disconnect_of_an_old_connection_touches_no_newer_one() {
    let mut node = Node::start();
    let (old, _) = FakeProxy::ready(&mut node).await;
    let (new, _) = FakeProxy::ready(&mut node).await;
    let call = node.spawn_add("a");
    new.read().await;
    drop(old);
    assert_eq!(node.disconnected().await, 1);
    assert!(!call.is_over());
    new.ack().await;
    call.outcome().await.expect("acked");
    let left: Vec<_> = node
        .zds
        .connections()
        .iter()
        .map(|c| (c.generation, c.snapshot_done))
        .collect();
    assert_eq!(left, [(2, true)]);
}

#[tokio::test]
async fn an_add_during_the_snapshot_is_answered_by_the_same_connection() {
    let node = Node::start();
    node.remember(&["a", "b"]).await;
    let proxy = FakeProxy::greet(&node).await;
    assert!(matches!(proxy.read().await, Got::Add(uid, _) if uid == "a"));
    let call = node.spawn_add("c");
    tokio::task::yield_now().await;
    proxy.ack().await;
    assert_eq!(added(&proxy.ack_snapshot().await), ["b"]);
    assert!(matches!(proxy.obey().await, Got::Add(uid, _) if uid == "c"));
    call.outcome().await.expect("acked");
    assert!(proxy.hears_nothing());
}

#[tokio::test]
async fn an_add_while_the_only_proxy_greets_is_answered_within_its_snapshot() {
    let node = Node::start();
    let proxy = FakeProxy::connect(&node);
    node.connections(1).await;
    let call = node.spawn_add("a");
    tokio::task::yield_now().await;
    proxy.say(b"\x08\x01").await;
    assert_eq!(added(&proxy.ack_snapshot().await), ["a"], "once");
    call.outcome().await.expect("acked");
    assert!(proxy.hears_nothing());
}

#[tokio::test]
async fn a_peer_that_only_greets_takes_no_add_from_a_proxy_that_works() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let _silent = FakeProxy::connect(&node);
    node.connections(2).await;
    let (call, got) = tokio::join!(node.add("a"), proxy.obey());
    call.expect("acked");
    assert!(matches!(got, Got::Add(..)));
    assert_eq!(
        node.zds.connections().len(),
        2,
        "the other has not been waited for"
    );
}

#[tokio::test]
async fn a_del_goes_to_all_connections_and_waits_for_all() {
    let mut node = Node::start();
    node.remember(&["a"]).await;
    let (one, _) = FakeProxy::ready(&mut node).await;
    let (two, _) = FakeProxy::ready(&mut node).await;
    let call = node.spawn_del("a");
    assert_eq!(two.obey().await, Got::Del("a".to_owned()));
    assert_eq!(one.read().await, Got::Del("a".to_owned()));
    assert!(!call.is_over());
    one.ack().await;
    call.outcome().await.expect("acked by both");
}

#[tokio::test]
async fn a_del_that_is_not_acked_is_an_error_and_the_next_one_succeeds() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let call = node.spawn_del("a");
    proxy.read().await;
    drop(proxy);
    let error = call.outcome().await.expect_err("no ack");
    assert!(error.retryable && error.object.contains('a'), "{error}");
    node.disconnected().await;
    node.zds
        .del(&PodUid::from("a"))
        .await
        .expect("nobody knows the pod");
}

#[tokio::test]
async fn names_that_the_proxy_could_not_read_are_refused_and_never_sent() {
    let mut node = Node::start();
    let mut pod = workload("a");
    pod.service_account = "x".repeat(1024);
    let error = node.zds.add(pod, Some(node.netns())).await.expect_err("too long");
    assert!(!error.retryable && error.cause.contains("1024"), "{error}");
    let (_proxy, snapshot) = FakeProxy::ready(&mut node).await;
    assert_eq!(snapshot, []);
}

//! From the connection to the end of the snapshot.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use agent_core::ids::PodUid;
use futures::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::client::{FakeProxy, Got, added};
use super::node::{Node, StoppedClock, in_time, inode, workload};
use crate::ports::{PortError, Proxy};
use crate::zds::Event;

#[tokio::test]
async fn every_connection_gets_a_full_snapshot() {
    let mut node = Node::start();
    node.remember(&["a", "b"]).await;
    for round in 1..=3 {
        let (proxy, snapshot) = FakeProxy::ready(&mut node).await;
        assert_eq!(added(&snapshot), ["a", "b"], "round {round}");
        drop(proxy);
        node.disconnected().await;
    }
}

#[tokio::test]
async fn a_later_snapshot_has_the_news_of_the_time_without_a_proxy() {
    let mut node = Node::start();
    node.remember(&["a", "b"]).await;
    drop(FakeProxy::ready(&mut node).await);
    node.disconnected().await;
    node.remember(&["c"]).await;
    node.zds
        .del(&PodUid::from("a"))
        .await
        .expect("nobody is there to tell");
    let (_proxy, snapshot) = FakeProxy::ready(&mut node).await;
    assert_eq!(added(&snapshot), ["b", "c"]);
}

#[tokio::test]
async fn a_pod_with_a_new_namespace_replaces_the_old_one() {
    let mut node = Node::start();
    let (old, new) = (node.netns(), node.netns());
    for netns in [&old, &new] {
        node.zds
            .add(workload("a"), Some(netns.clone()))
            .await
            .expect_err("nobody is connected");
    }
    assert_eq!(Arc::strong_count(&old), 1, "the old namespace is let go");
    let (proxy, snapshot) = FakeProxy::ready(&mut node).await;
    assert_eq!(snapshot, [Got::Add("a".to_owned(), inode(&*new))]);
    let (call, got) = tokio::join!(node.zds.add(workload("a"), Some(old.clone())), proxy.obey());
    call.expect("acked");
    assert_eq!(
        got,
        Got::Add("a".to_owned(), inode(&*old)),
        "and in the live phase too"
    );
}

#[tokio::test]
async fn a_pod_without_a_namespace_is_kept_and_not_added() {
    let mut node = Node::start();
    node.zds.add(workload("a"), None).await.expect("remembered");
    let (proxy, snapshot) = FakeProxy::ready(&mut node).await;
    assert_eq!(snapshot, [Got::Keep("a".to_owned())]);
    node.zds.add(workload("b"), None).await.expect("remembered");
    let (call, got) = tokio::join!(node.add("c"), proxy.obey());
    call.expect("acked");
    assert!(
        matches!(got, Got::Add(uid, _) if uid == "c"),
        "a keep in the live phase is a protocol error"
    );
}

#[tokio::test]
async fn no_proxy_hears_a_snapshot_before_the_gate_is_open() {
    let mut node = Node::start_closed(Box::new(|_| async { Ok(()) }.boxed()));
    let proxy = FakeProxy::greet(&node).await;
    assert!(matches!(node.event().await, Event::Connected { .. }));
    let error = node.add("late").await.expect_err("still starting");
    assert!(error.retryable && error.cause.contains("starting"), "{error}");
    assert!(proxy.hears_nothing());
    node.zds.open_gate();
    assert_eq!(added(&proxy.ack_snapshot().await), ["late"]);
}

#[tokio::test]
async fn programs_are_attached_before_the_first_pod() {
    let (release, attached) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
    let (released, seen) = (release.clone(), attached.clone());
    let mut node = Node::start_closed(Box::new(move |peer| {
        let (released, seen) = (released.clone(), seen.clone());
        async move {
            seen.lock().expect("lock").push(peer);
            released.notified().await;
            Ok(())
        }
        .boxed()
    }));
    node.zds.open_gate();
    let proxy = FakeProxy::greet(&node).await;
    in_time(async {
        while attached.lock().expect("lock").is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(proxy.hears_nothing(), "the hook has not returned");
    assert!(node.events.is_empty());
    release.notify_one();
    assert_eq!(proxy.read().await, Got::SnapshotSent);
    let peer = attached.lock().expect("lock").pop().expect("a peer");
    assert_eq!(peer.pid, std::process::id());
    assert_eq!(peer.cgroup, Path::new("/cg/kubepods/ztunnel"));
    assert_eq!(node.event().await, Event::Connected { generation: 1, peer });
}

#[tokio::test]
async fn a_proxy_whose_programs_cannot_be_attached_is_turned_away_until_they_can() {
    let first = AtomicBool::new(true);
    let mut node = Node::start_closed(Box::new(move |_| {
        let (object, cause) = ("cgroup".to_owned(), "no room".to_owned());
        let error = PortError {
            operation: "attach",
            object,
            cause,
            retryable: true,
        };
        let outcome = if first.swap(false, Relaxed) {
            Err(error)
        } else {
            Ok(())
        };
        async { outcome }.boxed()
    }));
    node.zds.open_gate();
    assert_eq!(FakeProxy::greet(&node).await.read().await, Got::Closed);
    let (_proxy, _) = FakeProxy::ready(&mut node).await;
    assert_eq!(node.zds.stats().attach_failures, 1);
    assert_eq!(node.zds.connections().len(), 1);
}

#[tokio::test]
async fn a_refused_pod_is_told_and_the_snapshot_goes_on() {
    let mut node = Node::start();
    node.remember(&["a", "b", "c"]).await;
    let proxy = FakeProxy::greet(&node).await;
    proxy.obey().await;
    assert!(matches!(proxy.read().await, Got::Add(uid, _) if uid == "b"));
    proxy.refuse("port is taken").await;
    assert_eq!(added(&proxy.ack_snapshot().await), ["c"]);
    let (_, refused) = node.snapshot_done().await;
    assert_eq!(refused, [(PodUid::from("b"), "port is taken".to_owned())]);
    assert!(node.zds.connections()[0].snapshot_done);
}

#[tokio::test]
async fn a_refused_end_of_the_snapshot_ends_the_connection() {
    let node = Node::start();
    let proxy = FakeProxy::greet(&node).await;
    assert_eq!(proxy.read().await, Got::SnapshotSent);
    proxy.refuse("already received").await;
    assert_eq!(proxy.read().await, Got::Closed);
    assert_eq!(node.zds.stats().protocol_errors, 1);
}

#[tokio::test]
async fn a_proxy_may_leave_at_each_step() {
    let mut node = Node::start();
    node.remember(&["a", "b"]).await;
    drop(FakeProxy::connect(&node));
    for answered in 0..3 {
        let proxy = FakeProxy::greet(&node).await;
        for _ in 0..answered {
            proxy.obey().await;
        }
        assert_ne!(proxy.read().await, Got::Closed);
        drop(proxy);
        node.disconnected().await;
    }
    let (_proxy, snapshot) = FakeProxy::ready(&mut node).await;
    assert_eq!(added(&snapshot), ["a", "b"]);
    assert_eq!(node.zds.connections().len(), 1);
    assert_eq!(node.zds.stats().protocol_errors, 0, "leaving is no error");
}

#[tokio::test]
async fn a_peer_without_a_hello_is_closed_after_five_seconds() {
    let node = Node::start();
    let before = Instant::now();
    let silent = FakeProxy::connect(&node);
    node.connections(1).await;
    let clock = StoppedClock::since(before);
    assert_eq!(silent.read().await, Got::Closed);
    clock.assert_passed(5);
    assert_eq!(node.zds.stats().timeouts, 1);
}

//! What a connection is told next, by the registry alone.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use agent_core::ids::PodUid;

use super::node::workload;
use crate::ports::ProxyPeer;
use crate::zds::call::CallError;
use crate::zds::registry::Registry;

fn netns() -> Option<Arc<OwnedFd>> {
    Some(Arc::new(tempfile::tempfile().expect("a file").into()))
}

/// A registry with one connection whose snapshot is done.
fn live() -> (Registry, u64) {
    let mut registry = Registry::default();
    let generation = registry
        .register(ProxyPeer {
            pid: 1,
            cgroup: PathBuf::new(),
        })
        .generation;
    registry.begin_snapshot(generation);
    assert_eq!(told(&mut registry, generation), ["SnapshotSent"]);
    (registry, generation)
}

/// All messages that are due, each acked.
fn told(registry: &mut Registry, generation: u64) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(task) = registry.next(generation) {
        let text = task.step.to_string();
        told.push(text.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
        registry.settle(generation, task, None);
    }
    told
}

#[test]
fn a_del_that_was_overtaken_by_a_new_add_is_not_sent() {
    let (mut registry, generation) = live();
    registry.forget(&PodUid::from("a"));
    let mut del = registry.request_del(&PodUid::from("a")).remove(0);
    registry.remember(workload("a"), netns());
    let mut add = registry.request_add(&PodUid::from("a")).expect("a connection");
    assert_eq!(told(&mut registry, generation), ["Add shop/pod-a"]);
    assert_eq!(del.try_recv(), Ok(Ok(())));
    assert_eq!(add.try_recv(), Ok(Ok(())));
}

#[test]
fn an_add_of_a_pod_that_is_gone_again_is_not_sent() {
    let (mut registry, generation) = live();
    registry.remember(workload("a"), netns());
    let mut add = registry.request_add(&PodUid::from("a")).expect("a connection");
    registry.forget(&PodUid::from("a"));
    let _del = registry.request_del(&PodUid::from("a"));
    assert_eq!(told(&mut registry, generation), ["Del a"]);
    assert_eq!(add.try_recv(), Ok(Err(CallError::Forgotten)));
}

#[test]
fn adds_of_one_pod_that_wait_together_are_one_message_with_the_last_namespace() {
    let (mut registry, generation) = live();
    let uid = PodUid::from("a");
    registry.remember(workload("a"), netns());
    let mut first = registry.request_add(&uid).expect("a connection");
    registry.remember(workload("a"), netns());
    let mut second = registry.request_add(&uid).expect("a connection");
    assert_eq!(told(&mut registry, generation), ["Add shop/pod-a"]);
    assert_eq!(first.try_recv(), Ok(Ok(())));
    assert_eq!(second.try_recv(), Ok(Ok(())));
    registry.remember(workload("a"), netns());
    registry.request_add(&uid).expect("a connection");
    assert_eq!(
        told(&mut registry, generation),
        ["Add shop/pod-a"],
        "a later add is sent again"
    );
}

#[test]
fn adds_that_wait_for_a_proxy_come_first_in_its_snapshot_and_once() {
    let mut registry = Registry::default();
    for uid in ["a", "b", "c"] {
        registry.remember(workload(uid), netns());
    }
    let generation = registry
        .register(ProxyPeer {
            pid: 1,
            cgroup: PathBuf::new(),
        })
        .generation;
    let mut waiting = registry.request_add(&PodUid::from("b")).expect("a connection");
    registry.begin_snapshot(generation);
    let order = [
        "Add shop/pod-b",
        "Add shop/pod-a",
        "Add shop/pod-c",
        "SnapshotSent",
    ];
    assert_eq!(told(&mut registry, generation), order);
    assert_eq!(waiting.try_recv(), Ok(Ok(())));
}

#[test]
fn a_pod_to_keep_is_told_within_the_snapshot_only() {
    let mut registry = Registry::default();
    registry.remember(workload("a"), None);
    let older = registry
        .register(ProxyPeer {
            pid: 1,
            cgroup: PathBuf::new(),
        })
        .generation;
    registry.begin_snapshot(older);
    assert_eq!(told(&mut registry, older), ["Keep a", "SnapshotSent"]);
    let newest = registry
        .register(ProxyPeer {
            pid: 2,
            cgroup: PathBuf::new(),
        })
        .generation;
    registry.begin_snapshot(newest);
    registry.remove(newest);
    registry.request_add(&PodUid::from("a")).expect("a connection");
    assert!(
        told(&mut registry, older).is_empty(),
        "a late keep makes ztunnel end"
    );
}

#[test]
fn a_pod_that_is_deleted_during_the_snapshot_is_not_added_by_it() {
    let mut registry = Registry::default();
    registry.remember(workload("a"), netns());
    registry.remember(workload("b"), netns());
    let generation = registry
        .register(ProxyPeer {
            pid: 1,
            cgroup: PathBuf::new(),
        })
        .generation;
    assert!(
        registry.request_del(&PodUid::from("x")).is_empty(),
        "one that greets knows no pod"
    );
    registry.begin_snapshot(generation);
    registry.forget(&PodUid::from("b"));
    let mut del = registry.request_del(&PodUid::from("b")).remove(0);
    assert_eq!(
        told(&mut registry, generation),
        ["Add shop/pod-a", "SnapshotSent", "Del b"]
    );
    assert_eq!(del.try_recv(), Ok(Ok(())));
}

#[test]
fn an_ack_of_an_older_add_does_not_count_for_a_newer_one() {
    let (mut registry, generation) = live();
    let uid = PodUid::from("a");
    registry.remember(workload("a"), netns());
    let mut first = registry.request_add(&uid).expect("a connection");
    let task = registry.next(generation).expect("the first");
    registry.remember(workload("a"), netns());
    let mut second = registry.request_add(&uid).expect("a connection");
    registry.settle(generation, task, None);
    assert_eq!(first.try_recv(), Ok(Ok(())));
    second.try_recv().expect_err("not yet");
    assert_eq!(told(&mut registry, generation), ["Add shop/pod-a"]);
    assert_eq!(second.try_recv(), Ok(Ok(())));
}

#[test]
fn a_removed_connection_ends_the_replies_of_its_callers_only() {
    let (mut registry, old) = live();
    let new = registry
        .register(ProxyPeer {
            pid: 2,
            cgroup: PathBuf::new(),
        })
        .generation;
    registry.begin_snapshot(new);
    registry.remember(workload("a"), netns());
    let mut at_new = registry.request_add(&PodUid::from("a")).expect("a connection");
    registry.remove(old);
    at_new.try_recv().expect_err("still waits");
    registry.remove(old);
    assert_eq!(registry.connections().len(), 1);
    assert_eq!(told(&mut registry, new), ["SnapshotSent", "Add shop/pod-a"]);
    assert_eq!(at_new.try_recv(), Ok(Ok(())));
    assert!(told(&mut registry, old).is_empty());
}

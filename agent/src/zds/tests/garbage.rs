//! Peers that do not keep to the protocol: they are closed, and nobody else notices.

use std::fs;
use std::os::fd::AsFd;
use std::process::Command;

use super::client::{FakeProxy, Got, added};
use super::node::Node;
use crate::zds::seqpacket::Channel;

/// Set for a test that runs alone in its process.
const ALONE: &str = "MESHGATE_TEST_ALONE";

#[tokio::test]
async fn garbage_instead_of_a_hello_closes_the_connection_and_no_other() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let long = vec![8; 100_000];
    let packets = [
        &b"\x00"[..],
        b"\x08\x00",
        b"\x0a\x02\x0a\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        &long,
    ];
    for (closed, packet) in (1..).zip(packets) {
        let peer = FakeProxy::connect(&node);
        peer.say(packet).await;
        assert_eq!(peer.read().await, Got::Closed);
        assert_eq!(node.zds.stats().protocol_errors, closed);
    }
    let (call, _) = tokio::join!(node.add("a"), proxy.obey());
    call.expect("acked");
    assert!(
        node.events.is_empty(),
        "garbage is no proxy, so that nobody is told of one"
    );
}

#[tokio::test]
async fn a_wrong_message_instead_of_an_ack_closes_the_connection() {
    let mut node = Node::start();
    node.remember(&["a"]).await;
    for wrong in [&b"\x08\x01"[..], b"\x12\x00", b"\xff"] {
        let proxy = FakeProxy::greet(&node).await;
        assert!(matches!(proxy.read().await, Got::Add(..)));
        proxy.say(wrong).await;
        assert_eq!(proxy.read().await, Got::Closed);
    }
    assert_eq!(node.zds.stats().protocol_errors, 3);
    let (_proxy, snapshot) = FakeProxy::ready(&mut node).await;
    assert_eq!(added(&snapshot), ["a"]);
}

#[tokio::test]
async fn a_message_that_nobody_asked_for_closes_the_connection() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    proxy.ack().await;
    assert_eq!(proxy.read().await, Got::Closed);
    assert_eq!(node.zds.stats().protocol_errors, 1);
}

#[tokio::test]
async fn a_long_error_text_is_no_garbage() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let text = "x".repeat(10_000);
    let refuse = async {
        proxy.read().await;
        proxy.refuse(&text).await;
    };
    let (call, ()) = tokio::join!(node.add("a"), refuse);
    assert!(call.expect_err("refused").cause.ends_with(&text));
}

#[tokio::test]
async fn descriptors_of_a_peer_are_not_taken() {
    let node = Node::start();
    let peer = FakeProxy::connect(&node);
    let descriptor = node.netns();
    peer.0
        .send(b"\x08\x01", Some(descriptor.as_fd()))
        .await
        .expect("sent");
    assert_eq!(peer.read().await, Got::Closed);
    assert_eq!(node.zds.stats().protocol_errors, 1);
}

#[tokio::test]
async fn a_peer_whose_process_cannot_be_found_is_turned_away() {
    let node = Node::start();
    node.hide_this_process();
    assert_eq!(FakeProxy::greet(&node).await.read().await, Got::Closed);
    assert_eq!(node.zds.stats().unknown_peers, 1);
}

#[tokio::test]
async fn the_seventeenth_connection_waits_until_another_ends() {
    let mut node = Node::start();
    let mut proxies = Vec::new();
    for _ in 0..16 {
        proxies.push(FakeProxy::ready(&mut node).await.0);
    }
    let waiting = FakeProxy::greet(&node).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.zds.stats().accepted, 16);
    assert!(waiting.hears_nothing());
    proxies.pop();
    assert_eq!(waiting.obey().await, Got::SnapshotSent);
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_socket_and_all_connections() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let path = node.socket();
    let clone = node.zds.clone();
    let folder = node.close();
    drop(Channel::connect(&path).expect("the clone keeps it open"));
    drop(clone);
    assert_eq!(proxy.read().await, Got::Closed);
    Channel::connect(&path).expect_err("nobody listens");
    drop(folder);
}

#[test]
fn a_thousand_garbage_packets_on_a_thousand_connections_leak_nothing() {
    // Descriptors are of the process, and other tests open some: so this one runs in a process of its own.
    if std::env::var_os(ALONE).is_some() {
        return count_descriptors();
    }
    let name = "zds::tests::garbage::a_thousand_garbage_packets_on_a_thousand_connections_leak_nothing";
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .expect("a child");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

#[tokio::main(flavor = "current_thread")]
async fn count_descriptors() {
    let mut node = Node::start();
    let (proxy, _) = FakeProxy::ready(&mut node).await;
    let netns = node.netns();
    let before = open_descriptors();
    for i in 0..1000_u32 {
        let peer = FakeProxy::connect(&node);
        let packet = [i.to_be_bytes(), [0xff; 4]].concat();
        let descriptor = (i % 2 == 0).then_some(netns.as_fd());
        peer.0.send(&packet, descriptor).await.expect("sent");
        assert_eq!(peer.read().await, Got::Closed);
    }
    assert_eq!(node.zds.stats().protocol_errors, 1000);
    for i in 0..100 {
        let uid = i.to_string();
        let (call, _) = tokio::join!(node.add(&uid), proxy.obey());
        call.expect("acked");
        assert_eq!(FakeProxy::ready(&mut node).await.1.len(), 1);
        node.disconnected().await;
        // The first proxy is the newest again, and hears what the other one was told too.
        let (call, _) = tokio::join!(node.spawn_del(&uid).outcome(), proxy.obey());
        call.expect("acked");
    }
    assert_eq!(open_descriptors(), before);
}

/// What this process has open.
fn open_descriptors() -> Vec<String> {
    let folder = fs::read_dir("/proc/self/fd").expect("a folder");
    let mut open: Vec<_> = folder
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    open.sort();
    open
}

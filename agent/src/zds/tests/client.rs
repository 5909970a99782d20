//! A proxy for tests: says hello, reads requests with their descriptors, acks or refuses.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use futures::FutureExt;
use prost::Message as _;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;

use super::node::{Node, in_time, inode};
use crate::zds::seqpacket::Channel;
use crate::zds::wire::{Ack, Request, Response, V1, WorkloadRequest, WorkloadResponse, ZdsHello};

/// A request as the proxy reads it: the pod, and which file came with it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Got {
    Add(String, u64),
    Keep(String),
    Del(String),
    SnapshotSent,
    Closed,
}

/// One connection of a proxy.
pub(super) struct FakeProxy(pub(super) Channel);

impl FakeProxy {
    /// Connects, and says nothing.
    pub(super) fn connect(node: &Node) -> Self {
        Self(Channel::connect(&node.socket()).expect("a connection"))
    }

    /// Connects and says hello.
    pub(super) async fn greet(node: &Node) -> Self {
        let proxy = Self::connect(node);
        proxy.say(&ZdsHello { version: V1 }.encode_to_vec()).await;
        proxy
    }

    /// Connects, and acks a whole snapshot; returns it, sorted.
    pub(super) async fn ready(node: &mut Node) -> (Self, Vec<Got>) {
        let proxy = Self::greet(node).await;
        let snapshot = proxy.ack_snapshot().await;
        node.snapshot_done().await;
        (proxy, snapshot)
    }

    /// Sends bytes.
    pub(super) async fn say(&self, packet: &[u8]) {
        self.0.send(packet, None).await.expect("sent");
    }

    /// Reads a request.
    pub(super) async fn read(&self) -> Got {
        in_time(self.read_at_all()).await
    }

    /// Whether nothing has been sent to this proxy so far.
    pub(super) fn hears_nothing(&self) -> bool {
        self.read_at_all().now_or_never().is_none()
    }

    /// Acks.
    pub(super) async fn ack(&self) {
        self.refuse("").await;
    }

    /// Refuses, with a text.
    pub(super) async fn refuse(&self, error: &str) {
        let ack = Response::Ack(Ack {
            error: error.to_owned(),
        });
        self.say(&WorkloadResponse { payload: Some(ack) }.encode_to_vec())
            .await;
    }

    /// Reads a request and acks it.
    pub(super) async fn obey(&self) -> Got {
        let got = self.read().await;
        self.ack().await;
        got
    }

    /// Acks requests up to the end of the snapshot.
    pub(super) async fn ack_snapshot(&self) -> Vec<Got> {
        let mut snapshot = Vec::new();
        loop {
            match self.obey().await {
                Got::SnapshotSent => break,
                got => snapshot.push(got),
            }
        }
        snapshot.sort();
        snapshot
    }

    async fn read_at_all(&self) -> Got {
        let mut packet = [0; 1024];
        match self
            .0
            .0
            .async_io(Interest::READABLE, || receive(&self.0, &mut packet))
            .await
        {
            Ok((0, _)) => Got::Closed,
            Ok((length, descriptors)) => understand(&packet[..length], &descriptors),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Got::Closed,
            Err(error) => panic!("receiving: {error}"),
        }
    }
}

/// Receives a packet and its descriptors.
fn receive(channel: &Channel, packet: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        &channel.0,
        &mut [IoSliceMut::new(packet)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}

/// Reads a request as strictly as ztunnel does.
fn understand(packet: &[u8], descriptors: &[OwnedFd]) -> Got {
    let request = WorkloadRequest::decode(packet)
        .expect("a request")
        .payload
        .expect("a payload");
    match (request, descriptors) {
        (Request::Add(add), [netns]) => {
            let info = add.workload_info.expect("workload information");
            assert_eq!(info.name, format!("pod-{}", add.uid));
            assert_eq!(
                (info.namespace.as_str(), info.service_account.as_str()),
                ("shop", "seller")
            );
            Got::Add(add.uid, inode(netns))
        }
        (Request::Keep(keep), []) => Got::Keep(keep.uid),
        (Request::Del(del), []) => Got::Del(del.uid),
        (Request::SnapshotSent(_), []) => Got::SnapshotSent,
        (request, descriptors) => panic!("{request:?} with {} descriptors", descriptors.len()),
    }
}

/// The UIDs of all adds.
pub(super) fn added(got: &[Got]) -> Vec<&str> {
    got.iter()
        .filter_map(|got| match got {
            Got::Add(uid, _) => Some(uid.as_str()),
            _ => None,
        })
        .collect()
}

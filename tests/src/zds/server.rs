//! A ZDS server for tests without an agent: one proxy at a time, one request at a time, each awaited.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result, bail};
use prost::Message;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

use super::{
    Add, Del, Hello, Keep, Packet, Payload, Request, Response, SnapshotSent, WorkloadInfo, receive, send,
};
use crate::pod::Pod;
use crate::wait::{LIMIT, patient, readable};

/// The listening end.
#[derive(Debug)]
pub struct ZdsServer(OwnedFd);

/// A proxy that has said hello.
#[derive(Debug)]
pub struct Peer(OwnedFd);

impl ZdsServer {
    /// Listens at `path`.
    ///
    /// # Errors
    /// What bind(2) says.
    pub fn bind(path: &Path) -> Result<Self> {
        let _ = fs::remove_file(path);
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        bind(&socket, &SocketAddrUnix::new(path)?).with_context(|| format!("binding {}", path.display()))?;
        listen(&socket, 16)?;
        Ok(Self(socket))
    }

    /// Waits for the next proxy and its hello.
    ///
    /// # Errors
    /// When none comes in time, or it says something else.
    pub fn accept(&self) -> Result<Peer> {
        if !readable(&mut [PollFd::new(&self.0, PollFlags::IN)], patient(LIMIT))? {
            bail!("no proxy connected within {LIMIT:?}");
        }
        let peer = Peer(accept_with(&self.0, SocketFlags::CLOEXEC)?);
        let hello = Hello::decode(peer.packet()?.bytes.as_slice())?;
        if hello.version != super::VERSION {
            bail!("a hello of version {}", hello.version);
        }
        Ok(peer)
    }
}

impl Peer {
    /// Adds a pod.
    ///
    /// # Errors
    /// When the proxy refuses or is gone.
    pub fn add(&self, pod: &Pod) -> Result<()> {
        let workload = WorkloadInfo {
            name: pod.name().to_owned(),
            namespace: pod.namespace().to_owned(),
            service_account: "default".to_owned(),
        };
        let add = Add {
            uid: pod.uid().to_owned(),
            workload: Some(workload),
        };
        self.ask(Payload::Add(add), Some(&pod.netns().open()?))
    }

    /// Asks it to go on serving a pod.
    ///
    /// # Errors
    /// As [`Peer::add`].
    pub fn keep(&self, pod: &Pod) -> Result<()> {
        self.ask(
            Payload::Keep(Keep {
                uid: pod.uid().to_owned(),
            }),
            None,
        )
    }

    /// Ends the snapshot.
    ///
    /// # Errors
    /// As [`Peer::add`].
    pub fn snapshot_sent(&self) -> Result<()> {
        self.ask(Payload::SnapshotSent(SnapshotSent {}), None)
    }

    /// Removes a pod.
    ///
    /// # Errors
    /// As [`Peer::add`].
    pub fn del(&self, pod: &Pod) -> Result<()> {
        self.ask(
            Payload::Del(Del {
                uid: pod.uid().to_owned(),
            }),
            None,
        )
    }

    /// Sends a request and waits for its ack.
    fn ask(&self, payload: Payload, fd: Option<&OwnedFd>) -> Result<()> {
        let request = Request {
            payload: Some(payload),
        };
        send(&self.0, &request.encode_to_vec(), fd.map(AsFd::as_fd))?;
        let ack = Response::decode(self.packet()?.bytes.as_slice())?
            .ack
            .context("a response without ack")?;
        if !ack.error.is_empty() {
            bail!("the proxy refused: {}", ack.error);
        }
        Ok(())
    }

    fn packet(&self) -> Result<Packet> {
        if !readable(&mut [PollFd::new(&self.0, PollFlags::IN)], patient(LIMIT))? {
            bail!("the proxy said nothing within {LIMIT:?}");
        }
        receive(&self.0)?.context("the proxy closed the connection")
    }
}

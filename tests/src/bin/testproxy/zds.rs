//! The client side of ZDS: dials the agent again and again, says hello, carries out each request and acks it in order.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use prost::Message;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tests::proxy::Event;
use tests::zds::{Ack, Add, Hello, Packet, Payload, Request, Response, VERSION, WorkloadInfo, receive, send};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::log::Log;

/// First pause before dialling again; doubles each time, as in ztunnel.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest pause. ztunnel's is 15 s: tests would wait for it.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How the client behaves.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The agent's socket.
    pub(crate) socket: PathBuf,
    /// Refuses every Nth Add.
    pub(crate) refuse_every: Option<u32>,
    /// Pause before each ack.
    pub(crate) ack_delay: Duration,
    /// How long it stays connected.
    pub(crate) hang_up_after: Option<Duration>,
}

/// What is done with the pods.
pub(crate) trait Workloads {
    /// Serves a pod of a Kubernetes namespace; the error is the text of the ack.
    async fn add(&mut self, uid: &str, namespace: &str, netns: OwnedFd) -> Result<(), String>;
    /// Serves it no more.
    async fn del(&mut self, uid: &str);
    /// Pods that are served.
    fn uids(&self) -> Vec<String>;
}

/// Follows the agent for ever. Returns only when the agent broke the protocol, where ztunnel gives up too.
pub(crate) async fn follow(settings: &Settings, workloads: &mut impl Workloads, log: &Log) -> Error {
    let mut pause = FIRST_PAUSE;
    let mut adds = 0;
    loop {
        if let Ok(socket) = dial(settings).await {
            pause = FIRST_PAUSE;
            log.write(|| Event::Hello);
            let mut session = Session {
                settings,
                workloads,
                log,
                socket,
                adds: &mut adds,
                snapshot: Some(Vec::new()),
            };
            let limit = settings.hang_up_after.unwrap_or(Duration::MAX);
            let ended = timeout(limit, session.run()).await;
            match ended.unwrap_or_else(|_| Err(anyhow!("it was time to hang up"))) {
                Ok(never) => match never {},
                Err(error) if error.is::<ProtocolError>() => return error,
                Err(error) => log.write(|| Event::Disconnected {
                    error: format!("{error:#}"),
                }),
            }
        }
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// The agent said something that it may never say.
#[derive(Debug)]
struct ProtocolError(&'static str);

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ProtocolError {}

async fn dial(settings: &Settings) -> Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(&settings.socket)?)?;
    // Only its readiness is tokio's; packets go through sendmsg and recvmsg, so that it is no stream does not matter.
    let socket = UnixStream::from_std(net::UnixStream::from(socket))?;
    say(&socket, &Hello { version: VERSION }.encode_to_vec()).await?;
    Ok(socket)
}

async fn say(socket: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    socket
        .async_io(Interest::WRITABLE, || send(socket, bytes, None))
        .await
}

/// One connection to the agent.
struct Session<'a, W> {
    settings: &'a Settings,
    workloads: &'a mut W,
    log: &'a Log,
    socket: UnixStream,
    adds: &'a mut u32,
    /// Pods that the snapshot has named so far; `None` once it is complete.
    snapshot: Option<Vec<String>>,
}

impl<W: Workloads> Session<'_, W> {
    async fn run(&mut self) -> Result<std::convert::Infallible> {
        loop {
            let packet = self
                .socket
                .async_io(Interest::READABLE, || receive(&self.socket))
                .await?;
            let packet = packet.context("the agent closed the connection")?;
            let error = self.carry_out(packet).await?;
            if !self.settings.ack_delay.is_zero() {
                sleep(self.settings.ack_delay).await;
            }
            say(
                &self.socket,
                &Response {
                    ack: Some(Ack { error }),
                }
                .encode_to_vec(),
            )
            .await?;
        }
    }

    /// Carries out one request and returns the text of its ack.
    async fn carry_out(&mut self, packet: Packet) -> Result<String> {
        let payload = Request::decode(packet.bytes.as_slice())?
            .payload
            .context("an empty request")?;
        let mut fds = packet.fds.into_iter();
        let (fd, more) = (fds.next(), fds.next());
        if more.is_some() || (fd.is_some() != matches!(payload, Payload::Add(_))) {
            bail!("a request with the wrong number of descriptors");
        }
        match (payload, fd) {
            (
                Payload::Add(Add {
                    uid,
                    workload: Some(workload),
                }),
                Some(netns),
            ) => Ok(self.add(uid, workload, netns).await),
            (Payload::Add(_), _) => bail!(ProtocolError("an Add without workload_info")),
            (Payload::Keep(keep), _) => {
                let named = self
                    .snapshot
                    .as_mut()
                    .context(ProtocolError("a Keep after the snapshot"))?;
                named.push(keep.uid.clone());
                self.log.write(|| Event::Keep { uid: keep.uid });
                Ok(String::new())
            }
            (Payload::Del(del), _) => {
                self.del(del.uid).await;
                Ok(String::new())
            }
            (Payload::SnapshotSent(_), _) => {
                let named = self
                    .snapshot
                    .take()
                    .context(ProtocolError("a second SnapshotSent"))?;
                for uid in self
                    .workloads
                    .uids()
                    .into_iter()
                    .filter(|uid| !named.contains(uid))
                {
                    self.del(uid).await;
                }
                self.log.write(|| Event::Snapshot);
                Ok(String::new())
            }
        }
    }

    async fn add(&mut self, uid: String, workload: WorkloadInfo, netns: OwnedFd) -> String {
        if let Some(named) = &mut self.snapshot {
            named.push(uid.clone());
        }
        *self.adds += 1;
        let refused = self
            .settings
            .refuse_every
            .is_some_and(|every| self.adds.is_multiple_of(every));
        let added = if refused {
            Err("refused on purpose".to_owned())
        } else {
            self.workloads.add(&uid, &workload.namespace, netns).await
        };
        let WorkloadInfo {
            name,
            namespace,
            service_account,
        } = workload;
        let error = added.err().unwrap_or_default();
        self.log.write(|| match error.as_str() {
            "" => Event::Add {
                uid,
                namespace,
                name,
                service_account,
            },
            error => Event::Refused {
                uid,
                error: error.to_owned(),
            },
        });
        error
    }

    async fn del(&mut self, uid: String) {
        self.workloads.del(&uid).await;
        self.log.write(|| Event::Del { uid });
    }
}

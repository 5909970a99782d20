//! `--dns`: a DNS server in each pod, as ztunnel's: on loopback, by UDP and TCP. It knows the names of the mesh and asks a
//! name server, from the pod and by its marked sockets, for all others.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ::tests::dns::{Question, Zone};
use ::tests::proxy::{Event, Protocol};
use agent_common::ports;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::log::Log;
use crate::sockets::{Home, Pod, canonical};

/// How long the name server may take.
const LIMIT: Duration = Duration::from_secs(2);
/// The longest message by UDP.
const LONGEST: usize = 65_535;

/// Answers the questions of all pods.
#[derive(Debug)]
pub(crate) struct Dns {
    /// Who is asked for names that are not of the mesh.
    pub(crate) upstream: SocketAddr,
    /// The proxy's own namespace.
    pub(crate) home: Home,
    /// Where questions are told.
    pub(crate) log: Arc<Log>,
}

impl Dns {
    /// Listens in a pod, where `lo` has IPv6 on both loopback addresses.
    pub(crate) fn open(self: &Arc<Self>, pod: &Arc<Pod>) -> io::Result<Vec<JoinHandle<()>>> {
        let mut addresses = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
        if self.home.has_loopback6(pod)? {
            addresses.push(Ipv6Addr::LOCALHOST.into());
        }
        let mut open = Vec::new();
        for ip in addresses {
            let at = SocketAddr::new(ip, ports::DNS);
            let udp = self.home.datagrams(pod, at)?;
            let tcp = self.home.listen_at(pod, at)?;
            open.push(tokio::spawn(self.clone().datagrams(udp, pod.clone())));
            open.push(tokio::spawn(self.clone().streams(tcp, pod.clone())));
        }
        Ok(open)
    }

    async fn datagrams(self: Arc<Self>, socket: UdpSocket, pod: Arc<Pod>) {
        let socket = Arc::new(socket);
        let mut message = vec![0; LONGEST];
        loop {
            let Ok((length, from)) = socket.recv_from(&mut message).await else {
                continue;
            };
            let (dns, socket, pod) = (self.clone(), socket.clone(), pod.clone());
            let message = message[..length].to_vec();
            tokio::spawn(async move {
                if let Some(answer) = dns.answer(&message, from, &pod, Protocol::Udp).await {
                    let _ = socket.send_to(&answer, from).await;
                }
            });
        }
    }

    async fn streams(self: Arc<Self>, listener: TcpListener, pod: Arc<Pod>) {
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                continue;
            };
            let (dns, pod) = (self.clone(), pod.clone());
            tokio::spawn(async move { dns.stream(stream, from, &pod).await });
        }
    }

    /// Questions on one connection, each with two bytes of length before it (RFC 1035, 4.2.2).
    async fn stream(&self, mut stream: TcpStream, from: SocketAddr, pod: &Pod) -> io::Result<()> {
        loop {
            let message = framed(&mut stream).await?;
            let Some(answer) = self.answer(&message, from, pod, Protocol::Tcp).await else {
                return Ok(());
            };
            stream.write_all(&frame(&answer)).await?;
        }
    }

    async fn answer(
        &self,
        message: &[u8],
        from: SocketAddr,
        pod: &Pod,
        protocol: Protocol,
    ) -> Option<Vec<u8>> {
        let question = Question::read(message)?;
        self.log.write(|| Event::Question {
            pod: pod.uid.clone(),
            peer: canonical(from),
            protocol,
            name: question.name.clone(),
        });
        if Zone::MESH.knows(&question.name) {
            return Some(Zone::MESH.answer(message, &question, protocol == Protocol::Tcp));
        }
        let forwarded = async {
            match protocol {
                Protocol::Udp => self.ask_by_udp(message, pod).await,
                Protocol::Tcp => self.ask_by_tcp(message, pod).await,
            }
        };
        timeout(LIMIT, forwarded).await.ok()?.ok()
    }

    async fn ask_by_udp(&self, message: &[u8], pod: &Pod) -> io::Result<Vec<u8>> {
        let any = match self.upstream {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = self.home.datagrams(pod, any)?;
        socket.send_to(message, self.upstream).await?;
        let mut answer = vec![0; LONGEST];
        let (length, from) = socket.recv_from(&mut answer).await?;
        answer.truncate(length);
        (from == self.upstream)
            .then_some(answer)
            .ok_or_else(|| io::Error::other("an answer from somebody else"))
    }

    async fn ask_by_tcp(&self, message: &[u8], pod: &Pod) -> io::Result<Vec<u8>> {
        let mut stream = self.home.dial(pod, self.upstream, None).await?;
        stream.write_all(&frame(message)).await?;
        framed(&mut stream).await
    }
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

async fn framed(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

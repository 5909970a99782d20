//! Sockets within a pod's network namespace, with the options that ztunnel sets, and where a connection wanted to go.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tests::proxy::Answer;
use tests::sys::set_option;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

/// Mark on every socket in a pod, as ztunnel's.
const MARK: i32 = 0x539;
/// Connections that may wait to be accepted. ztunnel's 128 is too few for the tests with tens of thousands.
const BACKLOG: i32 = 1024;

/// Whether `lo` of the network namespace that one is in has no IPv6.
const LOOPBACK6_IS_OFF: &str = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";

/// Device and inode of a network namespace.
pub(crate) type NetnsId = (u64, u64);

/// A pod: its UID and network namespace.
#[derive(Debug)]
pub(crate) struct Pod {
    /// Kubernetes UID.
    pub(crate) uid: String,
    /// Takes nothing in clear text.
    pub(crate) strict: bool,
    netns: OwnedFd,
    id: NetnsId,
}

impl Pod {
    pub(crate) fn new(uid: &str, netns: OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&netns)?;
        Ok(Self {
            uid: uid.to_owned(),
            strict: false,
            netns,
            id: (stat.st_dev, stat.st_ino),
        })
    }

    pub(crate) fn id(&self) -> NetnsId {
        self.id
    }
}

/// The proxy's own network namespace, to which it returns after making each socket.
#[derive(Debug)]
pub(crate) struct Home(OwnedFd);

impl Home {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(File::open("/proc/self/ns/net")?.into()))
    }

    /// Runs `work` in the pod. The proxy has one thread, and `work` does not wait, so nothing else runs there.
    fn within<T>(&self, pod: &Pod, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        move_into_link_name_space(pod.netns.as_fd(), Some(LinkNameSpaceType::Network))?;
        let result = work();
        // A proxy that stays in a pod would make every later socket there.
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("the way back to the proxy's own namespace");
        result
    }

    /// Listens in the pod on all addresses, on IPv4 only where the kernel has no IPv6.
    pub(crate) fn listen(&self, pod: &Pod, port: u16) -> io::Result<TcpListener> {
        let socket = self.within(pod, || {
            let dual = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            listener(dual).or_else(|error| match error.raw_os_error() {
                Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => listener(v4),
                _ => Err(error),
            })
        })?;
        TcpListener::from_std(socket.into())
    }

    /// Listens in the pod on one address.
    pub(crate) fn listen_at(&self, pod: &Pod, address: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::from_std(self.within(pod, || listener(address))?.into())
    }

    /// A UDP socket in the pod, bound to this address.
    pub(crate) fn datagrams(&self, pod: &Pod, address: SocketAddr) -> io::Result<UdpSocket> {
        let socket = self.within(pod, || {
            let socket = marked(address, SocketType::DGRAM)?;
            sockopt::set_socket_reuseport(&socket, true)?;
            bind(&socket, &address)?;
            Ok(socket)
        })?;
        UdpSocket::from_std(socket.into())
    }

    /// Whether `lo` of the pod has IPv6, as far as ztunnel looks.
    pub(crate) fn has_loopback6(&self, pod: &Pod) -> io::Result<bool> {
        self.within(pod, || match std::fs::read_to_string(LOOPBACK6_IS_OFF) {
            Ok(text) => Ok(text.trim() != "1"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// Connects from the pod. A `client` becomes the source address, which needs not be the pod's.
    pub(crate) async fn dial(
        &self,
        pod: &Pod,
        destination: SocketAddr,
        client: Option<SocketAddr>,
    ) -> io::Result<TcpStream> {
        let socket = self.within(pod, || {
            let socket = marked(destination, SocketType::STREAM)?;
            if let Some(client) = client {
                impersonate(&socket, client)?;
            }
            Ok(socket)
        })?;
        TcpSocket::from_std_stream(socket.into())
            .connect(destination)
            .await
    }
}

fn marked(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, kind, flags, None)?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_MARK, MARK)?;
    Ok(socket)
}

fn listener(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = marked(address, SocketType::STREAM)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    set_option(&socket, libc::SOL_IP, libc::IP_TRANSPARENT, 1)?;
    Ok(socket)
}

fn impersonate(socket: &OwnedFd, client: SocketAddr) -> io::Result<()> {
    if client.is_ipv4() {
        set_option(socket, libc::SOL_IP, libc::IP_TRANSPARENT, 1)?;
        sockopt::set_ip_freebind(socket, true)?;
    } else {
        set_option(socket, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1)?;
        sockopt::set_ipv6_freebind(socket, true)?;
    }
    bind(socket, &SocketAddr::new(client.ip(), 0))?;
    Ok(())
}

/// Where an accepted connection wanted to go, in the order in which ztunnel asks.
pub(crate) fn original_destination(stream: &TcpStream) -> io::Result<(SocketAddr, Answer)> {
    let (address, answer) = if let Ok(v4) = sockopt::ip_original_dst(stream) {
        (v4.into(), Answer::SolIp)
    } else if let Ok(v6) = sockopt::ipv6_original_dst(stream) {
        (v6.into(), Answer::SolIpv6)
    } else {
        (stream.local_addr()?, Answer::Local)
    };
    Ok((canonical(address), answer))
}

/// An IPv4 address as such, also where the socket calls it `::ffff:…`.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

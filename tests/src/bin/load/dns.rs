//! Questions to name servers, in all the ways in which resolvers ask, and what each answer's reader is told.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::set_ipv6_v6only;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect_unspec, socket_with};
use serde_json::{Value, json};
use tests::dns::{A, AAAA, Answer, SRV, question};
use tests::sys::{bind_to_device, set_option};

use crate::report::errno;

/// Options of `dns`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Name servers. An IPv4-mapped one, `[::ffff:10.1.0.3]:53`, makes an IPv6 socket.
    #[arg(required = true)]
    servers: Vec<SocketAddr>,
    /// The name that is asked for.
    #[arg(long, default_value = "web.mesh.test")]
    name: String,
    /// What of it is asked for.
    #[arg(long, value_enum, default_value_t = Kind::A)]
    kind: Kind,
    /// How the servers are asked.
    #[arg(long, value_enum, default_value_t = Way::Connected)]
    way: Way,
    /// Tells how long an answer by UDP may be (EDNS).
    #[arg(long, value_name = "BYTES")]
    limit: Option<u16>,
    /// Local address.
    #[arg(long)]
    bind: Option<SocketAddr>,
    /// `SO_BINDTODEVICE`.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// `IP_UNICAST_IF`: leaves by this device, without being bound to it.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// An IPv6 socket that knows no IPv4.
    #[arg(long)]
    v6_only: bool,
    /// How long an answer may take.
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    timeout: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    A,
    Aaaa,
    Srv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// A connected UDP socket for each server.
    Connected,
    /// One UDP socket, connected to one server after the other.
    Again,
    /// The same, disconnected (connect to `AF_UNSPEC`) in between.
    Disconnected,
    /// One UDP socket which is not connected: all questions first, then all answers.
    Messages,
    /// TCP.
    Stream,
}

/// Prints a list with an object for each server, in their order: `asked` is `ok` or the error; then `local` and `peer` are
/// what the socket is told of itself, `from` is who answered, `first` the first address of `count`, `cut` whether there
/// is more, or `answer` is the error.
pub(crate) fn run(options: &Options) -> Result<()> {
    let told = match options.way {
        Way::Messages => options.by_messages()?,
        Way::Stream => options.each(Options::by_stream),
        Way::Connected => options.each(|options, server| {
            let socket = options.socket(server)?;
            options.connected(&socket, server)
        }),
        Way::Again | Way::Disconnected => {
            let socket = options.socket(options.servers[0])?;
            options.each(|options, server| {
                let told = options.connected(&socket, server)?;
                if options.way == Way::Disconnected {
                    connect_unspec(&socket)?;
                }
                Ok(told)
            })
        }
    };
    println!("{}", Value::Array(told));
    Ok(())
}

impl Options {
    fn each(&self, ask: impl Fn(&Self, SocketAddr) -> io::Result<Value>) -> Vec<Value> {
        let told =
            |server: &SocketAddr| ask(self, *server).unwrap_or_else(|error| json!({"asked": errno(&error)}));
        self.servers.iter().map(told).collect()
    }

    /// Sends one question on a new socket and reads its answer: what a resolver does, and no more.
    pub(crate) fn ask(&self) -> io::Result<()> {
        let server = self.servers[0];
        let (socket, question, mut answer) = (self.socket(server)?, self.question(1), [0; 4096]);
        if self.way == Way::Messages {
            socket.send_to(&question, server)?;
            socket.recv_from(&mut answer)?;
        } else {
            socket.connect(server)?;
            socket.send(&question)?;
            socket.recv(&mut answer)?;
        }
        Ok(())
    }

    fn question(&self, id: u16) -> Vec<u8> {
        let kind = match self.kind {
            Kind::A => A,
            Kind::Aaaa => AAAA,
            Kind::Srv => SRV,
        };
        question(id, &self.name, kind, self.limit)
    }

    fn socket(&self, server: SocketAddr) -> io::Result<UdpSocket> {
        let family = if server.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let socket: OwnedFd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        if let Some(device) = &self.device {
            bind_to_device(&socket, device)?;
        }
        if let Some(name) = &self.interface {
            let index = name_to_index(&socket, name)?;
            set_option(
                &socket,
                libc::SOL_IP,
                libc::IP_UNICAST_IF,
                index.to_be().cast_signed(),
            )?;
        }
        if self.v6_only {
            set_ipv6_v6only(&socket, true)?;
        }
        if let Some(local) = self.bind {
            bind(&socket, &local)?;
        }
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(Duration::from_millis(self.timeout)))?;
        Ok(socket)
    }

    fn connected(&self, socket: &UdpSocket, server: SocketAddr) -> io::Result<Value> {
        socket.connect(server)?;
        socket.send(&self.question(1))?;
        let mut told = json!({
            "asked": "ok",
            "local": socket.local_addr()?.to_string(),
            "peer": socket.peer_addr()?.to_string(),
        });
        merge(&mut told, received(socket));
        Ok(told)
    }

    fn by_messages(&self) -> io::Result<Vec<Value>> {
        let socket = self.socket(self.servers[0])?;
        let mut told = Vec::new();
        for (id, server) in self.servers.iter().enumerate() {
            let sent = socket.send_to(&self.question(id as u16), server);
            told.push(json!({"asked": sent.map_or_else(|error| errno(&error), |_| "ok".to_owned())}));
        }
        let asked = told.iter().filter(|told| told["asked"] == "ok").count();
        for _ in 0..asked {
            let answer = received(&socket);
            let Some(id) = answer["id"].as_u64() else { break };
            if let Some(told) = told.get_mut(id as usize) {
                merge(told, answer);
            }
        }
        Ok(told)
    }

    fn by_stream(&self, server: SocketAddr) -> io::Result<Value> {
        let limit = Duration::from_millis(self.timeout);
        let mut stream = TcpStream::connect_timeout(&server, limit)?;
        stream.set_read_timeout(Some(limit))?;
        let question = self.question(1);
        stream.write_all(&[&(question.len() as u16).to_be_bytes(), question.as_slice()].concat())?;
        let (local, peer) = (stream.local_addr()?.to_string(), stream.peer_addr()?.to_string());
        let mut told = json!({"asked": "ok", "local": local, "peer": peer});
        let mut length = [0; 2];
        let read = stream.read_exact(&mut length).and_then(|()| {
            let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut answer).map(|()| answer)
        });
        let answer = read.map_or_else(|error| json!({"answer": errno(&error)}), |answer| words(&answer));
        merge(&mut told, answer);
        Ok(told)
    }
}

/// The next answer, and who it is from.
fn received(socket: &UdpSocket) -> Value {
    let mut answer = [0; 4096];
    match socket.recv_from(&mut answer) {
        Ok((length, from)) => {
            let mut told = words(&answer[..length]);
            told["from"] = json!(from.to_string());
            told
        }
        Err(error) => json!({"answer": errno(&error)}),
    }
}

fn words(answer: &[u8]) -> Value {
    match Answer::read(answer) {
        Some(answer) => json!({
            "id": answer.id, "code": answer.code, "count": answer.count, "first": answer.first, "cut": answer.is_cut,
        }),
        None => json!({"answer": "garbage"}),
    }
}

fn merge(told: &mut Value, more: Value) {
    if let (Some(told), Value::Object(more)) = (told.as_object_mut(), more) {
        told.extend(more);
    }
}

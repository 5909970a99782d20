//! A server: tells each client what it sees of it, echoes, swallows, sends, stays silent or resets.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_linger, set_socket_reuseaddr, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with};
use serde_json::{Value, json};
use tests::pump::pump;
use tests::sys::{netns_cookie, peer_name};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::report::errno;

/// Options of `server`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Where it listens. `[::]` takes IPv4 too.
    #[arg(long, required = true, num_args = 1..)]
    listen: Vec<SocketAddr>,
    /// What a client gets.
    #[arg(long, value_enum, default_value_t = Reply::Info)]
    reply: Reply,
    /// A text in each `info`, to tell servers apart.
    #[arg(long, default_value = "")]
    banner: String,
    /// Writes one JSON line for each connection, at once: what `info` tells the client.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Waits so long before it answers.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    delay: u64,
    /// Without `SO_REUSEADDR`, as some applications listen.
    #[arg(long)]
    no_reuse_address: bool,
    /// `[::]` does not take IPv4.
    #[arg(long)]
    v6_only: bool,
    /// Multipath TCP, as Go's servers listen.
    #[arg(long)]
    mptcp: bool,
    /// Connections that may wait to be accepted.
    #[arg(long, default_value_t = 4096)]
    backlog: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Reply {
    /// A JSON line with what the server sees of the client, then an echo.
    Info,
    /// What `info` says, as the answer to an HTTP request.
    Http,
    /// An echo.
    Echo,
    /// Nothing; reads everything.
    Sink,
    /// Bytes without end.
    Source,
    /// Nothing; does not read.
    Silent,
    /// The end, at once.
    Close,
    /// A reset.
    Reset,
}

/// What all connections share.
struct Server {
    options: Options,
    log: Option<File>,
    netns: u64,
}

/// Listens and serves until SIGTERM. Prints `ready`, or fails with the error of bind.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(options: Options) -> Result<()> {
    let listeners = options
        .listen
        .iter()
        .map(|address| Ok((*address, listener(&options, *address)?)));
    let listeners = listeners.collect::<Result<Vec<_>>>()?;
    let open = |path: &PathBuf| OpenOptions::new().create(true).append(true).open(path);
    let log = options
        .log
        .as_ref()
        .map(open)
        .transpose()
        .context("opening the log")?;
    let netns = netns_cookie(&listeners[0].1)?;
    let server = Arc::new(Server { options, log, netns });
    for (_, listener) in listeners {
        tokio::spawn(server.clone().accept(listener));
    }
    println!("ready");
    crate::terminated().await
}

fn listener(options: &Options, address: SocketAddr) -> Result<TcpListener> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let protocol = if options.mptcp {
        ipproto::MPTCP
    } else {
        ipproto::TCP
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(protocol))?;
    set_socket_reuseaddr(&socket, !options.no_reuse_address)?;
    if address.is_ipv6() {
        set_ipv6_v6only(&socket, options.v6_only)?;
    }
    let bound = bind(&socket, &address).and_then(|()| listen(&socket, options.backlog));
    bound.map_err(|error| anyhow::anyhow!("listening on {address}: {}", errno(&error.into())))?;
    Ok(TcpListener::from_std(socket.into())?)
}

impl Server {
    async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let server = self.clone();
                    tokio::spawn(async move { server.serve(stream, peer).await });
                }
                Err(error) => {
                    eprintln!("accept: {error}");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    /// A client that goes away early is no problem of the server's.
    async fn serve(&self, mut stream: TcpStream, peer: SocketAddr) {
        let _ = set_tcp_nodelay(&stream, true);
        let wants_info = matches!(self.options.reply, Reply::Info | Reply::Http);
        let info = (wants_info || self.log.is_some()).then(|| self.info(&stream, peer).to_string() + "\n");
        if let (Some(mut log), Some(info)) = (self.log.as_ref(), &info)
            && let Err(error) = log.write_all(info.as_bytes())
        {
            eprintln!("writing the log: {error}");
        }
        if self.options.delay > 0 {
            tokio::time::sleep(Duration::from_millis(self.options.delay)).await;
        }
        let info = info.filter(|_| wants_info).unwrap_or_default();
        let _ = answer(self.options.reply, &mut stream, &info).await;
    }

    /// The client by all three ways to ask for it, and where it arrived.
    fn info(&self, stream: &TcpStream, accepted: SocketAddr) -> Value {
        let text =
            |address: std::io::Result<SocketAddr>| address.map_or_else(|e| errno(&e), |a| a.to_string());
        json!({
            "banner": self.options.banner,
            "accept": accepted.to_string(),
            "getpeername": text(stream.peer_addr()),
            "so_peername": text(peer_name(stream)),
            "local": text(stream.local_addr()),
            "netns": self.netns,
        })
    }
}

async fn answer(reply: Reply, stream: &mut TcpStream, info: &str) -> std::io::Result<()> {
    let mut bytes = 0;
    match reply {
        Reply::Info => {
            stream.write_all(info.as_bytes()).await?;
            echo(stream).await
        }
        Reply::Http => http(stream, info).await,
        Reply::Echo => echo(stream).await,
        Reply::Sink => pump(stream, tokio::io::sink(), &mut bytes).await,
        Reply::Source => loop {
            stream.write_all(&[0; 64 * 1024]).await?;
        },
        Reply::Close => Ok(()),
        Reply::Silent => std::future::pending().await,
        Reply::Reset => set_socket_linger(&*stream, Some(Duration::ZERO)).map_err(Into::into),
    }
}

/// Answers one request, whatever it is, and closes.
async fn http(stream: &mut TcpStream, info: &str) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut lines = BufReader::new(read).lines();
    while lines.next_line().await?.is_some_and(|line| !line.is_empty()) {}
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let length = info.len();
    let answer = format!("{head}Content-Length: {length}\r\n\r\n{info}");
    write.write_all(answer.as_bytes()).await
}

async fn echo(stream: &mut TcpStream) -> std::io::Result<()> {
    let (read, write) = stream.split();
    pump(read, write, &mut 0).await
}

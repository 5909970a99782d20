//! Forwarding of bytes between two connections, each direction until its end: half-closed connections stay half open.
//!
//! All connections read through one buffer, as they take turns on one thread; only bytes which the other side does not
//! take at once are kept for a connection. So 40,000 idle connections need no buffers at all.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::sockopt::set_socket_linger;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// How much is read at a time.
const BUFFER: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// Forwards until both sides have ended, and returns the number of bytes. An error on one side resets both.
pub(crate) async fn relay(mut client: TcpStream, mut upstream: TcpStream) -> u64 {
    let mut bytes = [0, 0];
    let failed = {
        let (from_client, to_client) = client.split();
        let (from_upstream, to_upstream) = upstream.split();
        let [up, down] = &mut bytes;
        tokio::try_join!(pump(from_client, to_upstream, up), pump(from_upstream, to_client, down)).is_err()
    };
    if failed {
        reset(client);
        reset(upstream);
    }
    bytes.iter().sum()
}

/// Closes a connection with a reset, which tells its peer that something failed.
pub(crate) fn reset(stream: TcpStream) {
    let _ = set_socket_linger(&stream, Some(std::time::Duration::ZERO));
    drop(stream);
}

/// One direction: from the first byte to the end of the stream.
async fn pump(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, bytes: &mut u64) -> io::Result<()> {
    loop {
        let moved = poll_fn(|cx| step(cx, &mut from, &mut to)).await?;
        if moved.read == 0 {
            return to.shutdown().await;
        }
        *bytes += moved.read as u64;
        if !moved.unwritten.is_empty() {
            to.write_all(&moved.unwritten).await?;
        }
    }
}

/// What one step did.
struct Moved {
    read: usize,
    unwritten: Vec<u8>,
}

/// Reads once and writes once.
fn step(cx: &mut Context<'_>, from: &mut ReadHalf<'_>, to: &mut WriteHalf<'_>) -> Poll<io::Result<Moved>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut buffer = ReadBuf::new(scratch);
        ready!(Pin::new(from).poll_read(cx, &mut buffer))?;
        let data = buffer.filled();
        if data.is_empty() {
            return Poll::Ready(Ok(Moved { read: 0, unwritten: Vec::new() }));
        }
        let written = match Pin::new(to).poll_write(cx, data) {
            Poll::Ready(result) => result?,
            Poll::Pending => 0,
        };
        Poll::Ready(Ok(Moved { read: data.len(), unwritten: data[written..].to_vec() }))
    })
}

//! Forwarding between two connections, each direction until its end: half-closed connections stay half open.

use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tests::pump::pump;
use tokio::net::TcpStream;

/// Forwards until both sides have ended, and returns the number of bytes. An error on one side resets both.
pub(crate) async fn relay(mut client: TcpStream, mut upstream: TcpStream) -> u64 {
    let (mut up, mut down) = (0, 0);
    let failed = {
        let (from_client, to_client) = client.split();
        let (from_upstream, to_upstream) = upstream.split();
        tokio::try_join!(
            pump(from_client, to_upstream, &mut up),
            pump(from_upstream, to_client, &mut down)
        )
        .is_err()
    };
    if failed {
        reset(client);
        reset(upstream);
    }
    up + down
}

/// Closes a connection with a reset, which tells its peer that something failed.
pub(crate) fn reset(stream: TcpStream) {
    let _ = set_socket_linger(&stream, Some(Duration::ZERO));
    drop(stream);
}

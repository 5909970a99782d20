//! `--forward`: no redirection at all. Listens on a port in a network namespace and forwards to a fixed destination:
//! for the benchmarks, the limit of what redirection can reach.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};

use crate::relay::relay;
use crate::sockets::{Home, Pod, original_destination};

/// One port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    netns: PathBuf,
    port: u16,
    destination: SocketAddr,
}

impl FromStr for Forward {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.splitn(3, ',');
        let mut next = || parts.next().context("expected NETNS,PORT,DESTINATION");
        Ok(Self {
            netns: next()?.into(),
            port: next()?.parse().context("PORT")?,
            destination: next()?.parse().context("DESTINATION")?,
        })
    }
}

impl Forward {
    /// Listens; the forwarding goes on by itself.
    pub(crate) fn start(&self, home: &Arc<Home>) -> Result<()> {
        let netns = File::open(&self.netns).with_context(|| format!("opening {}", self.netns.display()))?;
        let pod = Arc::new(Pod::new("", netns.into())?);
        let listener = home
            .listen(&pod, self.port)
            .with_context(|| format!("listening on port {}", self.port))?;
        tokio::spawn(accept(home.clone(), pod, listener, self.destination));
        Ok(())
    }
}

async fn accept(home: Arc<Home>, pod: Arc<Pod>, listener: TcpListener, destination: SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(forward(home.clone(), pod.clone(), client, destination));
            }
            Err(error) => eprintln!("accepting: {error}"),
        }
    }
}

/// As for a connection that was led here, and with the same questions, whose answers do not count. A client whose
/// destination refuses is closed: in a benchmark that is a failed connection.
async fn forward(home: Arc<Home>, pod: Arc<Pod>, client: TcpStream, destination: SocketAddr) {
    let _ = original_destination(&client);
    if let Ok(upstream) = home.dial(&pod, destination, None).await {
        let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
        relay(client, upstream).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forward_is_a_namespace_a_port_and_a_destination() {
        let forward: Forward = "/run/netns/a,16000,[fd00:1::2]:80".parse().unwrap();
        assert_eq!((forward.port, forward.destination.port()), (16000, 80));
        assert_eq!(forward.netns, PathBuf::from("/run/netns/a"));
        for bad in [
            "",
            "/run/netns/a",
            "/run/netns/a,16000",
            "/run/netns/a,x,10.0.0.1:80",
        ] {
            assert!(bad.parse::<Forward>().is_err(), "{bad}");
        }
    }
}

//! The scene of all DNS tests: a client in the mesh, and a name server outside.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde_json::Value;
use tests::dns::NameServer;
use tests::{Agent, Maps, Node, Pod, PodSpec, Proxy};

/// The annotation that switches it on and off.
pub(crate) const CAPTURE: &str = "ambient.istio.io/dns-capture";

/// A client in the mesh, and a name server outside which the proxy asks too. Fields are dropped in this order.
pub(crate) struct Scene {
    pub(crate) agent: Agent,
    pub(crate) proxy: Proxy,
    pub(crate) servers: NameServer,
    pub(crate) client: Pod,
    pub(crate) outside: Pod,
    pub(crate) node: Node,
}

impl Scene {
    /// A client whose annotation is as given, with an agent whose default is `default`.
    pub(crate) fn new(annotation: Option<&str>, default: &str) -> Result<Self> {
        Self::with(annotation, default, |_| Ok(()))
    }

    /// The same, with the client's namespace changed before it is enrolled.
    pub(crate) fn with(
        annotation: Option<&str>,
        default: &str,
        change: impl Fn(&Pod) -> Result<()>,
    ) -> Result<Self> {
        let node = Node::new()?;
        let mut spec = PodSpec::new("client").ambient();
        if let Some(value) = annotation {
            spec = spec.annotation(CAPTURE, value);
        }
        let client = node.pod_with(spec)?;
        change(&client)?;
        let outside = node.pod("outside")?;
        let servers = NameServer::start(&outside, outside.ips())?;
        node.apply(&[&client, &outside])?;
        let source = format!("file:{}", node.manifests().display());
        let mut agent = Agent::start_with(&node, &source, &["--dns-capture", default])?;
        let upstream = SocketAddr::new(outside.v4(), 53).to_string();
        let proxy = Proxy::start(&node, "proxy", &["--dns", &upstream])?;
        agent.wait_for_pod_state(client.uid(), "enabled")?;
        Ok(Self {
            agent,
            proxy,
            servers,
            client,
            outside,
            node,
        })
    }

    /// The name servers, in the forms in which a socket of IPv4, of IPv6 and of both would name them.
    pub(crate) fn addresses(&self) -> [String; 3] {
        let (v4, v6) = (self.outside.v4(), self.outside.v6());
        [
            format!("{v4}:53"),
            format!("[{v6}]:53"),
            format!("[::ffff:{v4}]:53"),
        ]
    }

    pub(crate) fn ask(&self, servers: &[&str], more: &[&str]) -> Result<Vec<Value>> {
        let told = self.client.load(&[&["dns"], servers, more].concat())?;
        told.as_array().cloned().context("a list")
    }

    pub(crate) fn count(&self, counter: &str) -> Result<u64> {
        Maps::of(&self.node).counter(&self.client, counter)
    }
}

/// The client's own address as a socket for this server sees it.
pub(crate) fn own(client: &Pod, server: &str) -> Result<IpAddr> {
    let server: SocketAddr = server.parse()?;
    Ok(match server.ip() {
        IpAddr::V4(_) => client.v4(),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => match client.v4() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
            other => other,
        },
        IpAddr::V6(_) => client.v6(),
    })
}

//! A node with an agent, a proxy and a container runtime whose chain of CNI plugins ends with ours.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde_json::Value;
use tests::containerd::{Network, RuntimePod};
use tests::proxy::{Connection, Direction, Event};
use tests::{Agent, Containerd, Maps, Node, PodSpec, Proxy};

/// Where servers listen.
pub(crate) const PORT: u16 = 80;

/// The parts are dropped in this order.
pub(crate) struct Scene {
    pub(crate) agent: Agent,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) containerd: Containerd,
    pub(crate) node: Node,
}

impl Scene {
    /// Everything runs. `network` tells the network of a node; our plugin is added here.
    pub(crate) fn new(network: impl FnOnce(&Node) -> Result<Network>) -> Result<Self> {
        let mut scene = Self::without_proxy(network)?;
        scene.start_proxy()?;
        Ok(scene)
    }

    pub(crate) fn without_proxy(network: impl FnOnce(&Node) -> Result<Network>) -> Result<Self> {
        let node = Node::new()?;
        let network = network(&node)?.with_meshgate(&node);
        let containerd = Containerd::start(&node, &network)?;
        let source = format!("file:{}", node.manifests().display());
        let flags = containerd.agent_flags();
        Ok(Self {
            agent: Agent::start_with(&node, &source, &flags.each_ref().map(String::as_str))?,
            proxy: None,
            containerd,
            node,
        })
    }

    /// Starts the proxy and waits until it has its snapshot.
    pub(crate) fn start_proxy(&mut self) -> Result<()> {
        let mut proxy = Proxy::start(&self.node, "proxy", &[])?;
        proxy.wait_for("the snapshot", |event| {
            matches!(event, Event::Snapshot).then_some(())
        })?;
        self.proxy = Some(proxy);
        Ok(())
    }

    pub(crate) fn maps(&self) -> Maps<'_> {
        Maps::of(&self.node)
    }

    /// A pod that Kubernetes has put on the node, without a sandbox.
    pub(crate) fn scheduled(&self, spec: PodSpec) -> Result<RuntimePod> {
        let pod = self.containerd.pod(&self.node, spec)?;
        pod.apply(&self.node)?;
        Ok(pod)
    }

    /// A pod whose sandbox the runtime has made.
    pub(crate) fn pod(&self, spec: PodSpec) -> Result<RuntimePod> {
        let mut pod = self.scheduled(spec)?;
        pod.run()?;
        Ok(pod)
    }

    /// The first process of a pod dials, in each family that it shares with the server, and the proxy took it.
    pub(crate) fn assert_first_process_captured(
        &mut self,
        pod: &RuntimePod,
        server: &[IpAddr],
    ) -> Result<()> {
        let mut dialled = 0;
        for (number, (_, ip)) in pairs(pod.ips(), server).enumerate() {
            let destination = SocketAddr::new(ip, PORT);
            let seen = pod.load(&format!("init-{number}"), &["connect", &destination.to_string()])?;
            assert_eq!(seen["read"], "ok", "{seen}");
            self.assert_proxied(Direction::Outbound, pod, &seen, destination)?;
            dialled += 1;
        }
        assert!(dialled > 0);
        let captured = self.maps().counter_of(pod.cookie()?, "outbound_captured")?;
        assert_eq!(captured, dialled);
        Ok(())
    }

    /// The first process of a pod dials, in each family that it shares with the server, past the proxy.
    pub(crate) fn assert_left_alone(&self, pod: &RuntimePod, server: &[IpAddr]) -> Result<()> {
        let connections = || Ok(self.proxy.as_ref().context("a proxy runs")?.connections()?.len());
        let before: usize = connections()?;
        for (number, (own, ip)) in pairs(pod.ips(), server).enumerate() {
            let destination = SocketAddr::new(ip, PORT).to_string();
            let seen = pod.load(&format!("init-{number}"), &["connect", &destination])?;
            assert_eq!(client_of(&seen)?, own, "{seen}");
        }
        // The proxy writes of a connection before it passes anything on.
        let after: Result<usize> = connections();
        assert_eq!(after?, before);
        Ok(())
    }

    /// The proxy took a connection in the name of a pod, by what its client saw of it.
    pub(crate) fn assert_proxied(
        &mut self,
        direction: Direction,
        pod: &RuntimePod,
        seen: &Value,
        destination: SocketAddr,
    ) -> Result<()> {
        let client: SocketAddr = seen["local"].as_str().context("local")?.parse()?;
        let is_it = |connection: &Connection| {
            connection.direction == direction
                && connection.peer == client
                && connection.destination == destination
        };
        let proxy = self.proxy.as_mut().context("a proxy runs")?;
        let what = format!("{direction:?} connection from {client} to {destination}");
        let connection = proxy.wait_for(&what, |event| match event {
            Event::Connection(connection) if is_it(connection) => Some(connection.clone()),
            _ => None,
        })?;
        assert_eq!(connection.pod, pod.uid(), "{connection:?}");
        Ok(())
    }

    /// The proxy has seen no connection from this address until now. What is awaited before tells how far that is.
    pub(crate) fn assert_not_proxied(&self, client: IpAddr) -> Result<()> {
        let proxy = self.proxy.as_ref().context("a proxy runs")?;
        let seen = proxy.connections()?;
        let found = seen.iter().find(|connection| connection.peer.ip() == client);
        assert!(found.is_none(), "{found:?}");
        Ok(())
    }
}

/// Addresses of the same family.
pub(crate) fn pairs<'a>(from: &'a [IpAddr], to: &'a [IpAddr]) -> impl Iterator<Item = (IpAddr, IpAddr)> + 'a {
    from.iter().flat_map(|from| {
        let same = to.iter().filter(|to| to.is_ipv4() == from.is_ipv4());
        same.map(|to| (*from, *to))
    })
}

/// The address that a server saw its client at.
pub(crate) fn client_of(seen: &Value) -> Result<IpAddr> {
    let text = seen["reply"]["accept"].as_str();
    let address: SocketAddr = text.with_context(|| seen.to_string())?.parse()?;
    Ok(address.ip().to_canonical())
}

//! The scene of these tests: a node whose runtime calls the plugin.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use tests::cni::{Answer, Plugin};
use tests::proxy::{Connection, Direction, Event};
use tests::{Agent, Node, Pod, PodSpec, Proxy};

/// What a call that waits for nothing takes at most, on a busy machine.
pub(crate) const QUICK: Duration = Duration::from_secs(2);

/// A node with an agent and a proxy. The fields are dropped in this order.
pub(crate) struct Scene {
    pub(crate) agent: Agent,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) plugin: Plugin,
    pub(crate) node: Node,
}

impl Scene {
    /// Both run, and the proxy has had its snapshot.
    pub(crate) fn new() -> Result<Self> {
        let mut scene = Self::without_proxy()?;
        scene.start_proxy()?;
        Ok(scene)
    }

    pub(crate) fn without_proxy() -> Result<Self> {
        Self::with_agent(&[])
    }

    /// An agent with these flags, and no proxy.
    pub(crate) fn with_agent(flags: &[&str]) -> Result<Self> {
        let node = Node::new()?;
        let manifests = format!("file:{}", node.manifests().display());
        Ok(Self {
            agent: Agent::start_with(&node, &manifests, flags)?,
            proxy: None,
            plugin: Plugin::new(&node)?,
            node,
        })
    }

    pub(crate) fn start_proxy(&mut self) -> Result<()> {
        self.start_proxy_with(&[])
    }

    /// A proxy with these options.
    pub(crate) fn start_proxy_with(&mut self, options: &[&str]) -> Result<()> {
        let mut proxy = Proxy::start(&self.node, "proxy", options)?;
        proxy.wait_for("the snapshot", |event| {
            matches!(event, Event::Snapshot).then_some(())
        })?;
        self.proxy = Some(proxy);
        Ok(())
    }

    /// The sandbox of a pod of the mesh that Kubernetes has put on the node.
    pub(crate) fn sandbox(&self, name: &str) -> Result<Pod> {
        let pod = self.node.sandbox(PodSpec::new(name).ambient())?;
        self.node.apply(&[&pod])?;
        Ok(pod)
    }

    /// UIDs of the pods that the proxy has been told to serve until now.
    pub(crate) fn served(&self) -> Result<BTreeSet<String>> {
        let events = self.proxy.as_ref().context("a proxy runs")?.events()?;
        let uid = |event| match event {
            Event::Add { uid, .. } => Some(uid),
            _ => None,
        };
        Ok(events.into_iter().filter_map(uid).collect())
    }

    /// Proves by connections of a process that starts now that the pod is captured. The port must be new to the pod.
    pub(crate) fn assert_captured(&mut self, pod: &Pod, server: &Pod, port: u16) -> Result<()> {
        let proxy = self.proxy.as_mut().context("a proxy runs")?;
        for (client, ip) in [(pod.v4(), server.v4()), (pod.v6(), server.v6())] {
            let destination = SocketAddr::new(ip, port);
            let seen = pod.load(&["connect", &destination.to_string()])?;
            assert_eq!(seen["read"], "ok", "{seen}");
            let is_it = |connection: &Connection| {
                connection.peer.ip() == client
                    && connection.destination == destination
                    && connection.direction == Direction::Outbound
            };
            proxy.wait_for("the connection", |event| match event {
                Event::Connection(connection) if is_it(connection) => Some(()),
                _ => None,
            })?;
        }
        Ok(())
    }
}

pub(crate) fn assert_passed(answer: &Answer, pod: &Pod) {
    assert!(answer.success, "{}", answer.error());
    assert_eq!(answer.printed, Plugin::previous(pod));
}

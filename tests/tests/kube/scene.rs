//! The scene of all these tests, and what it means that a pod is in the mesh.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::cluster::User;
use tests::process::Process;
use tests::proxy::{Direction, Event};
use tests::{Agent, Cluster, Node, Pod, PodSpec, Proxy, requires};

/// Kubernetes namespace of the scene's pods.
pub(crate) const SHOP: &str = "shop";

/// A node with control plane, agent and proxy, and a server outside the mesh that tells who calls it. The fields are
/// dropped in this order.
pub(crate) struct Scene {
    pub(crate) agent: Agent,
    pub(crate) proxy: Proxy,
    _listening: Process,
    pub(crate) server: Pod,
    pub(crate) cluster: Cluster,
    pub(crate) node: Node,
}

impl Scene {
    /// `None` when the machine lacks what is needed, which was said then.
    pub(crate) fn new(test: &str) -> Result<Option<Self>> {
        let Some(assets) = requires::control_plane(test) else {
            return Ok(None);
        };
        let node = Node::new()?;
        let cluster = Cluster::start(&node, &assets)?;
        cluster.namespace(SHOP, &[])?;
        let agent = Agent::start_with(
            &node,
            "kube",
            &["--kubeconfig", text(&cluster.kubeconfig(User::Agent))?],
        )?;
        let proxy = Proxy::start(&node, "proxy", &[])?;
        let server = node.pod("server")?;
        let listening = server.serve(&["--listen", "[::]:80"])?;
        Ok(Some(Self {
            agent,
            proxy,
            _listening: listening,
            server,
            cluster,
            node,
        }))
    }

    pub(crate) fn run(&self, spec: PodSpec) -> Result<Pod> {
        self.cluster.run(&self.node, spec.namespace(SHOP))
    }

    /// Waits until a pod is in the mesh by all signs: the agent's account, the annotation, its connections.
    pub(crate) fn captured(&mut self, pod: &Pod) -> Result<()> {
        self.agent.wait_for_pod_state(pod.uid(), "enabled")?;
        self.cluster.wait_for_redirection(pod, Some("enabled"))?;
        self.goes_through_the_proxy(pod)
    }

    pub(crate) fn goes_through_the_proxy(&self, pod: &Pod) -> Result<()> {
        for destination in self.destinations() {
            ensure!(
                self.connect(pod, destination)? == 1,
                "a connection of {} to {destination} passed the proxy by",
                pod.name()
            );
        }
        Ok(())
    }

    /// Waits until the proxy was given a second sandbox of a pod. The agent's account says the same of both.
    pub(crate) fn served_again(&mut self, pod: &Pod) -> Result<()> {
        let is_add = |event: &&Event| matches!(event, Event::Add { uid, .. } if uid == pod.uid());
        self.proxy
            .wait_for_events("the new sandbox to be served", |events| {
                (events.iter().filter(is_add).count() == 2).then_some(())
            })
    }

    /// Waits until a pod is outside the mesh by all signs.
    pub(crate) fn outside(&mut self, pod: &Pod) -> Result<()> {
        self.agent.wait_for_pod_state(pod.uid(), "outside")?;
        self.cluster.wait_for_redirection(pod, None)?;
        self.passes_the_proxy_by(pod)
    }

    pub(crate) fn passes_the_proxy_by(&self, pod: &Pod) -> Result<()> {
        for destination in self.destinations() {
            ensure!(
                self.connect(pod, destination)? == 0,
                "a connection of {} to {destination} went through the proxy",
                pod.name()
            );
        }
        Ok(())
    }

    fn destinations(&self) -> [SocketAddr; 2] {
        [self.server.v4(), self.server.v6()].map(|ip| SocketAddr::new(ip, 80))
    }

    /// Connects and hears the server's line, after which the proxy has logged it. Returns how often the proxy saw it.
    fn connect(&self, pod: &Pod, destination: SocketAddr) -> Result<usize> {
        let seen = || -> Result<usize> {
            let all = self.proxy.connections()?;
            let mine = all.iter().filter(|connection| {
                connection.direction == Direction::Outbound
                    && connection.destination == destination
                    && pod.ips().contains(&connection.peer.ip())
            });
            Ok(mine.count())
        };
        let before = seen()?;
        let answer = pod.load(&["connect", &destination.to_string()])?;
        ensure!(answer["read"] == "ok", "{}: {answer}", pod.name());
        Ok(seen()? - before)
    }

    /// Kills the agent and starts it with another kubeconfig or node, with which it may never become ready.
    pub(crate) fn replace_agent(&mut self, flags: &[&str]) -> Result<()> {
        self.agent.kill9();
        self.agent = Agent::stopped(&self.node, "kube", flags)?;
        self.agent.spawn()
    }

    /// Waits until the agent names a problem with all these parts in it.
    pub(crate) fn problem(&mut self, parts: &[&str]) -> Result<()> {
        self.agent
            .wait_for(&format!("a problem with {parts:?}"), |status| {
                let mut texts = status.problems.iter().map(Value::to_string);
                texts
                    .any(|text| parts.iter().all(|part| text.contains(part)))
                    .then_some(())
            })
    }

    /// Waits until the agent has no problem.
    pub(crate) fn no_problem(&mut self) -> Result<()> {
        self.agent
            .wait_for("no problem", |status| status.problems.is_empty().then_some(()))
    }

    /// Waits until the agent knows a pod no more, and looks whether its addresses are still in the map.
    pub(crate) fn gone(&mut self, uid: &str, addresses: &[IpAddr]) -> Result<()> {
        self.agent.wait_for(&format!("pod {uid} to be gone"), |status| {
            status.pods.iter().all(|pod| pod.uid != uid).then_some(())
        })?;
        let mapped = self.mapped()?;
        ensure!(addresses.iter().all(|ip| !mapped.contains(ip)), "{mapped:?}");
        Ok(())
    }

    /// The addresses in the agent's map.
    pub(crate) fn mapped(&self) -> Result<Vec<IpAddr>> {
        let pods = self.agent.cli_json(&["pods"])?;
        let mut found = Vec::new();
        addresses(&pods, &mut found);
        Ok(found)
    }
}

/// All texts in a JSON value that are addresses.
fn addresses(value: &Value, found: &mut Vec<IpAddr>) {
    match value {
        Value::String(text) => found.extend(text.parse::<IpAddr>().ok()),
        Value::Array(all) => all.iter().for_each(|value| addresses(value, found)),
        Value::Object(all) => all.values().for_each(|value| addresses(value, found)),
        _ => {}
    }
}

pub(crate) fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}

//! A node with many pods of one namespace, an agent, and a proxy that acks at once.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::cluster::User;
use crate::process::Process;
use crate::{Agent, Cluster, Node, Pod, PodSpec, programs};

/// Kubernetes namespace of the pods.
pub const NAMESPACE: &str = "crowd";

/// Pods that one node can have here: they share a network of 254 addresses with the bridge and the proxy.
pub const MOST: usize = 252;

/// A full node. The fields are dropped in this order.
#[derive(Debug)]
pub struct FullNode {
    /// The agent.
    pub agent: Agent,
    _proxy: Process,
    _home: Pod,
    /// The pods.
    pub pods: Vec<Pod>,
    cluster: Option<Cluster>,
    /// Their node.
    pub node: Node,
}

impl FullNode {
    /// Makes so many pods, outside the mesh, and waits until the agent knows them by their manifests. `proxy` are flags
    /// of `meshgate-testproxy`; with `--ack-only` it costs next to nothing.
    ///
    /// # Errors
    /// When a part cannot be made or does not start.
    pub fn new(count: usize, proxy: &[&str]) -> Result<Self> {
        let node = Node::new()?;
        node.namespace(NAMESPACE, &[])?;
        let pods = specs(count)?
            .map(|spec| node.pod_with(spec))
            .collect::<Result<Vec<_>>>()?;
        node.apply(&pods.iter().collect::<Vec<_>>())?;
        let source = format!("file:{}", node.manifests().display());
        Self::start(node, None, pods, proxy, &source, &[])
    }

    /// Likewise with an API server, whose programs are in `assets`.
    ///
    /// # Errors
    /// As [`FullNode::new`].
    pub fn in_cluster(count: usize, proxy: &[&str], assets: &Path) -> Result<Self> {
        let node = Node::new()?;
        let cluster = Cluster::start(&node, assets)?;
        cluster.unpin()?;
        cluster.namespace(NAMESPACE, &[])?;
        let pods = specs(count)?.map(|spec| cluster.run(&node, spec));
        let pods = pods.collect::<Result<Vec<_>>>()?;
        let kubeconfig = cluster.kubeconfig(User::Agent).display().to_string();
        Self::start(
            node,
            Some(cluster),
            pods,
            proxy,
            "kube",
            &["--kubeconfig", &kubeconfig],
        )
    }

    fn start(
        node: Node,
        cluster: Option<Cluster>,
        pods: Vec<Pod>,
        proxy: &[&str],
        source: &str,
        flags: &[&str],
    ) -> Result<Self> {
        let home = node.pod_with(
            PodSpec::new("proxy")
                .namespace("istio-system")
                .label("app", "ztunnel"),
        )?;
        let mut command = home.command(&programs::find("meshgate-testproxy")?)?;
        command.arg("--zds-socket").arg(node.zds_socket()).args(proxy);
        let mut proxy = Process::start_talking("proxy", &mut command)?;
        proxy.await_line("started")?;
        let mut full = Self {
            agent: Agent::start_with(&node, source, flags)?,
            _proxy: proxy,
            _home: home,
            pods,
            cluster,
            node,
        };
        full.wait_for("outside")?;
        Ok(full)
    }

    /// Waits until all pods are in a state.
    ///
    /// # Errors
    /// When they are not in time, or the agent ends.
    pub fn wait_for(&mut self, state: &str) -> Result<()> {
        let count = self.pods.len();
        self.agent
            .wait_for(&format!("{count} pods to be {state}"), |status| {
                let there = status
                    .pods
                    .iter()
                    .filter(|pod| pod.namespace == NAMESPACE && pod.state == state);
                (there.count() == count).then_some(())
            })
    }

    /// Changes the label of the namespace and waits for all pods.
    ///
    /// # Errors
    /// As [`FullNode::wait_for`].
    pub fn label(&mut self, ambient: bool) -> Result<()> {
        let (mode, state) = if ambient {
            ("ambient", "enabled")
        } else {
            ("none", "outside")
        };
        let labels = [("istio.io/dataplane-mode", mode)];
        match &self.cluster {
            Some(cluster) => cluster.namespace(NAMESPACE, &labels)?,
            None => self.node.namespace(NAMESPACE, &labels)?,
        }
        self.wait_for(state)
    }
}

fn specs(count: usize) -> Result<impl Iterator<Item = PodSpec>> {
    ensure!((1..=MOST).contains(&count), "1 up to {MOST} pods");
    Ok((1..=count).map(|number| PodSpec::new(&format!("p{number}")).namespace(NAMESPACE)))
}

//! The usual scene: a node with an agent and a proxy, a client and a server in the mesh, and one pod outside.

use anyhow::Result;

use crate::{Agent, Maps, Node, Pod, PodSpec, Proxy};

/// A running node. The fields are dropped in this order: the processes before the pods, the node last.
#[derive(Debug)]
pub struct Mesh {
    /// The agent.
    pub agent: Agent,
    /// The proxy.
    pub proxy: Proxy,
    /// A pod in the mesh.
    pub client: Pod,
    /// Another pod in the mesh.
    pub server: Pod,
    /// A pod outside the mesh.
    pub outside: Pod,
    /// The node of all of them.
    pub node: Node,
}

impl Mesh {
    /// Starts everything and waits until both pods of the mesh are enabled.
    ///
    /// # Errors
    /// When a part does not start or a pod is not enabled; the agent's log is in the error.
    pub fn new() -> Result<Self> {
        let node = Node::new()?;
        let client = node.pod_with(PodSpec::new("client").ambient())?;
        let server = node.pod_with(PodSpec::new("server").ambient())?;
        let outside = node.pod("outside")?;
        node.apply(&[&client, &server, &outside])?;
        let mut agent = Agent::start(&node)?;
        let proxy = Proxy::start(&node, "proxy", &[])?;
        for pod in [&client, &server] {
            agent.wait_for_pod_state(pod.uid(), "enabled")?;
        }
        Ok(Self {
            agent,
            proxy,
            client,
            server,
            outside,
            node,
        })
    }

    /// What the agent's maps hold.
    #[must_use]
    pub fn maps(&self) -> Maps<'_> {
        Maps::of(&self.node)
    }
}

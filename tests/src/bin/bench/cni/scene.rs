//! A node with an agent, a proxy which acks at once, and sandboxes that Kubernetes has put there and nobody has added.

use std::time::Duration;

use ::tests::cni::Plugin;
use ::tests::process::Process;
use ::tests::{Agent, Node, Pod, PodSpec, programs};
use anyhow::Result;

use crate::cell::cpu_time;

/// The scene. Dropped in this order.
pub(super) struct Scene {
    agent: Agent,
    _proxy: Process,
    _home: Pod,
    pub(super) plugin: Plugin,
    batch: usize,
    node: Node,
}

impl Scene {
    /// Makes it for so many pods of each kind.
    pub(super) fn new(batch: usize) -> Result<Self> {
        let node = Node::new()?;
        let home = node.pod_with(
            PodSpec::new("proxy")
                .namespace("istio-system")
                .label("app", "ztunnel"),
        )?;
        let mut command = home.command(&programs::find("meshgate-testproxy")?)?;
        let command = command.arg("--zds-socket").arg(node.zds_socket());
        let mut proxy = Process::start_talking("proxy", command)?;
        proxy.await_line("started")?;
        Ok(Self {
            agent: Agent::start(&node)?,
            _proxy: proxy,
            _home: home,
            plugin: Plugin::new(&node)?,
            batch,
            node,
        })
    }

    /// Pods outside, in the mesh, and in the mesh once more. The agent has heard of all of them.
    pub(super) fn pods(&mut self) -> Result<[Vec<Pod>; 3]> {
        let make = |kind: &str, ambient: bool| -> Result<Vec<Pod>> {
            let spec = |number| PodSpec::new(&format!("{kind}-{number}"));
            let spec = |number| {
                if ambient {
                    spec(number).ambient()
                } else {
                    spec(number)
                }
            };
            (0..self.batch)
                .map(|number| self.node.sandbox(spec(number)))
                .collect()
        };
        let pods = [
            make("outside", false)?,
            make("inside", true)?,
            make("together", true)?,
        ];
        self.node.apply(&pods.iter().flatten().collect::<Vec<_>>())?;
        let count = self.batch * 3;
        self.agent.wait_for("all pods to be known", |status| {
            (status.pods.len() == count).then_some(())
        })?;
        Ok(pods)
    }

    /// Processor time that the agent has used until now.
    pub(super) fn agent_cpu(&self) -> Result<Duration> {
        Ok(Duration::from_micros(cpu_time(
            &self.node.cgroup().join("node/agent"),
        )?))
    }
}

//! A whole cluster of one node, as kubeadm makes one: beside [`Cluster`]'s control plane the real controllers, scheduler
//! and kubelet, on a real container runtime. Everything is in the node's namespaces and cgroups, and gone with it.

mod kubelet;

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::pods::node_reference;
use super::{Cluster, User, flags, users};
use crate::containerd::{Containerd, Options};
use crate::node::Node;
use crate::process::Process;

/// A controller that wants a certificate authority where the tests' API server signs its own certificate.
const CONTROLLERS: &str = "*,-kube-apiserver-serving-clustertrustbundle-publisher-controller";
/// Requests per second: nobody else needs the API server.
const QPS: &str = "1000";

/// Which of a node's two addresses comes first, and with it a pod's `status.podIP`, which kubelet probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primary {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The cluster. The fields are dropped in this order.
#[derive(Debug)]
pub struct OneNode {
    kubelet: Option<Process>,
    _scheduler: Process,
    _controllers: Process,
    /// The container runtime.
    pub containerd: Containerd,
    /// The control plane.
    pub cluster: Cluster,
    /// The node.
    pub node: Node,
}

impl OneNode {
    /// Makes a node one of a cluster, with the programs of `assets` (see [`crate::requires::one_node`]), and waits until it
    /// is ready, which it is when the runtime has a network.
    ///
    /// # Errors
    /// When something does not start; the logs are in the error.
    pub fn start(node: Node, assets: &Path, options: Options) -> Result<Self> {
        // Its service accounts are made by a controller, and the taint of a new node is taken off by another.
        let cluster = Cluster::start_without(&node, assets, "")?;
        let controllers = cluster.launch("kube-controller-manager", &controller_flags(&cluster))?;
        let scheduler = cluster.launch("kube-scheduler", &client_flags(&cluster))?;
        let containerd = Containerd::start_with(&node, options)?;
        kubelet::prepare(&node, &containerd)?;
        let mut one = Self {
            kubelet: None,
            _scheduler: scheduler,
            _controllers: controllers,
            containerd,
            cluster,
            node,
        };
        one.restart_kubelet(Primary::V4)?;
        Ok(one)
    }

    /// Process id of the kubelet, which is in the node's network namespace.
    #[must_use]
    pub fn kubelet_id(&self) -> Option<u32> {
        self.kubelet.as_ref().map(Process::id)
    }

    /// Kills kubelet, if it runs, starts it, and waits until it says that the node is ready. Pods go on meanwhile.
    ///
    /// # Errors
    /// As [`OneNode::start`].
    pub fn restart_kubelet(&mut self, primary: Primary) -> Result<()> {
        self.kubelet = None;
        let program = self.cluster.assets.join("kubelet");
        let mut command = self.containerd.command(&program)?;
        command.args(kubelet::flags_of(
            &self.cluster,
            &self.node,
            &self.containerd,
            primary,
        )?);
        self.kubelet = Some(self.cluster.start_logged("kubelet", &mut command)?);
        let node = node_reference(self.node.name());
        let started = self.cluster.wait_for(&node, "the node to be ready", |node| {
            is_ready(node) && first_address(node).is_some_and(|ip| ip.is_ipv6() == (primary == Primary::V6))
        });
        started.with_context(|| {
            let logs = ["kubelet", "kube-controller-manager", "kube-scheduler"];
            logs.map(|program| self.cluster.tail(program)).join("\n")
        })
    }
}

fn controller_flags(cluster: &Cluster) -> Vec<String> {
    let file = |name: &str| cluster.folder.join(name).display().to_string();
    let mut all = client_flags(cluster);
    all.extend(flags(&[
        ("controllers", CONTROLLERS),
        // It makes this folder; the usual one is the machine's.
        ("flex-volume-plugin-dir", &file("volume-plugins")),
        // The one key of the cluster, and its certificate.
        ("service-account-private-key-file", &file(users::KEY)),
        ("root-ca-file", &file(users::CERTIFICATE)),
    ]));
    all
}

/// Flags of a client of the API server that is alone.
fn client_flags(cluster: &Cluster) -> Vec<String> {
    let kubeconfig = cluster.kubeconfig(User::Admin).display().to_string();
    flags(&[
        ("kubeconfig", &kubeconfig),
        ("leader-elect", "false"),
        ("bind-address", "127.0.0.1"),
        ("kube-api-qps", QPS),
        ("kube-api-burst", QPS),
    ])
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The address that comes first, if kubelet has told one.
fn first_address(node: &Value) -> Option<IpAddr> {
    node["status"]["addresses"][0]["address"].as_str()?.parse().ok()
}

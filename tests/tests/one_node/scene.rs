//! The scene of these tests, and what it means that a pod is in the mesh.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::cluster::User;
use tests::cluster::kubectl::Running;
use tests::containerd::{IMAGE, Main, Network, Options, network};
use tests::process::Process;
use tests::proxy::Direction;
use tests::{Agent, Cluster, Node, OneNode, Pod, Proxy};

pub(crate) const MODE: &str = "istio.io/dataplane-mode";
/// Kubernetes namespace whose pods take nothing in clear text.
pub(crate) const STRICT: &str = "strict";
/// Port of the server outside the mesh.
const PORT: u16 = 80;

/// A cluster of one node with agent, plugin and proxy, and a server outside the mesh that tells who calls it. The fields
/// are dropped in this order.
pub(crate) struct Scene {
    agent: Mutex<Agent>,
    pub(crate) proxy: Proxy,
    _listening: Process,
    /// No pod of the cluster, and not in the mesh.
    pub(crate) server: Pod,
    pub(crate) one: OneNode,
}

impl Scene {
    pub(crate) fn new(assets: &Path) -> Result<Self> {
        let node = Node::new()?;
        let mut plugin = network::meshgate(&node);
        // A test waits until it gives up.
        plugin["agent_timeout_seconds"] = json!(3);
        let network = Network::new(&node, Main::Bridge).then(plugin);
        let options = Options {
            network: Some(network.conflist()),
            ..Options::default()
        };
        let one = OneNode::start(node, assets, options)?;
        let kubeconfig = one.cluster.kubeconfig(User::Agent);
        let [host_root, root] = one.containerd.agent_flags();
        let flags = ["--kubeconfig", text(&kubeconfig)?, &host_root, &root];
        let agent = Agent::start_with(&one.node, "kube", &flags)?;
        let proxy = Proxy::start(&one.node, "proxy", &["--strict", STRICT])?;
        let server = one.node.pod("server")?;
        let listening = server.serve(&["--listen", &format!("[::]:{PORT}")])?;
        Ok(Self {
            agent: Mutex::new(agent),
            proxy,
            _listening: listening,
            server,
            one,
        })
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.one.cluster
    }

    pub(crate) fn agent(&self) -> MutexGuard<'_, Agent> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a namespace in which pods can be made.
    pub(crate) fn namespace(&self, name: &str, labels: &[(&str, &str)]) -> Result<Namespace<'_>> {
        let labels: serde_json::Map<_, _> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let metadata = json!({ "name": name, "labels": labels });
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
        self.cluster().kubectl_apply(&[object])?;
        let metadata = json!({ "name": "default", "namespace": name });
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata });
        let made = |_: &Value| true;
        self.cluster()
            .wait_for(&account, &format!("the service account of {name}"), made)?;
        Ok(Namespace {
            scene: self,
            name: name.to_owned(),
        })
    }

    /// Both addresses of the server outside the mesh.
    pub(crate) fn destinations(&self) -> [SocketAddr; 2] {
        [self.server.v4(), self.server.v6()].map(|ip| SocketAddr::new(ip, PORT))
    }

    /// Waits until a pod is in the mesh by all signs: the agent's account, the annotation, its connections.
    pub(crate) fn captured(&self, pod: &Running) -> Result<()> {
        self.told_of(pod, "enabled")?;
        for destination in self.destinations() {
            let seen = self.connect(pod, destination)?;
            ensure!(seen == 1, "{}: past the proxy to {destination}", pod.name);
        }
        Ok(())
    }

    /// Waits until a pod is outside the mesh by all signs.
    pub(crate) fn outside(&self, pod: &Running) -> Result<()> {
        self.told_of(pod, "outside")?;
        for destination in self.destinations() {
            let seen = self.connect(pod, destination)?;
            ensure!(seen == 0, "{}: by the proxy to {destination}", pod.name);
        }
        Ok(())
    }

    /// Waits until the agent tells of a pod that it is in a state, `enabled` or `outside`, and its annotation does.
    pub(crate) fn told_of(&self, pod: &Running, state: &str) -> Result<()> {
        self.agent().wait_for_pod_state(&pod.uid, state)?;
        self.annotated(pod, state)
    }

    /// Waits until a pod's annotation tells that it is in a state, `enabled` or `outside`.
    pub(crate) fn annotated(&self, pod: &Running, state: &str) -> Result<()> {
        let expected = (state == "enabled").then_some("enabled");
        let what = format!("the annotation of {} to be {expected:?}", pod.name);
        self.cluster().wait_for(&reference(pod), &what, |found| {
            found["metadata"]["annotations"]["ambient.istio.io/redirection"].as_str() == expected
        })
    }

    /// Waits until the agent tells of all these pods that they are in a state.
    pub(crate) fn all_told_of(&self, pods: &[Running], state: &str) -> Result<()> {
        let what = format!("{} pods to be {state}", pods.len());
        self.agent().wait_for(&what, |status| {
            let told = |uid: &str| status.pods.iter().any(|pod| pod.uid == uid && pod.state == state);
            pods.iter().all(|pod| told(&pod.uid)).then_some(())
        })
    }

    /// Connects and hears the server's line, after which the proxy has logged it. Returns how often the proxy saw it.
    fn connect(&self, pod: &Running, destination: SocketAddr) -> Result<usize> {
        let before = self.outbound(pod, destination)?;
        let answer = self
            .cluster()
            .kubectl_load(pod, &["connect", &destination.to_string()])?;
        ensure!(answer["read"] == "ok", "{}: {answer}", pod.name);
        Ok(self.outbound(pod, destination)? - before)
    }

    /// How many connections of a pod to a destination went through the proxy. The address alone would not do: it may
    /// have been another pod's.
    pub(crate) fn outbound(&self, pod: &Running, destination: SocketAddr) -> Result<usize> {
        let all = self.proxy.connections()?;
        let mine = all.iter().filter(|connection| {
            connection.direction == Direction::Outbound
                && connection.destination == destination
                && connection.pod == pod.uid
        });
        Ok(mine.count())
    }

    /// Waits until the agent knows a pod no more, and sees that its maps hold nothing of it.
    pub(crate) fn gone(&self, pod: &Running) -> Result<()> {
        let mut agent = self.agent();
        agent.wait_for(&format!("{} to be gone", pod.name), |status| {
            status.pods.iter().all(|known| known.uid != pod.uid).then_some(())
        })?;
        let mapped = agent.cli_json(&["pods"])?.to_string();
        let mut traces = pod.ips.iter().map(IpAddr::to_string).chain([pod.uid.clone()]);
        ensure!(
            traces.all(|trace| !mapped.contains(&format!("\"{trace}\""))),
            "{mapped}"
        );
        Ok(())
    }
}

/// A Kubernetes namespace of a test, deleted when dropped; the controllers go on with that.
pub(crate) struct Namespace<'a> {
    scene: &'a Scene,
    pub(crate) name: String,
}

impl Namespace<'_> {
    /// Makes objects in it, with kubectl.
    pub(crate) fn apply(&self, objects: &mut [Value]) -> Result<()> {
        for object in &mut *objects {
            object["metadata"]["namespace"] = json!(self.name);
        }
        self.scene.cluster().kubectl_apply(objects)
    }

    /// Waits until a pod's containers are ready.
    pub(crate) fn ready(&self, pod: &str) -> Result<Running> {
        self.scene
            .cluster()
            .kubectl_wait(&self.name, "Ready", &format!("pod/{pod}"))?;
        self.scene.cluster().running(&self.name, pod)
    }

    /// A pod as it is now.
    pub(crate) fn running(&self, pod: &str) -> Result<Running> {
        self.scene.cluster().running(&self.name, pod)
    }

    /// Runs kubectl in it.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let namespace = format!("--namespace={}", self.name);
        self.scene
            .cluster()
            .kubectl(&[&[namespace.as_str()], arguments].concat())
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        let delete = ["delete", "namespace", &self.name, "--wait=false"];
        if let Err(error) = self.scene.cluster().kubectl(&delete) {
            eprintln!("{error:#}");
        }
    }
}

/// The object of a pod, by its name.
pub(crate) fn reference(pod: &Running) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
    })
}

/// A container that runs the load tool.
pub(crate) fn container(name: &str, arguments: &[&str]) -> Value {
    json!({ "name": name, "image": IMAGE, "imagePullPolicy": "Never", "args": arguments })
}

/// What a pod is, with these containers.
pub(crate) fn spec(containers: &[Value]) -> Value {
    json!({ "containers": containers, "terminationGracePeriodSeconds": 5, "enableServiceLinks": false })
}

/// A pod.
pub(crate) fn pod(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": spec })
}

/// A controller of many pods with the same template.
pub(crate) fn controller(kind: &str, name: &str, replicas: usize, spec: &Value) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    })
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}

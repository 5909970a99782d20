//! After a reboot pins, processes, namespaces and run folders are gone, pods come back with their old UIDs, their old
//! annotations and other addresses, and agent and proxy come when they come: no pod is left uncaptured.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tests::cni::{Call, Plugin};
use tests::process::Process;
use tests::wait::LIMIT;
use tests::{Agent, Mesh, Node, Pins, Pod, PodSpec, Proxy, requires, wait};

/// How long kubelet is let try to make a sandbox here.
const PATIENCE: Duration = Duration::from_secs(60);

/// What comes back after the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Agent,
    Proxy,
    Pods,
}

/// A node that has booted: pods of the mesh that Kubernetes knows as captured, and a server outside the mesh.
struct Booted {
    agent: Option<Agent>,
    proxy: Option<Proxy>,
    pods: Vec<Pod>,
    plugin: Plugin,
    _listening: Process,
    server: Pod,
    node: Node,
}

impl Booted {
    /// Runs pods, agent and proxy, then takes away what a reboot takes away.
    fn new() -> Result<Self> {
        let node = Node::new()?;
        let server = node.pod("server")?;
        let listening = server.serve(&["--listen", "[::]:80"])?;
        let mut pods = Vec::new();
        for name in ["a", "b", "c"] {
            pods.push(node.pod_with(PodSpec::new(name).ambient())?);
        }
        node.apply(&pods.iter().collect::<Vec<_>>())?;
        let mut agent = Agent::start(&node)?;
        let proxy = Proxy::start(&node, "earlier", &[])?;
        for pod in &pods {
            agent.wait_for_pod_state(pod.uid(), "enabled")?;
        }
        drop((agent, proxy));
        fs::remove_dir_all(node.bpffs().join("meshgate"))?;
        fs::remove_dir_all(node.run_dir().join("agent"))?;
        let _ = fs::remove_file(node.zds_socket());
        let _ = fs::remove_file(node.plugin_socket());
        let annotation = "ambient.istio.io/redirection";
        for pod in &mut pods {
            pod.set_annotation(annotation, Some("enabled"));
        }
        node.apply(&pods.iter().collect::<Vec<_>>())?;
        let specs: Vec<_> = pods.drain(..).map(|pod| pod.spec()).collect();
        Ok(Self {
            agent: None,
            proxy: None,
            pods: specs
                .into_iter()
                .map(|spec| node.sandbox(spec))
                .collect::<Result<_>>()?,
            plugin: Plugin::new(&node)?,
            _listening: listening,
            server,
            node,
        })
    }

    /// Starts agent, proxy and the pods' sandboxes in this order. What comes later is not waited for.
    fn boot(&mut self, order: [Part; 3]) -> Result<()> {
        let Self {
            agent,
            proxy,
            pods,
            plugin,
            node,
            ..
        } = self;
        let (node, plugin, pods): (&Node, &Plugin, &[Pod]) = (node, plugin, pods);
        std::thread::scope(|scope| {
            let mut kubelets = Vec::new();
            for part in order {
                match part {
                    Part::Agent => *agent = Some(Agent::start(node)?),
                    Part::Proxy => *proxy = Some(Proxy::start(node, "later", &[])?),
                    Part::Pods => {
                        for pod in pods {
                            let first = plugin.start_add(pod)?;
                            kubelets.push(scope.spawn(move || admitted(plugin, pod, first)));
                        }
                    }
                }
            }
            kubelets
                .into_iter()
                .try_for_each(|kubelet| kubelet.join().unwrap_or_else(|_| bail!("a kubelet panicked")))
        })
    }

    /// Starts the pods' processes, whose very first connections go through the proxy.
    fn start_pods(&mut self) -> Result<()> {
        for pod in &mut self.pods {
            pod.start()?;
        }
        self.check()?;
        self.node.apply(&self.pods.iter().collect::<Vec<_>>())
    }

    fn check(&self) -> Result<()> {
        let Some(proxy) = &self.proxy else {
            bail!("no proxy")
        };
        for pod in &self.pods {
            for ip in [self.server.v4(), self.server.v6()] {
                let destination = SocketAddr::new(ip, 80);
                let answer = pod.load(&["connect", &destination.to_string()])?;
                ensure!(answer["read"] == "ok", "{}: {answer}", pod.name());
                let seen = proxy.connections()?;
                let passed = seen
                    .iter()
                    .any(|seen| seen.pod == pod.uid() && seen.destination == destination);
                ensure!(passed, "{} passed the proxy by", pod.name());
            }
        }
        Ok(())
    }
}

/// Makes a sandbox as kubelet does: when a plugin fails, again.
fn admitted(plugin: &Plugin, pod: &Pod, first: Call) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut answer = first.wait()?;
    while !answer.success {
        ensure!(Instant::now() < deadline, "{}: {}", pod.name(), answer.error());
        answer = plugin.add(pod)?;
    }
    Ok(())
}

#[test]
fn pods_that_come_back_with_the_plugin_are_captured_whatever_comes_first() -> Result<()> {
    if !requires::root("pods_that_come_back_with_the_plugin_are_captured_whatever_comes_first") {
        return Ok(());
    }
    use Part::{Agent, Pods, Proxy};
    for order in [
        [Agent, Proxy, Pods],
        [Agent, Pods, Proxy],
        [Proxy, Agent, Pods],
        [Proxy, Pods, Agent],
        [Pods, Agent, Proxy],
        [Pods, Proxy, Agent],
    ] {
        let mut booted = Booted::new()?;
        booted.boot(order).with_context(|| format!("{order:?}"))?;
        booted.start_pods().with_context(|| format!("{order:?}"))?;
    }
    Ok(())
}

#[test]
fn pods_that_came_back_without_the_plugin_are_captured_by_the_watch() -> Result<()> {
    if !requires::root("pods_that_came_back_without_the_plugin_are_captured_by_the_watch") {
        return Ok(());
    }
    for agent_first in [true, false] {
        let mut booted = Booted::new()?;
        for pod in &mut booted.pods {
            pod.start()?;
        }
        // Until kubelet reports, Kubernetes tells the addresses of before the boot, and `enabled`.
        let reported = |booted: &Booted| booted.node.apply(&booted.pods.iter().collect::<Vec<_>>());
        if agent_first {
            booted.agent = Some(Agent::start(&booted.node)?);
            reported(&booted)?;
        } else {
            reported(&booted)?;
            booted.agent = Some(Agent::start(&booted.node)?);
        }
        booted.proxy = Some(Proxy::start(&booted.node, "later", &[])?);
        for pod in &booted.pods {
            let agent = booted.agent.as_mut().context("an agent")?;
            agent.wait_for_pod_state(pod.uid(), "enabled")?;
        }
        booted.check()?;
    }
    Ok(())
}

#[test]
fn a_sandbox_that_is_made_anew_with_its_address_is_noticed_without_the_plugin() -> Result<()> {
    if !requires::root("a_sandbox_that_is_made_anew_with_its_address_is_noticed_without_the_plugin") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let spec = mesh.client.spec().host(mesh.client.host());
    let (uid, before) = (mesh.client.uid().to_owned(), mesh.client.netns().cookie()?);
    let spare = mesh.node.sandbox(PodSpec::new("spare"))?;
    drop(std::mem::replace(&mut mesh.client, spare));
    mesh.client = mesh.node.pod_with(spec)?;
    ensure!(mesh.client.uid() == uid && mesh.client.netns().cookie()? != before);
    mesh.node.apply(&[&mesh.client])?;
    let pins = Pins::of(&mesh.node);
    let link = pins.links("pod").join(mesh.client.netns().cookie()?.to_string());
    // The kernel tells nobody of a new pin.
    wait::asking(LIMIT, "a link in the new namespace", || {
        Ok(link.exists().then_some(()))
    })?;
    let old = link.with_file_name(before.to_string());
    ensure!(!old.exists(), "the old namespace is still linked");
    let entry = || {
        mesh.agent
            .cli_json(&["maps", "get", "--ip", &mesh.client.v4().to_string()])
    };
    wait::asking(LIMIT, "the pod to be captured again", || {
        Ok(entry().is_ok().then_some(()))
    })?;
    mesh.check()
}

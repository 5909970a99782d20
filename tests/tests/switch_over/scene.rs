//! A node on which Istio's agent has enrolled a client and a server, where other people have rules of their own, and load
//! that goes on all the time.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests::escape::{Verdict, verdict};
use tests::iptables::{self, Family};
use tests::istio::{Backend, Istio, remains};
use tests::netns::Netns;
use tests::process::Process;
use tests::proxy::Direction;
use tests::{Agent, Node, Pod, PodSpec, Proxy, programs, requires, wait};

/// Connections per second of each load.
const RATE: &str = "100";
/// Where servers listen.
pub(crate) const PORT: u16 = 8080;
/// What Istio's agent writes to pods that it has enrolled.
const ENROLLED: (&str, &str) = ("ambient.istio.io/redirection", "enabled");

/// The backends that this machine has; says which it lacks.
pub(crate) fn backends(test: &str) -> Vec<Backend> {
    if !requires::root(test) {
        return Vec::new();
    }
    let has_tools = |backend: &Backend| requires::command(test, backend.tool());
    Backend::ALL.into_iter().filter(has_tools).collect()
}

/// A node before it is switched over. The fields are dropped in this order.
#[derive(Debug)]
pub(crate) struct Scene<P> {
    pub(crate) agent: Agent,
    pub(crate) proxy: P,
    pub(crate) client: Pod,
    pub(crate) server: Pod,
    pub(crate) outside: Pod,
    pub(crate) backend: Backend,
    istio: Option<Istio>,
    /// A namespace with the rules of other people and no others.
    twin: Netns,
    pub(crate) node: Node,
}

impl Scene<Proxy> {
    /// With the test proxy.
    pub(crate) fn new(backend: Backend) -> Result<Self> {
        Self::with_server(backend, PodSpec::new("server"))
    }

    /// With the test proxy and such a server.
    pub(crate) fn with_server(backend: Backend, server: PodSpec) -> Result<Self> {
        Self::with(backend, server, |node, _| Proxy::start(node, "proxy", &[]))
    }

    /// What the servers and the proxy say: of connections out of the client, and into the server.
    pub(crate) fn verdicts(&self, load: &Load) -> Result<[Verdict; 2]> {
        let proxied = self.proxy.connections()?;
        let out = (Direction::Outbound, &self.client, PORT);
        let into = (Direction::Inbound, &self.server, PORT);
        Ok([
            verdict(&load.outside_log, &[&self.client], &proxied, out)?,
            verdict(&load.server_log, &[&self.outside], &proxied, into)?,
        ])
    }

    /// No connection of the load failed, and each passed the proxy.
    pub(crate) fn assert_flawless(&self, mut load: Load) -> Result<()> {
        load.assert_nothing_failed().with_context(|| self.agent.log())?;
        for verdict in self.verdicts(&load)? {
            ensure!(verdict.escaped == 0 && verdict.accepted > 50, "{verdict:?}");
        }
        Ok(())
    }
}

impl<P> Scene<P> {
    /// With the proxy that `proxy` starts for client, server and the pod outside.
    pub(crate) fn with(
        backend: Backend,
        server: PodSpec,
        proxy: impl FnOnce(&Node, [&Pod; 3]) -> Result<P>,
    ) -> Result<Self> {
        let node = Node::new()?;
        // From here the kernel asks for neighbours when a packet has another source than an own address, as by SNAT.
        node.netns().ip("addr add fe80::1/64 dev br0 nodad\n")?;
        let enrolled = |spec: PodSpec| spec.ambient().annotation(ENROLLED.0, ENROLLED.1);
        let client = node.pod_with(enrolled(PodSpec::new("client")))?;
        let server = node.pod_with(enrolled(server))?;
        let outside = node.pod("outside")?;
        let twin = Netns::create(&format!("{}.twin", node.name()))?;
        let (istio, proxy) = Istio::start(&node, backend, || proxy(&node, [&client, &server, &outside]))?;
        for netns in [client.netns(), server.netns(), &twin] {
            foreign(netns, backend, BEFORE)?;
        }
        for pod in [&client, &server] {
            istio.enrol(&node, pod)?;
        }
        for netns in [client.netns(), server.netns(), &twin] {
            foreign(netns, backend, AFTER)?;
        }
        node.apply(&[&client, &server, &outside])?;
        let source = format!("file:{}", node.manifests().display());
        Ok(Self {
            agent: Agent::stopped(&node, &source, &[])?,
            proxy,
            client,
            server,
            outside,
            backend,
            istio: Some(istio),
            twin,
            node,
        })
    }

    /// Istio's agent ends, as it does when its DaemonSet is replaced.
    pub(crate) fn end_istio(&mut self) {
        self.istio = None;
    }

    /// Istio's agent ends, ours starts, and all pods are as they should be.
    pub(crate) fn switch(&mut self) -> Result<()> {
        self.end_istio();
        self.agent.restart()?;
        self.wait_until_enabled()
    }

    /// Waits until the pods are captured and served.
    pub(crate) fn wait_until_enabled(&mut self) -> Result<()> {
        for pod in [&self.client, &self.server] {
            self.agent.wait_for_pod_state(pod.uid(), "enabled")?;
        }
        Ok(())
    }

    /// Waits until nothing of Istio's is in the pods: the agent says in no file when it has removed a rule.
    pub(crate) fn wait_until_gone(&self) -> Result<()> {
        [&self.client, &self.server]
            .into_iter()
            .try_for_each(|pod| self.wait_until_gone_from(pod))
    }

    /// Waits until nothing of Istio's is in a pod.
    pub(crate) fn wait_until_gone_from(&self, pod: &Pod) -> Result<()> {
        let what = format!("nothing of Istio's in {}", pod.name());
        let gone = wait::asking(Duration::from_secs(15), &what, || {
            Ok(remains(pod.netns(), self.backend)?.is_empty().then_some(()))
        });
        gone.with_context(|| {
            let remains = remains(pod.netns(), self.backend).unwrap_or_default();
            format!("{remains:#?}\n{}", self.agent.log())
        })
    }

    /// The rules of other people are in both pods just as if there had been no others, with their counters.
    pub(crate) fn foreign_rules_are_untouched(&self) -> Result<()> {
        [&self.client, &self.server]
            .into_iter()
            .try_for_each(|pod| self.foreign_rules_are_untouched_in(pod))
    }

    /// The same of one pod.
    pub(crate) fn foreign_rules_are_untouched_in(&self, pod: &Pod) -> Result<()> {
        for family in Family::ALL {
            let saved = |netns| iptables::saved(netns, self.backend.iptables(), family);
            let (is, expected) = (saved(pod.netns())?, saved(&self.twin)?);
            ensure!(is == expected, "{}: {is:#?}\n{expected:#?}", pod.name());
            // ip6tables-nft 1.8.9 restores no counters.
            if family == Family::V6 && self.backend.tool() != "iptables-legacy" {
                continue;
            }
            ensure!(
                expected.iter().filter(|line| line.contains("[7:700]")).count() == 8,
                "{expected:#?}"
            );
        }
        Ok(())
    }

    /// The node's own address, in the family of the other one.
    pub(crate) fn node_ip(&self, like: IpAddr) -> Result<IpAddr> {
        let x = self.node.subnet();
        Ok(if like.is_ipv4() {
            format!("10.{x}.0.1").parse()?
        } else {
            format!("fd00:{x}::1").parse()?
        })
    }

    /// Where an echoing server in a pod is reached.
    pub(crate) fn at(pod: &Pod) -> [SocketAddr; 2] {
        [pod.v4(), pod.v6()].map(|ip| SocketAddr::new(ip, PORT))
    }
}

/// Rules of other people, in the tables that Istio uses too; no packet of these tests meets one of those with a counter.
fn foreign(netns: &Netns, backend: Backend, file: &str) -> Result<()> {
    Family::ALL
        .into_iter()
        .try_for_each(|family| iptables::restore(netns, backend.iptables(), family, file))
}

/// Those that are there before Istio's.
const BEFORE: &str = "*nat
:MINE - [0:0]
[7:700] -A PREROUTING -p tcp --dport 9999 -j MINE
[7:700] -A OUTPUT -p tcp --dport 9999
[7:700] -A MINE -p tcp -j REDIRECT --to-ports 9998
COMMIT
*mangle
[7:700] -A PREROUTING -p udp --dport 9999 -j MARK --set-xmark 0x5/0xffffffff
COMMIT
*raw
[7:700] -A OUTPUT -p udp --dport 9999 -j CT --notrack
COMMIT
";
/// Those that are there behind Istio's.
const AFTER: &str = "*nat
:ISTIO_LIKE - [0:0]
[7:700] -A OUTPUT -p tcp --dport 9997 -g ISTIO_LIKE
[7:700] -A ISTIO_LIKE -p tcp -j MINE
COMMIT
*mangle
[7:700] -A OUTPUT -p udp --dport 9997 -j ACCEPT
COMMIT
";

/// Servers, and load of pods and of the node: out of the client, into the server, probes of the server.
#[derive(Debug)]
pub(crate) struct Load {
    clients: Vec<(String, Process)>,
    _servers: [Process; 2],
    outside_log: PathBuf,
    server_log: PathBuf,
}

impl Load {
    pub(crate) fn start<P>(scene: &Scene<P>) -> Result<Self> {
        let log = |name: &str| scene.node.run_dir().join(format!("{name}-server.jsonl"));
        let (outside_log, server_log) = (log("outside"), log("server"));
        let serve = |pod: &Pod, log: &PathBuf| {
            let log = log.display().to_string();
            pod.serve(&[
                "--listen",
                &format!("[::]:{PORT}"),
                "--reply",
                "echo",
                "--log",
                &log,
            ])
        };
        let servers = [
            serve(&scene.outside, &outside_log)?,
            serve(&scene.server, &server_log)?,
        ];
        let mut clients = Vec::new();
        for (from, to) in [(&scene.client, &scene.outside), (&scene.outside, &scene.server)] {
            for destination in Scene::<P>::at(to) {
                let load = from.spawn(&["crr", &destination.to_string(), "--stdin", "--rate", RATE])?;
                clients.push((format!("{} to {destination}", from.name()), load));
            }
        }
        for destination in Scene::<P>::at(&scene.server) {
            let mut probe = scene.node.command("probes", &programs::find("meshgate-load")?)?;
            probe.args(["crr", &destination.to_string(), "--stdin", "--rate", "20"]);
            let probe = Process::start_talking("probes", &mut probe)?;
            clients.push((format!("node to {destination}"), probe));
        }
        Ok(Self {
            clients,
            _servers: servers,
            outside_log,
            server_log,
        })
    }

    /// Waits until each server has accepted so many more connections.
    pub(crate) fn goes_on(&self, more: usize) -> Result<()> {
        for log in [&self.outside_log, &self.server_log] {
            let lines = || std::fs::read_to_string(log).map_or(0, |text| text.lines().count());
            let before = lines();
            wait::for_file(log, None, "more connections", || {
                Ok((lines() >= before + more).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Ends it; no connection failed, and none waited for a packet to be sent again.
    pub(crate) fn assert_nothing_failed(&mut self) -> Result<()> {
        self.clients
            .iter_mut()
            .for_each(|(_, client)| client.close_stdin());
        for (name, client) in &mut self.clients {
            let report: Value = client.json()?;
            ensure!(report["failed"] == json!({}), "{name}: {report}");
            ensure!(report["max_us"].as_u64() < Some(900_000), "{name}: {report}");
        }
        Ok(())
    }
}

//! A node for measurements: the same pods and servers for each variant, which differ in how connections reach the proxy.

use std::net::{IpAddr, SocketAddr};
use std::path::Path as FilePath;

use ::tests::process::Process;
use ::tests::zds::{Peer, ZdsServer};
use ::tests::ztunnel::{Workload, Ztunnel};
use ::tests::{Agent, Node, Pod, PodSpec, iptables, programs};
use anyhow::Result;
use clap::ValueEnum;

use crate::cell::{Cell, Family, Kind, Path};

/// First of the ports on which the proxy of [`Variant::Limit`] listens.
const FORWARDS: u16 = 16000;

/// How connections reach the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Variant {
    /// There is none: client and server speak with each other.
    NoMesh,
    /// Rules in the pods.
    Iptables,
    /// Programs in the kernel.
    Meshgate,
    /// Not redirected at all: the client dials the proxy, which forwards to a fixed destination. Nothing that leads
    /// connections to this proxy can be quicker.
    Limit,
}

impl Variant {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::NoMesh, Self::Iptables, Self::Meshgate, Self::Limit];

    /// As it is called in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NoMesh => "no mesh",
            Self::Iptables => "iptables",
            Self::Meshgate => "Meshgate",
            Self::Limit => "limit",
        }
    }

    /// As it is called in JSON.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::NoMesh => "no_mesh",
            Self::Iptables => "iptables",
            Self::Meshgate => "meshgate",
            Self::Limit => "limit",
        }
    }
}

/// Which proxy serves the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyKind<'a> {
    /// `meshgate-testproxy`: one thread, clear text.
    Test,
    /// The real one, HBONE with TLS between the pods.
    Ztunnel(&'a FilePath),
}

/// Who keeps the proxy informed. Held for its end.
#[expect(dead_code, reason = "what it holds lives as long as the bed")]
pub(crate) enum Control {
    Agent(Box<Agent>),
    Rules(ZdsServer, Peer),
}

/// The proxy. Held for its end.
#[expect(dead_code, reason = "what it holds lives as long as the bed")]
enum Proxy {
    Test(Process, Pod),
    Ztunnel(Ztunnel),
}

/// A node with a client and a server in the mesh and a pod outside, which also serves. Dropped in this order.
pub(crate) struct Bed {
    variant: Variant,
    _servers: Vec<Process>,
    _control: Option<Control>,
    _proxy: Option<Proxy>,
    client: Pod,
    server: Pod,
    outside: Pod,
    node: Node,
}

impl Bed {
    /// Makes it and waits until the pods are served.
    pub(crate) fn new(variant: Variant, proxy: ProxyKind<'_>) -> Result<Self> {
        let node = Node::new()?;
        let client = node.pod_with(PodSpec::new("client").ambient())?;
        let server = node.pod_with(PodSpec::new("server").ambient())?;
        let outside = node.pod("outside")?;
        prepare(&node, &[&client, &server, &outside])?;
        let servers = serve_in(&[&server, &outside])?;
        node.apply(&[&client, &server, &outside])?;
        let mut bed = Self {
            variant,
            _servers: servers,
            _control: None,
            _proxy: None,
            client,
            server,
            outside,
            node,
        };
        match variant {
            Variant::NoMesh => {}
            Variant::Iptables => bed.lead_by_rules(proxy)?,
            Variant::Meshgate => bed.lead_by_programs(proxy)?,
            Variant::Limit => bed._proxy = Some(bed.forwarder()?),
        }
        Ok(bed)
    }

    fn lead_by_rules(&mut self, proxy: ProxyKind<'_>) -> Result<()> {
        let zds = ZdsServer::bind(&self.node.zds_socket())?;
        self._proxy = Some(self.start(proxy)?);
        let peer = zds.accept()?;
        for pod in [&self.client, &self.server] {
            iptables::enrol(pod.netns(), false)?;
            // The rules' state of ended connections, two minutes by default, would fill its table within seconds.
            pod.netns()
                .sysctl("net.netfilter.nf_conntrack_tcp_timeout_time_wait", "1")?;
            peer.add(pod)?;
        }
        peer.snapshot_sent()?;
        self._control = Some(Control::Rules(zds, peer));
        Ok(())
    }

    fn lead_by_programs(&mut self, proxy: ProxyKind<'_>) -> Result<()> {
        let mut agent = Agent::start(&self.node)?;
        self._proxy = Some(self.start(proxy)?);
        for pod in [&self.client, &self.server] {
            agent.wait_for_pod_state(pod.uid(), "enabled")?;
        }
        self._control = Some(Control::Agent(Box::new(agent)));
        Ok(())
    }

    fn start(&self, proxy: ProxyKind<'_>) -> Result<Proxy> {
        match proxy {
            ProxyKind::Test => {
                let socket = self.node.zds_socket().display().to_string();
                self.testproxy(&["--zds-socket", &socket])
            }
            ProxyKind::Ztunnel(program) => {
                let workloads = [(&self.client, true), (&self.server, true), (&self.outside, false)]
                    .map(|(pod, mesh)| Workload { pod, mesh });
                Ok(Proxy::Ztunnel(Ztunnel::start(
                    &self.node, "ztunnel", program, &workloads,
                )?))
            }
        }
    }

    fn testproxy(&self, arguments: &[&str]) -> Result<Proxy> {
        let spec = PodSpec::new("proxy")
            .namespace("istio-system")
            .label("app", "ztunnel");
        let pod = self.node.pod_with(spec)?;
        let mut command = pod.command(&programs::find("meshgate-testproxy")?)?;
        let mut process = Process::start_talking("proxy", command.args(arguments))?;
        process.await_line("started")?;
        Ok(Proxy::Test(process, pod))
    }

    /// A proxy with one port for each destination, in each family and for each kind of server.
    fn forwarder(&self) -> Result<Proxy> {
        let mut arguments = Vec::new();
        for family in Family::BOTH {
            for kind in [Kind::Requests, Kind::Throughput] {
                let forwards = [Path::Outbound, Path::PodToPod, Path::Inbound].map(|path| {
                    let (pod, target) = match path {
                        Path::Outbound => (
                            &self.client,
                            SocketAddr::new(ip(&self.outside, family), kind.port()),
                        ),
                        Path::PodToPod => (
                            &self.client,
                            SocketAddr::new(ip(&self.server, family), forward(Path::Inbound, family, kind)),
                        ),
                        Path::Inbound => (
                            &self.server,
                            SocketAddr::new(ip(&self.server, family), kind.port()),
                        ),
                    };
                    let netns = pod.netns().path();
                    format!("{},{},{target}", netns.display(), forward(path, family, kind))
                });
                arguments.extend(
                    forwards
                        .into_iter()
                        .flat_map(|forward| ["--forward".to_owned(), forward]),
                );
            }
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.testproxy(&arguments)
    }

    /// Who connects for this cell, and where to.
    pub(crate) fn route(&self, cell: Cell) -> (&Pod, SocketAddr) {
        let Cell { path, family, kind } = cell;
        let (client, server) = match path {
            Path::PodToPod => (&self.client, &self.server),
            Path::Outbound => (&self.client, &self.outside),
            Path::Inbound => (&self.outside, &self.server),
        };
        let destination = match (self.variant, path, family) {
            (Variant::Limit, Path::Inbound, _) => {
                SocketAddr::new(ip(server, family), forward(path, family, kind))
            }
            (Variant::Limit, _, Family::V4) => ([127, 0, 0, 1], forward(path, family, kind)).into(),
            (Variant::Limit, _, Family::V6) => ([0, 0, 0, 0, 0, 0, 0, 1], forward(path, family, kind)).into(),
            _ => SocketAddr::new(ip(server, family), kind.port()),
        };
        (client, destination)
    }

    /// The cgroup of everything on this node.
    pub(crate) fn cgroup(&self) -> &FilePath {
        self.node.cgroup()
    }

    /// As its variant is called.
    pub(crate) fn name(&self) -> &'static str {
        self.variant.name()
    }

    /// How connections reach the proxy.
    pub(crate) fn variant(&self) -> Variant {
        self.variant
    }
}

/// Keeps few connections in TIME_WAIT, since thousands a second would use up the ports of one minute; and lets the node's
/// bridge forward without asking the packet filter (bridge.rst, "bridge-nf-call-iptables"): the way between the pods is
/// not what is measured.
pub(crate) fn prepare(node: &Node, pods: &[&Pod]) -> Result<()> {
    for pod in pods {
        pod.netns().sysctl("net.ipv4.tcp_max_tw_buckets", "64")?;
    }
    if FilePath::new("/proc/sys/net/bridge").exists() {
        for family in ["iptables", "ip6tables"] {
            node.netns()
                .sysctl(&format!("net.bridge.bridge-nf-call-{family}"), "0")?;
        }
    }
    Ok(())
}

/// Starts an echo and a sink in each pod.
pub(crate) fn serve_in(pods: &[&Pod]) -> Result<Vec<Process>> {
    let mut servers = Vec::new();
    for pod in pods {
        for (kind, reply) in [(Kind::Requests, "echo"), (Kind::Throughput, "sink")] {
            let listen = format!("[::]:{}", kind.port());
            servers.push(pod.serve(&["--listen", &listen, "--reply", reply])?);
        }
    }
    Ok(servers)
}

/// A pod's address.
pub(crate) fn ip(pod: &Pod, family: Family) -> IpAddr {
    match family {
        Family::V4 => pod.v4(),
        Family::V6 => pod.v6(),
    }
}

fn forward(path: Path, family: Family, kind: Kind) -> u16 {
    FORWARDS + path as u16 * 100 + family as u16 * 10 + (kind.port() - 80)
}

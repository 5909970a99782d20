//! A stand-in for Istio's node agent, which enrols pods by rules and tells the proxy of them: what a node has before it is
//! switched over. Written from the behaviour of cni/pkg/iptables and cni/pkg/nftables.

use std::fmt;
use std::net::IpAddr;
use std::process::Command;

use anyhow::Result;

use crate::ipset;
use crate::iptables::{self, Family, PROBE4, PROBE6};
use crate::netns::{Netns, feed};
use crate::node::Node;
use crate::pod::Pod;
use crate::zds::{Peer, ZdsServer};

/// How it makes rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// By iptables.
    Iptables(iptables::Backend),
    /// By nft (`NATIVE_NFTABLES`).
    Native,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::Iptables(iptables::Backend::Nft),
        Self::Iptables(iptables::Backend::Legacy),
        Self::Native,
    ];

    /// A tool that it needs.
    #[must_use]
    pub fn tool(self) -> &'static str {
        match self {
            Self::Iptables(iptables::Backend::Nft) => "iptables-nft",
            Self::Iptables(iptables::Backend::Legacy) => "iptables-legacy",
            Self::Native => "nft",
        }
    }

    /// The sort of iptables that other people use beside it.
    #[must_use]
    pub fn iptables(self) -> iptables::Backend {
        match self {
            Self::Iptables(backend) => backend,
            Self::Native => iptables::Backend::Nft,
        }
    }
}

/// An agent that runs. Dropping it leaves what it did, as killing the true one does.
pub struct Istio {
    backend: Backend,
    _listener: ZdsServer,
    proxy: Peer,
}

impl fmt::Debug for Istio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Istio({:?})", self.backend)
    }
}

impl Istio {
    /// Listens at the node's ZDS socket, starts a proxy by `proxy`, and makes the rules of the node.
    ///
    /// # Errors
    /// When the proxy does not connect, or a tool refuses.
    pub fn start<P>(node: &Node, backend: Backend, proxy: impl FnOnce() -> Result<P>) -> Result<(Self, P)> {
        let listener = ZdsServer::bind(&node.zds_socket())?;
        let started = proxy()?;
        let proxy = listener.accept()?;
        proxy.snapshot_sent()?;
        host_rules(node.netns(), backend)?;
        let istio = Self {
            backend,
            _listener: listener,
            proxy,
        };
        Ok((istio, started))
    }

    /// Enrols a running pod. Its probes get another source from now on.
    ///
    /// # Errors
    /// When a tool or the proxy refuses.
    pub fn enrol(&self, node: &Node, pod: &Pod) -> Result<()> {
        pod_rules(pod.netns(), self.backend)?;
        self.proxy.add(pod)?;
        pod.ips()
            .iter()
            .try_for_each(|ip| probe_source(node.netns(), self.backend, *ip))
    }
}

/// Puts the rules of a pod into a network namespace.
///
/// # Errors
/// When a tool refuses.
pub fn pod_rules(netns: &Netns, backend: Backend) -> Result<()> {
    // What is there is fine.
    if routes(netns)?.is_empty() {
        iptables::route(netns)?;
    }
    match backend {
        Backend::Native => nft(netns, NATIVE),
        Backend::Iptables(backend) => Family::ALL
            .into_iter()
            .try_for_each(|family| iptables::restore(netns, backend, family, &iptables::rules(family, true))),
    }
}

/// What of the rules of a pod is there, as text for people.
///
/// # Errors
/// When a tool refuses.
pub fn remains(netns: &Netns, backend: Backend) -> Result<Vec<String>> {
    let mut found = routes(netns)?;
    for family in Family::ALL {
        let saved = iptables::saved(netns, backend.iptables(), family)?;
        let is_istios = |line: &String| line.split([' ', ':']).any(|word| CHAINS.contains(&word));
        found.extend(saved.into_iter().filter(is_istios));
    }
    let tables = within(netns, &["nft", "list", "tables"])?;
    found.extend(
        tables
            .lines()
            .filter(|line| line.contains("istio"))
            .map(str::to_owned),
    );
    Ok(found)
}

/// What of the policy rules and routes of a pod is there.
///
/// # Errors
/// When `ip` refuses.
pub fn routes(netns: &Netns) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for family in ["-4", "-6"] {
        for what in [
            ["rule", "show", "pref", "32764"],
            ["route", "show", "table", "100"],
        ] {
            let mut command = Command::new("ip");
            let output = command.args(["-n", netns.name(), family]).args(what).output()?;
            found.extend(String::from_utf8(output.stdout)?.lines().map(str::to_owned));
        }
    }
    Ok(found)
}

/// What of the node's rules and sets is there.
///
/// # Errors
/// When a tool refuses.
pub fn host_remains(netns: &Netns, backend: Backend) -> Result<Vec<String>> {
    let mut found = remains(netns, backend)?;
    for set in [SET4, SET6] {
        if netns.run(|| ipset::exists(set))?? {
            found.push(format!("set {set}"));
        }
    }
    Ok(found)
}

const CHAINS: [&str; 3] = ["ISTIO_PRERT", "ISTIO_OUTPUT", "ISTIO_POSTRT"];
const SET4: &str = "istio-inpod-probes-v4";
const SET6: &str = "istio-inpod-probes-v6";

/// Connections of the node's processes to enrolled pods get the source by which rules in pods know probes.
fn host_rules(netns: &Netns, backend: Backend) -> Result<()> {
    let Backend::Iptables(backend) = backend else {
        return nft(netns, HOST_NATIVE);
    };
    for (family, set, source) in [(Family::V4, SET4, PROBE4), (Family::V6, SET6, PROBE6)] {
        netns.run(|| ipset::create(set, family == Family::V6))??;
        let file = format!(
            "*nat\n:ISTIO_POSTRT - [0:0]\n-I POSTROUTING 1 -j ISTIO_POSTRT\n\
             -A ISTIO_POSTRT -m owner --socket-exists -p tcp -m set --match-set {set} dst -j SNAT --to-source {source}\n\
             COMMIT\n"
        );
        iptables::restore(netns, backend, family, &file)?;
    }
    Ok(())
}

fn probe_source(netns: &Netns, backend: Backend, ip: IpAddr) -> Result<()> {
    let set = if ip.is_ipv4() { SET4 } else { SET6 };
    match backend {
        Backend::Native => nft(
            netns,
            &format!("add element inet istio-ambient-nat {set} {{ {ip} }}\n"),
        ),
        Backend::Iptables(_) => netns.run(|| ipset::add(set, ip))?,
    }
}

fn nft(netns: &Netns, script: &str) -> Result<()> {
    feed(
        Command::new("ip").args(["netns", "exec", netns.name(), "nft", "-f", "-"]),
        script,
    )
}

/// Runs a tool in a network namespace and returns what it printed.
fn within(netns: &Netns, command: &[&str]) -> Result<String> {
    let mut tool = Command::new("ip");
    tool.args(["netns", "exec", netns.name()]).args(command);
    Ok(String::from_utf8(tool.output()?.stdout)?)
}

/// The rules of a pod in nft's words.
const NATIVE: &str = "
table inet istio-ambient-nat {
  chain prerouting { type nat hook prerouting priority -100; policy accept; jump istio-prerouting; }
  chain output { type nat hook output priority -100; policy accept; jump istio-output; }
  chain istio-prerouting {
    meta l4proto tcp ip saddr 169.254.7.127 counter accept
    meta l4proto tcp ip6 saddr fd16:9254:7127:1337:ffff:ffff:ffff:ffff counter accept
    ip daddr != 127.0.0.1 tcp dport != 15008 meta mark & 0xfff != 0x539 counter redirect to :15006
    ip6 daddr != ::1 tcp dport != 15008 meta mark & 0xfff != 0x539 counter redirect to :15006
  }
  chain istio-output {
    meta l4proto tcp ip daddr 169.254.7.127 counter accept
    meta l4proto tcp ip6 daddr fd16:9254:7127:1337:ffff:ffff:ffff:ffff counter accept
    oifname != lo udp dport 53 meta mark & 0xfff != 0x539 counter redirect to :15053
    ip daddr != 127.0.0.1 tcp dport 53 meta mark & 0xfff != 0x539 counter redirect to :15053
    ip6 daddr != ::1 tcp dport 53 meta mark & 0xfff != 0x539 counter redirect to :15053
    meta l4proto tcp meta mark & 0xfff == 0x111 counter accept
    oifname lo ip daddr != 127.0.0.1 counter accept
    oifname lo ip6 daddr != ::1 counter accept
    meta l4proto tcp ip daddr != 127.0.0.1 meta mark & 0xfff != 0x539 counter redirect to :15001
    meta l4proto tcp ip6 daddr != ::1 meta mark & 0xfff != 0x539 counter redirect to :15001
  }
}
table inet istio-ambient-mangle {
  chain prerouting { type filter hook prerouting priority -150; policy accept; jump istio-prerouting; }
  chain output { type route hook output priority -150; policy accept; jump istio-output; }
  chain istio-prerouting {
    meta mark & 0xfff == 0x539 counter ct mark set ct mark & 0xfffff000 | 0x111
  }
  chain istio-output {
    ct mark & 0xfff == 0x111 counter meta mark set ct mark
  }
}
table inet istio-ambient-raw {
  chain prerouting { type filter hook prerouting priority -300; policy accept; jump istio-prerouting; }
  chain output { type filter hook output priority -300; policy accept; jump istio-output; }
  chain istio-prerouting {
    udp sport 53 meta mark & 0xfff != 0x539 counter ct zone set 1
  }
  chain istio-output {
    udp dport 53 meta mark & 0xfff == 0x539 counter ct zone set 1
  }
}
";

/// The rules of the node in nft's words; here the kubelet is whoever is root.
const HOST_NATIVE: &str = "
table inet istio-ambient-nat {
  set istio-inpod-probes-v4 { type ipv4_addr; }
  set istio-inpod-probes-v6 { type ipv6_addr; }
  chain postrouting {
    type nat hook postrouting priority 100; policy accept;
    meta l4proto tcp meta skuid 0 ip daddr @istio-inpod-probes-v4 counter snat ip to 169.254.7.127
    meta l4proto tcp meta skuid 0 ip6 daddr @istio-inpod-probes-v6 counter snat ip6 to fd16:9254:7127:1337:ffff:ffff:ffff:ffff
  }
}
";

//! The rules which an iptables-based ambient node agent puts into a pod: what the benchmarks compare with, and what is taken
//! over from it. Written from the behaviour of Istio's node agent (cni/pkg/iptables), as our own restore files.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::netns::{Netns, feed};

/// Source of the kubelet's probes after the host's SNAT, which the pod lets pass.
pub(crate) const PROBE4: &str = "169.254.7.127";
/// The same for IPv6.
pub(crate) const PROBE6: &str = "fd16:9254:7127:1337:ffff:ffff:ffff:ffff";

/// An address family, as iptables tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// iptables.
    V4,
    /// ip6tables.
    V6,
}

/// Which part of the kernel iptables speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// nf_tables: what `iptables` is nowadays.
    Nft,
    /// ip_tables and ip6_tables: `iptables-legacy`.
    Legacy,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Name of a tool of iptables: `tool` is empty, `-restore` or `-save`.
    #[must_use]
    pub fn program(self, backend: Backend, tool: &str) -> String {
        let family = if self == Self::V4 { "iptables" } else { "ip6tables" };
        let backend = if backend == Backend::Nft { "nft" } else { "legacy" };
        format!("{family}-{backend}{tool}")
    }

    fn loopback(self) -> &'static str {
        match self {
            Self::V4 => "127.0.0.1/32",
            Self::V6 => "::1/128",
        }
    }

    fn probe(self) -> &'static str {
        match self {
            Self::V4 => PROBE4,
            Self::V6 => PROBE6,
        }
    }
}

/// Puts rules, policy rule and route for both families into a network namespace, as enrolment by iptables does.
///
/// # Errors
/// When a tool is missing or refuses.
pub fn enrol(netns: &Netns, dns: bool) -> Result<()> {
    route(netns)?;
    Family::ALL
        .into_iter()
        .try_for_each(|family| restore(netns, Backend::Nft, family, &rules(family, dns)))
}

/// Puts the policy rule and the route for both families into a network namespace.
///
/// # Errors
/// When `ip` refuses.
pub fn route(netns: &Netns) -> Result<()> {
    netns.ip("rule add fwmark 0x111/0xfff pref 32764 lookup 100\n\
         route replace local 0.0.0.0/0 dev lo table 100 scope host\n")?;
    netns.ip6(
        "rule add fwmark 0x111/0xfff pref 32764 lookup 100\n\
         route replace local ::/0 dev lo table 100\n",
    )
}

/// Adds what a restore file says to a network namespace, with the counters that it tells.
///
/// # Errors
/// When the tool is missing or refuses.
pub fn restore(netns: &Netns, backend: Backend, family: Family, file: &str) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", netns.name()]);
    command.args([&family.program(backend, "-restore"), "--noflush", "--counters"]);
    feed(&mut command, file)
}

/// The rules of a network namespace with their counters, one a line, and its chains without.
///
/// # Errors
/// When the tool is missing or refuses.
pub fn saved(netns: &Netns, backend: Backend, family: Family) -> Result<Vec<String>> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", netns.name()]);
    let output = command
        .args([&family.program(backend, "-save"), "--counters"])
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout)?;
    let line = |line: &str| match line.strip_prefix(':') {
        Some(chain) => chain.split(" [").next().unwrap_or_default().to_owned(),
        None => line.to_owned(),
    };
    Ok(text
        .lines()
        .filter(|text| !text.starts_with('#'))
        .map(line)
        .collect())
}

/// The restore file for one family, with or without capture of DNS.
#[must_use]
pub fn rules(family: Family, dns: bool) -> String {
    let tables = [Some(mangle()), Some(nat(family, dns)), dns.then(raw)];
    tables.into_iter().flatten().collect()
}

/// A table with two chains of the mesh, each jumped to from its built-in one.
fn table(name: &str, rules: &str) -> String {
    format!(
        "*{name}\n\
         :ISTIO_PRERT - [0:0]\n\
         :ISTIO_OUTPUT - [0:0]\n\
         -A PREROUTING -j ISTIO_PRERT\n\
         -A OUTPUT -j ISTIO_OUTPUT\n\
         {rules}COMMIT\n"
    )
}

/// Answers to what the proxy sent in a client's name must come back to the proxy.
fn mangle() -> String {
    table(
        "mangle",
        "-A ISTIO_PRERT -m mark --mark 0x539/0xfff -j CONNMARK --set-xmark 0x111/0xfff\n\
         -A ISTIO_OUTPUT -m connmark --mark 0x111/0xfff -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff\n",
    )
}

fn nat(family: Family, dns: bool) -> String {
    let (loopback, probe) = (family.loopback(), family.probe());
    let not_proxy = "-m mark ! --mark 0x539/0xfff";
    let mut rules = format!(
        "-A ISTIO_PRERT -s {probe} -p tcp -j ACCEPT\n\
         -A ISTIO_PRERT ! -d {loopback} -p tcp ! --dport 15008 {not_proxy} -j REDIRECT --to-ports 15006\n\
         -A ISTIO_OUTPUT -d {probe} -p tcp -j ACCEPT\n"
    );
    if dns {
        rules += &format!(
            "-A ISTIO_OUTPUT ! -o lo -p udp --dport 53 {not_proxy} -j REDIRECT --to-ports 15053\n\
             -A ISTIO_OUTPUT ! -d {loopback} -p tcp --dport 53 {not_proxy} -j REDIRECT --to-ports 15053\n"
        );
    }
    rules += &format!(
        "-A ISTIO_OUTPUT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT\n\
         -A ISTIO_OUTPUT ! -d {loopback} -o lo -j ACCEPT\n\
         -A ISTIO_OUTPUT ! -d {loopback} -p tcp {not_proxy} -j REDIRECT --to-ports 15001\n"
    );
    table("nat", &rules)
}

/// The proxy's own DNS questions and the application's are kept apart in conntrack.
fn raw() -> String {
    table(
        "raw",
        "-A ISTIO_OUTPUT -p udp --dport 53 -m mark --mark 0x539/0xfff -j CT --zone 1\n\
         -A ISTIO_PRERT -p udp --sport 53 -m mark ! --mark 0x539/0xfff -j CT --zone 1\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_adds_a_table_and_two_rules_and_nothing_else() {
        for family in [Family::V4, Family::V6] {
            let (without, with) = (rules(family, false), rules(family, true));
            assert!(!without.contains("15053") && !without.contains("*raw"));
            assert_eq!(with.matches("15053").count(), 2);
            assert_eq!(with.matches("COMMIT").count(), 3);
            let kept = with.lines().filter(|line| without.contains(*line)).count();
            assert!(kept >= without.lines().count());
        }
    }

    #[test]
    fn rules_of_one_family_name_no_address_of_the_other() {
        assert!(!rules(Family::V4, true).contains("::1"));
        assert!(!rules(Family::V6, true).contains("127.0.0.1"));
    }
}

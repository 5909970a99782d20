//! The program `inbound`, asked directly (BPF_PROG_TEST_RUN): the verdict of each rule.

use std::net::SocketAddr;

use anyhow::Result;
use serde_json::Value;
use tests::process::Process;
use tests::sys::bpf::{Lookup, Verdict};
use tests::{Mesh, Pins, programs, requires};

/// What `inbound` of the server says of a connection.
fn verdict(mesh: &Mesh, protocol: u32, source: &str, destination: &str) -> Result<Verdict> {
    let cookie = mesh.server.netns().cookie()?.to_string();
    let link = Pins::of(&mesh.node).links("pod").join(cookie);
    let packet = Lookup {
        protocol,
        source: source.parse()?,
        destination: destination.parse()?,
    };
    Ok(packet.ask(&link)?)
}

/// `IPPROTO_TCP` and `IPPROTO_UDP`.
const TCP: u32 = 6;
const UDP: u32 = 17;

#[test]
fn each_rule_has_its_verdict() -> Result<()> {
    if !requires::root("each_rule_has_its_verdict") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let x = mesh.node.subnet();
    let steered = Verdict::Steered;
    let table = [
        ("a pod outside", TCP, "10.X.0.4:4000", "10.X.0.3:80", steered),
        (
            "a pod outside",
            TCP,
            "[fd00:X::4]:4000",
            "[fd00:X::3]:80",
            steered,
        ),
        ("a pod in the mesh", TCP, "10.X.0.2:4000", "10.X.0.3:80", steered),
        (
            "the node, but no connection of it",
            TCP,
            "10.X.0.1:4000",
            "10.X.0.3:80",
            steered,
        ),
        ("from far away", TCP, "192.0.2.1:4000", "10.X.0.3:80", steered),
        (
            "an unknown own address",
            TCP,
            "10.X.0.4:4000",
            "10.X.0.200:80",
            steered,
        ),
        (
            "the proxy's outbound port",
            TCP,
            "10.X.0.4:4000",
            "10.X.0.3:15001",
            steered,
        ),
        (
            "the proxy's inbound port",
            TCP,
            "[fd00:X::4]:4000",
            "[fd00:X::3]:15006",
            steered,
        ),
        ("HBONE", TCP, "10.X.0.4:4000", "10.X.0.3:15008", Verdict::Passed),
        (
            "HBONE",
            TCP,
            "[fd00:X::4]:4000",
            "[fd00:X::3]:15008",
            Verdict::Passed,
        ),
        ("loopback", TCP, "127.0.0.1:4000", "127.0.0.1:80", Verdict::Passed),
        ("loopback", TCP, "[::1]:4000", "[::1]:80", Verdict::Passed),
        (
            "from loopback",
            TCP,
            "127.0.0.1:4000",
            "10.X.0.3:80",
            Verdict::Passed,
        ),
        (
            "from loopback",
            TCP,
            "[::1]:4000",
            "[fd00:X::3]:80",
            Verdict::Passed,
        ),
        ("to itself", TCP, "10.X.0.3:4000", "10.X.0.3:80", Verdict::Passed),
        (
            "to itself",
            TCP,
            "[fd00:X::3]:4000",
            "[fd00:X::3]:80",
            Verdict::Passed,
        ),
        (
            "from its own other address",
            TCP,
            "10.X.0.3:4000",
            "10.X.0.200:80",
            Verdict::Passed,
        ),
        ("not TCP", UDP, "10.X.0.4:4000", "10.X.0.3:80", Verdict::Passed),
    ];
    let ask = |mesh: &Mesh, protocol, source: &str, destination: &str| {
        let [source, destination] = [source, destination].map(|text| text.replace('X', &x.to_string()));
        verdict(mesh, protocol, &source, &destination)
    };
    for (what, protocol, source, destination, expected) in table {
        assert_eq!(
            ask(&mesh, protocol, source, destination)?,
            expected,
            "{what}: {source}"
        );
    }
    mesh.proxy.process().kill();
    for (what, protocol, source, destination, expected) in table {
        let expected = if expected == steered {
            Verdict::Dropped
        } else {
            expected
        };
        let got = ask(&mesh, protocol, source, destination)?;
        assert_eq!(got, expected, "without a proxy: {what}: {source}");
    }
    Ok(())
}

#[test]
fn a_trusted_flow_passes_and_its_neighbours_do_not() -> Result<()> {
    if !requires::root("a_trusted_flow_passes_and_its_neighbours_do_not") {
        return Ok(());
    }
    let mesh = Mesh::new()?;
    let _server = mesh.server.serve(&["--listen", "[::]:80"])?;
    let steered = Verdict::Steered;
    for ip in [mesh.server.v4(), mesh.server.v6()] {
        let destination = SocketAddr::new(ip, 80).to_string();
        let mut command = mesh.node.command("load", &programs::find("meshgate-load")?)?;
        let mut probe = Process::start_talking("a probe", command.args(["hold", "1", &destination]))?;
        probe.json::<Value>()?;
        let trusted = mesh.maps().dump("TRUSTED")?;
        let source: SocketAddr = trusted[0]["flow"]["source"]
            .as_str()
            .unwrap_or_default()
            .parse()?;
        let ask = |source: SocketAddr, port| {
            verdict(
                &mesh,
                TCP,
                &source.to_string(),
                &SocketAddr::new(ip, port).to_string(),
            )
        };
        let next = SocketAddr::new(source.ip(), source.port() ^ 1);
        assert_eq!(ask(source, 80)?, Verdict::Passed);
        assert_eq!(ask(source, 81)?, steered);
        assert_eq!(ask(next, 80)?, steered);
        drop(probe);
        mesh.maps().wait_for_count("TRUSTED", 0)?;
        assert_eq!(ask(source, 80)?, steered);
    }
    Ok(())
}

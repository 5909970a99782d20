//! The real ztunnel answers: names of services that it knows, and all others by its own name server.

use std::net::IpAddr;

use anyhow::{Context, Result};
use serde_json::json;
use tests::dns::{MANY, NameServer, Zone};
use tests::ztunnel::{Names, VARIABLE, Workload, Ztunnel};
use tests::{Agent, Node, PodSpec, requires};

#[test]
fn ztunnel_answers_in_the_name_servers_name() -> Result<()> {
    let test = "ztunnel_answers_in_the_name_servers_name";
    let (true, Some(program)) = (requires::root(test), requires::program(test, VARIABLE)) else {
        return Ok(());
    };
    let node = Node::new()?;
    let client = node.pod_with(PodSpec::new("client").ambient())?;
    let outside = node.pod("outside")?;
    let servers = NameServer::start(&outside, outside.ips())?;
    node.apply(&[&client, &outside])?;
    let source = format!("file:{}", node.manifests().display());
    let mut agent = Agent::start_with(&node, &source, &["--dns-capture", "true"])?;
    let workloads = [(&client, true), (&outside, false)].map(|(pod, mesh)| Workload { pod, mesh });
    let vips: [IpAddr; 2] = ["10.96.0.80".parse()?, "fd00:96::80".parse()?];
    let names = Names {
        name_server: outside.v4(),
        service: "web",
        vips,
    };
    let ztunnel = Ztunnel::start_with(&node, "ztunnel", &program, &workloads, Some(names))?;
    let enabled = agent.wait_for_pod_state(client.uid(), "enabled");
    enabled.with_context(|| ztunnel.log())?;

    let ask = |server: &str, more: &[&str]| {
        let told = client.load(&[&["dns", server], more].concat())?;
        Ok::<_, anyhow::Error>(told[0].clone())
    };
    let (v4, v6) = (outside.v4(), outside.v6());
    for server in [
        format!("{v4}:53"),
        format!("[{v6}]:53"),
        format!("[::ffff:{v4}]:53"),
    ] {
        for way in ["connected", "messages", "stream"] {
            for (name, address) in [
                ("web.default.svc.cluster.local", vips[0]),
                ("example.test", Zone::OUTSIDE.v4.into()),
            ] {
                let told = ask(&server, &["--way", way, "--name", name])?;
                assert_eq!(
                    told["first"],
                    json!(address),
                    "{server} {way} {name}: {told}\n{}",
                    ztunnel.log()
                );
                if way != "stream" {
                    assert_eq!(told["from"], json!(server), "{way}: {told}");
                }
            }
        }
    }
    let several = [format!("{v4}:53"), "192.0.2.53:53".to_owned(), format!("{v4}:53")];
    let told = client.load(&[
        "dns",
        &several[0],
        &several[1],
        &several[2],
        "--way",
        "messages",
        "--name",
        "example.test",
    ])?;
    for (number, server) in several.iter().enumerate() {
        assert_eq!(told[number]["from"], json!(server), "{told}");
    }
    let server = format!("{v4}:53");
    let big = ask(&server, &["--name", "big.test", "--limit", "1232"])?;
    assert_eq!(big["cut"], true, "{big}");
    let big = ask(&server, &["--name", "big.test", "--way", "stream"])?;
    assert_eq!(big["count"], json!(MANY), "{big}");
    let service = ask(&server, &["--name", "_http._tcp.web.test", "--kind", "srv"])?;
    assert_eq!(
        (&service["code"], &service["count"]),
        (&json!(0), &json!(1)),
        "{service}"
    );
    for (from, name) in servers.asked() {
        assert_eq!(from.ip(), client.v4(), "{name}");
        assert!(!name.contains("cluster.local"), "{name}");
    }
    servers.asked().pop().context("ztunnel asked nobody")?;
    Ok(())
}

//! The fixtures themselves: pods on a node reach each other, and a node leaves nothing behind.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use rustix::process::Signal;
use serde_json::Value;
use tests::containerd::{Main, Network};
use tests::process::Process;
use tests::spec::Families;
use tests::{Containerd, Node, PodSpec, requires};

#[test]
fn pods_and_the_node_reach_each_other_over_the_bridge() -> Result<()> {
    if !requires::root("pods_and_the_node_reach_each_other_over_the_bridge") {
        return Ok(());
    }
    let node = Node::new()?;
    let (client, server) = (node.pod("client")?, node.pod("server")?);
    let _server = server.serve(&["--listen", "[::]:8080", "--banner", "hello"])?;
    for (from, to) in [(client.v4(), server.v4()), (client.v6(), server.v6())] {
        let seen = client.load(&["connect", &SocketAddr::new(to, 8080).to_string()])?;
        assert_eq!(seen["connect"], "ok", "{seen}");
        assert_eq!(seen["reply"]["banner"], "hello", "{seen}");
        for way in ["accept", "getpeername", "so_peername"] {
            let peer: SocketAddr = seen["reply"][way].as_str().unwrap_or_default().parse()?;
            assert_eq!(peer.ip().to_canonical(), from, "{seen}");
        }
        assert_eq!(seen["reply"]["netns"], server.netns().cookie()?, "{seen}");
        let probe = node.load(&["connect", &SocketAddr::new(to, 8080).to_string()])?;
        assert_eq!(probe["reply"]["banner"], "hello", "{probe}");
    }
    let closed = client.load(&["connect", &SocketAddr::new(server.v4(), 9).to_string()])?;
    assert_eq!(closed["connect"], "ECONNREFUSED", "{closed}");
    Ok(())
}

#[test]
fn a_container_runtime_makes_pods_and_is_gone_with_its_node() -> Result<()> {
    if !requires::container_runtime("a_container_runtime_makes_pods_and_is_gone_with_its_node") {
        return Ok(());
    }
    let node = Node::new()?;
    let parts = node.parts();
    let mut containerd = Containerd::start(&node, &Network::new(&node, Main::Bridge))?;
    let mut pod = containerd.pod(&node, PodSpec::new("web"))?.host_port(8080, 80);
    pod.run()?;
    pod.serve("server", &["--listen", "[::]:80", "--banner", "hello"])?;
    // What it made goes on without it.
    containerd.restart()?;
    let ip = |text: String| text.parse::<IpAddr>();
    let direct = pod.ips().iter().map(|ip| SocketAddr::new(*ip, 80));
    let node_port = SocketAddr::new(ip(format!("10.{}.0.1", node.subnet()))?, 8080);
    for destination in direct.chain([node_port]) {
        let seen = node.load(&["connect", &destination.to_string()])?;
        assert_eq!(seen["reply"]["banner"], "hello", "{destination}: {seen}");
        assert_eq!(seen["reply"]["netns"], pod.cookie()?, "{destination}: {seen}");
    }
    let cgroup = std::fs::read_to_string(format!("/proc/{}/cgroup", pod.pause_pid()?))?;
    let own = format!("0::/{}/kubepods/pod{}/", node.name(), pod.uid());
    assert!(cgroup.contains(&own), "{cgroup}");
    drop((containerd, node));
    assert_eq!(parts.remains(), [""; 0]);
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    assert!(!mounts.contains(&parts.name), "{mounts}");
    Ok(())
}

#[test]
fn a_pod_has_the_families_asked_for_and_processes_of_its_own() -> Result<()> {
    if !requires::root("a_pod_has_the_families_asked_for_and_processes_of_its_own") {
        return Ok(());
    }
    let node = Node::new()?;
    let v4 = node.pod_with(PodSpec::new("v4").families(Families::V4))?;
    let v6 = node.pod_with(PodSpec::new("v6").families(Families::V6))?;
    assert!(v4.ips().iter().all(IpAddr::is_ipv4) && v6.ips().iter().all(IpAddr::is_ipv6));
    assert_eq!(
        v4.load(&["connect", "[fd00:ffff::1]:80"])?["connect"],
        "ENETUNREACH"
    );
    assert_eq!(v6.load(&["connect", "192.0.2.1:80"])?["connect"], "ENETUNREACH");
    let cgroup = std::fs::read_to_string(format!("/proc/{}/cgroup", v4.pause_pid()))?;
    let own = format!("/kubepods/pod{}/", v4.uid());
    assert!(
        cgroup
            .lines()
            .any(|line| line.starts_with("0::") && line.contains(&own)),
        "{cgroup}"
    );
    assert_ne!(v4.netns().cookie()?, v6.netns().cookie()?);
    let address = v4.in_netns(|| TcpListener::bind((v4.v4(), 0)).and_then(|l| l.local_addr()))??;
    assert_eq!(address.ip(), v4.v4());
    assert!(TcpStream::connect_timeout(&address, std::time::Duration::from_millis(50)).is_err());
    Ok(())
}

#[test]
fn manifests_appear_and_change_in_one_step() -> Result<()> {
    if !requires::root("manifests_appear_and_change_in_one_step") {
        return Ok(());
    }
    let node = Node::new()?;
    let mut pod = node.pod_with(PodSpec::new("a").ambient())?;
    node.apply(&[&pod])?;
    let read = || -> Result<Value> {
        Ok(serde_saphyr::from_str(&std::fs::read_to_string(
            node.manifests().join(pod.file_name()),
        )?)?)
    };
    assert_eq!(
        read()?["metadata"]["labels"]["istio.io/dataplane-mode"],
        "ambient"
    );
    assert_eq!(read()?["status"]["podIPs"][1]["ip"], pod.v6().to_string());
    let file = node.manifests().join(pod.file_name());
    pod.set_ambient(false);
    node.apply(&[&pod])?;
    assert!(std::fs::read_to_string(&file)?.contains("none"));
    node.delete(&pod)?;
    assert!(!file.exists());
    Ok(())
}

#[test]
fn a_dropped_node_leaves_nothing_behind() -> Result<()> {
    if !requires::root("a_dropped_node_leaves_nothing_behind") {
        return Ok(());
    }
    let node = Node::new()?;
    let pod = node.pod("a")?;
    let mut server = pod.serve(&["--listen", "[::]:80"])?;
    let parts = node.parts();
    assert_eq!(parts.remains().len(), 5, "{:?}", parts.remains());
    drop(node);
    assert_eq!(parts.remains(), Vec::<String>::new());
    assert!(!server.wait()?.success(), "the server was killed");
    // A pod that outlives its node has nothing left to remove, and does not mind.
    drop(pod);
    Ok(())
}

#[test]
fn what_a_killed_run_left_is_swept_by_the_next() -> Result<()> {
    let name = "what_a_killed_run_left_is_swept_by_the_next";
    if !requires::root(name) {
        return Ok(());
    }
    let me = std::env::current_exe()?;
    let child = |role: &str| {
        let mut command = Command::new(&me);
        command
            .args(["--exact", "a_run_of_its_own", "--nocapture", "--ignored"])
            .env("FIXTURE_ROLE", role);
        command
    };
    let mut killed = Process::start_talking("a run", &mut child("stays"))?;
    let left = loop {
        if let Some(name) = killed.line()?.strip_prefix("node ") {
            break name.to_owned();
        }
    };
    killed.signal(Signal::KILL)?;
    killed.wait()?;
    let remains = |name: &str| std::path::Path::new("/run/netns").join(name).exists();
    assert!(remains(&left) && remains(&format!("{left}.a")));
    let next = child("ends").output()?;
    assert!(next.status.success(), "{}", String::from_utf8_lossy(&next.stdout));
    assert!(!remains(&left) && !remains(&format!("{left}.a")));
    Ok(())
}

/// Not a test: the body of the processes that the test above starts.
#[test]
#[ignore = "run by what_a_killed_run_left_is_swept_by_the_next"]
fn a_run_of_its_own() -> Result<()> {
    let node = Node::new()?;
    let _pod = node.pod("a")?;
    if std::env::var("FIXTURE_ROLE").as_deref() == Ok("stays") {
        println!("\nnode {}", node.name());
        std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new())?;
    }
    Ok(())
}

#[test]
fn a_pod_is_made_in_less_than_a_tenth_of_a_second() -> Result<()> {
    if !requires::root("a_pod_is_made_in_less_than_a_tenth_of_a_second") {
        return Ok(());
    }
    let node = Node::new()?;
    let began = Instant::now();
    let pods = (0..10)
        .map(|number| node.pod(&format!("p{number}")))
        .collect::<Result<Vec<_>>>()?;
    let each = began.elapsed() / pods.len() as u32;
    eprintln!("{each:?} a pod");
    // Ten times the limit: the machine may be busy, and this is about an order of magnitude.
    assert!(each.as_millis() < 1000, "{each:?} a pod");
    Ok(())
}

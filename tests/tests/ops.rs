//! Health, metrics and log of a real agent, from outside.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use agent_common::counters::PodCounters;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::cni::Plugin;
use tests::scrape::{HEALTH, MONITORING, get};
use tests::wait::{LIMIT, asking};
use tests::{Agent, Mesh, Node, Pod, PodSpec, Proxy, Scrape, requires};

/// Scrapes until the metrics satisfy `check`.
fn scrape_until(node: &Node, what: &str, check: impl Fn(&Scrape) -> bool) -> Result<Scrape> {
    asking(LIMIT, what, || Ok(Some(Scrape::of(node)?).filter(&check)))
}

#[test]
fn the_agent_is_healthy_at_once_and_ready_when_all_pods_are_known() -> Result<()> {
    if !requires::root("the_agent_is_healthy_at_once_and_ready_when_all_pods_are_known") {
        return Ok(());
    }
    let node = Node::new()?;
    let kubeconfig = node.run_dir().join("absent.kubeconfig");
    let flags = ["--kubeconfig", kubeconfig.to_str().context("UTF-8")?];
    let mut agent = Agent::stopped(&node, "kube", &flags)?;
    agent.spawn()?;
    agent.wait_for("the missing kubeconfig", |status| {
        status.problems.first().cloned()
    })?;
    assert_eq!(get(&node, HEALTH, "/healthz", "")?.status, 200);
    let waiting = get(&node, HEALTH, "/readyz", "")?;
    assert_eq!(waiting.status, 503);
    assert!(waiting.body.starts_with("watch: not all pods"), "{waiting:?}");
    assert!(!waiting.body.contains("install"), "{waiting:?}");
    let told = agent.said(&["status"])?.1;
    assert!(told.contains("ready         NO"), "{told}");
    assert!(told.contains("not ready     watch: not all pods"), "{told}");
    drop(agent);

    let agent = Agent::start(&node)?;
    assert_eq!(get(&node, HEALTH, "/readyz", "")?.status, 200);
    assert_eq!(get(&node, HEALTH, "/healthz", "")?.status, 200);
    assert_eq!(get(&node, HEALTH, "/metrics", "")?.status, 404);
    // The account is written a moment after the change.
    asking(LIMIT, "the status to say so", || {
        let told = agent.said(&["status"])?.1;
        Ok(told.contains("ready         yes").then_some(()))
    })?;
    let status = agent.cli_json(&["status"])?;
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let names: Vec<_> = conditions.map(|condition| &condition["name"]).collect();
    assert_eq!(names, ["pins", "plugin socket", "proxy socket", "watch"]);
    Ok(())
}

#[test]
fn half_requests_keep_no_other_client_waiting() -> Result<()> {
    if !requires::root("half_requests_keep_no_other_client_waiting") {
        return Ok(());
    }
    let node = Node::new()?;
    let agent = Agent::start(&node)?;
    let half = |port: u16| {
        node.netns().run(move || -> Result<TcpStream> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            write!(stream, "GET /readyz HTTP/1.1\r\nHost: ")?;
            Ok(stream)
        })?
    };
    for port in [HEALTH, MONITORING] {
        // More than are served at once, and than wait besides.
        let halves = (0..80).map(|_| half(port)).collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        let path = if port == HEALTH { "/readyz" } else { "/metrics" };
        assert_eq!(get(&node, port, path, "")?.status, 200);
        // Half a request is waited for five seconds.
        ensure!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        drop(halves);
    }
    drop(agent);
    Ok(())
}

#[test]
fn metrics_follow_connections_pods_plugin_calls_and_proxies() -> Result<()> {
    if !requires::root("metrics_follow_connections_pods_plugin_calls_and_proxies") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let before = scrape_until(&mesh.node, "a proxy with its pods", |scrape| {
        scrape.value("meshgate_proxies_synced") == 1.0
    })?;
    let captured = r#"meshgate_decisions_total{reason="outbound_captured"}"#;
    for (key, value) in [
        ("ztunnel_connected", 1.0),
        ("istio_cni_install_ready", 1.0),
        ("meshgate_source_current", 1.0),
        (r#"meshgate_pods{state="enabled"}"#, 2.0),
        (r#"meshgate_pods{state="outside"}"#, 1.0),
        (r#"meshgate_links_attached{target="pod"}"#, 2.0),
        (r#"meshgate_links_expected{target="pod"}"#, 2.0),
        (r#"meshgate_map_entries{map="PODS"}"#, 2.0),
        (r#"nodeagent_reconcile_events_total{type="delete"}"#, 0.0),
        (captured, 0.0),
    ] {
        assert_eq!(before.value(key), value, "{key}");
    }
    for target in ["node", "proxy"] {
        let of = |sort: &str| before.value(&format!("meshgate_links_{sort}{{target=\"{target}\"}}"));
        assert!(
            of("attached") > 0.0 && of("attached") == of("expected"),
            "{target}"
        );
    }
    assert!(before.value("process_resident_memory_bytes") > 1e6);
    assert!(before.value("meshgate_source_last_event_timestamp_seconds") > 1.7e9);

    mesh.check()?;
    let busy = Scrape::of(&mesh.node)?;
    assert_eq!(busy.value(captured), 200.0);

    // The plugin's calls, by their answers.
    let plugin = Plugin::new(&mesh.node)?;
    let pod = mesh.node.sandbox(PodSpec::new("new").ambient())?;
    mesh.node.apply(&[&pod])?;
    let answer = plugin.start_add(&pod)?.wait()?;
    assert!(answer.success, "{answer:?}");
    let unknown = mesh.node.sandbox(PodSpec::new("unknown").ambient())?;
    assert!(!plugin.start_add(&unknown)?.wait()?.success);
    let asked = scrape_until(&mesh.node, "the plugin's second answer", |scrape| {
        scrape.value(r#"istio_cni_plugin_requests_total{response_code="500"}"#) >= 1.0
    })?;
    assert_eq!(
        asked.value(r#"istio_cni_plugin_requests_total{response_code="200"}"#),
        1.0
    );
    assert_eq!(
        asked.value(r#"meshgate_cni_admission_seconds_count{result="captured"}"#),
        1.0
    );
    assert_eq!(
        asked.value("meshgate_enrolment_seconds_count") - before.value("meshgate_enrolment_seconds_count"),
        1.0
    );

    // What a pod counted stays in the node's sum when the pod goes.
    mesh.node.delete(&mesh.client)?;
    mesh.agent.wait_for("the pod to be gone", |status| {
        let is_gone = status.pods.iter().all(|pod| pod.uid != mesh.client.uid());
        is_gone.then_some(())
    })?;
    let gone = Scrape::of(&mesh.node)?;
    assert_eq!(gone.value(captured), 200.0);
    assert!(gone.value(r#"nodeagent_reconcile_events_total{type="delete"}"#) > 0.0);
    mesh.agent.restart()?;
    assert_eq!(Scrape::of(&mesh.node)?.value(captured), 200.0);

    drop(mesh.proxy);
    scrape_until(&mesh.node, "the proxy to be gone", |scrape| {
        scrape.value("ztunnel_connected") == 0.0
    })
    .map(drop)
}

/// Names in the first column of the table of metrics.
fn documented() -> Result<BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let section = text.split("\n## ").find(|section| section.starts_with("Metrics"));
    let lines = section.context("no section on metrics")?.lines();
    let names = lines.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    Ok(names.map(str::to_owned).collect())
}

#[test]
fn every_metric_is_documented_and_the_formats_keep_their_rules() -> Result<()> {
    if !requires::root("every_metric_is_documented_and_the_formats_keep_their_rules") {
        return Ok(());
    }
    let node = Node::new()?;
    let pod = node.pod_with(PodSpec::new("a").ambient())?;
    node.apply(&[&pod])?;
    let mut agent = Agent::start_with(
        &node,
        &format!("file:{}", node.manifests().display()),
        &["--pod-metrics"],
    )?;
    let _proxy = Proxy::start(&node, "proxy", &[])?;
    agent.wait_for_pod_state(pod.uid(), "enabled")?;
    let open = get(
        &node,
        MONITORING,
        "/metrics",
        "application/openmetrics-text;version=1.0.0,*/*;q=0.1",
    )?;
    assert!(
        open.headers.contains("application/openmetrics-text"),
        "{}",
        open.headers
    );
    assert!(open.body.ends_with("# EOF\n"), "{}", open.body);
    let open = Scrape::parse(&open.body)?;
    let plain = get(&node, MONITORING, "/metrics", "*/*")?;
    assert!(
        plain.headers.contains("text/plain; version=0.0.4"),
        "{}",
        plain.headers
    );
    let plain = Scrape::parse(&plain.body)?;
    let names: BTreeSet<String> = plain.types.keys().cloned().collect();
    assert_eq!(names, documented()?, "docs/metrics.md");
    assert_eq!(open.types.len(), names.len());
    let own = format!(
        r#"meshgate_pod_decisions_total{{namespace="default",pod="a",uid="{}""#,
        pod.uid()
    );
    let counters = PodCounters::default().fields().count();
    assert_eq!(plain.keys(&own).count(), counters, "{own}");
    Ok(())
}

#[test]
fn a_port_in_use_is_told_and_ports_can_be_moved_and_closed() -> Result<()> {
    if !requires::root("a_port_in_use_is_told_and_ports_can_be_moved_and_closed") {
        return Ok(());
    }
    let node = Node::new()?;
    let source = format!("file:{}", node.manifests().display());
    let _taken = node
        .netns()
        .run(|| std::net::TcpListener::bind(("127.0.0.1", MONITORING)))??;
    let refused = Agent::start_with(&node, &source, &[])
        .err()
        .context("it started")?;
    let told = format!("{refused:#}");
    for part in ["[::]:15014", "/metrics", "--monitoring-port"] {
        ensure!(told.contains(part), "{part} in {told}");
    }
    let _agent = Agent::start_with(
        &node,
        &source,
        &["--monitoring-port", "15015", "--health-address", "127.0.0.1"],
    )?;
    assert_eq!(get(&node, 15015, "/metrics", "")?.status, 200);
    assert_eq!(get(&node, HEALTH, "/readyz", "")?.status, 200);
    drop(_agent);
    let _agent = Agent::start_with(&node, &source, &["--monitoring-port", "0", "--health-port", "-1"])?;
    assert!(get(&node, HEALTH, "/healthz", "").is_err());
    Ok(())
}

/// Takes a pod into the mesh, and returns the records of the log that have its UID.
fn records_of_enrolment(node: &Node, agent: &mut Agent, name: &str) -> Result<(Pod, Vec<Value>)> {
    let pod = node.pod_with(PodSpec::new(name).ambient())?;
    node.apply(&[&pod])?;
    agent.wait_for_pod_state(pod.uid(), "enabled")?;
    let log = agent.log();
    let records = log.lines().filter_map(|line| serde_json::from_str(line).ok());
    let of_pod = records
        .filter(|record: &Value| record["uid"] == pod.uid())
        .collect();
    Ok((pod, of_pod))
}

#[test]
fn the_log_changes_its_levels_while_the_agent_runs_and_names_pods_in_fields() -> Result<()> {
    if !requires::root("the_log_changes_its_levels_while_the_agent_runs_and_names_pods_in_fields") {
        return Ok(());
    }
    let node = Node::new()?;
    let source = format!("file:{}", node.manifests().display());
    let mut agent = Agent::start_with(&node, &source, &["--log-as-json", "--log-level", "warn"])?;
    let _proxy = Proxy::start(&node, "proxy", &[])?;
    let mode = fs::metadata(agent.run_dir().join("control.sock"))?
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let (_quiet, none) = records_of_enrolment(&node, &mut agent, "quiet")?;
    assert!(none.is_empty(), "{none:?}");
    assert_eq!(agent.said(&["log-level"])?.1, "warn\n");
    let changed = agent.cli_json(&["log-level", "default:warn,enrol:info"])?;
    assert_eq!(changed["log_level"], "warn,agent::enrol=info");
    let (pod, records) = records_of_enrolment(&node, &mut agent, "loud")?;
    let record = records.first().context("no record about the pod")?;
    for (field, value) in [
        ("pod", pod.name()),
        ("namespace", pod.namespace()),
        ("level", "INFO"),
        ("message", "captured and served"),
    ] {
        assert_eq!(record[field], value, "{record}");
    }

    let (code, _, refused) = agent.said(&["log-level", "loud"])?;
    assert_eq!(code, Some(1));
    assert!(refused.contains("\"loud\" is no log level"), "{refused}");
    assert_eq!(agent.said(&["log-level"])?.1, "warn,agent::enrol=info\n");
    agent.kill9();
    let (code, _, away) = agent.said(&["log-level"])?;
    assert_eq!(code, Some(1));
    assert!(
        away.contains("control.sock") && away.contains("--run-dir"),
        "{away}"
    );
    Ok(())
}

#[test]
fn the_programs_tell_each_decision_when_they_are_asked_to() -> Result<()> {
    if !requires::root("the_programs_tell_each_decision_when_they_are_asked_to") {
        return Ok(());
    }
    let node = Node::new()?;
    let source = format!("file:{}", node.manifests().display());
    let flags = ["--log-as-json", "--program-log"];
    let mut agent = Agent::start_with(&node, &source, &flags)?;
    let _proxy = Proxy::start(&node, "proxy", &[])?;
    let pod = node.pod_with(PodSpec::new("told").ambient())?;
    let outside = node.pod("outside")?;
    node.apply(&[&pod, &outside])?;
    agent.wait_for_pod_state(pod.uid(), "enabled")?;
    let _server = outside.serve(&["--listen", "[::]:9000", "--reply", "echo"])?;
    let pods = agent.cli_json(&["pods"])?;
    let row = pods
        .as_array()
        .context("rows")?
        .iter()
        .find(|row| row["name"] == "told");
    let cookie = row.context("no row of the pod")?["netns_cookie"].to_string();
    for server in outside.ips() {
        pod.load(&["crr", &SocketAddr::new(*server, 9000).to_string(), "--count", "1"])?;
        let told = asking(LIMIT, "the connection in the log", || {
            let log = agent.log();
            let records = log
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let peer = match server {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => *v6,
            };
            let told =
                records.filter(|record| record["peer"] == peer.to_string() && record["port"] == "9000");
            let told: Vec<Value> = told.filter(|record| record["netns_cookie"] == cookie).collect();
            Ok((told.len() == 2).then_some(told))
        })?;
        assert_eq!(told[0]["message"], "outbound_captured", "{told:?}");
        assert_eq!(told[1]["message"], "outbound_handed_over", "{told:?}");
    }
    Ok(())
}

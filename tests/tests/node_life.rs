//! A full node: what an agent that starts again costs and changes, and how quickly many pods join and leave.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tests::cni::Plugin;
use tests::sys::bpf::Pinned;
use tests::{FullNode, Pins, Pod, PodSpec, requires};

/// Pods of the full node.
const PODS: usize = 250;

/// Generous: these tests run beside others, unoptimized. Figures are in docs/benchmarks.md.
const QUICK: Duration = Duration::from_secs(5);

/// Everything that a restart must not change, by what it is.
type Snapshot = BTreeMap<String, Vec<u8>>;

/// Rows of the maps, ids of the links, and settings of the pods' namespaces.
fn snapshot(full: &FullNode) -> Result<Snapshot> {
    let pins = Pins::of(&full.node);
    let mut found = Snapshot::new();
    for name in ["PODS", "ADDRESSES", "NAMES", "NETWORKS", "SETTINGS", "LISTENERS"] {
        let map = pins.map(name)?;
        for key in map.keys()? {
            let value = map.get(&key)?;
            found.insert(format!("{name} {key:?}"), value);
        }
    }
    for pin in link_pins(&pins) {
        let id = Pinned::open(&pin)?
            .number("link_id")
            .context("a link without an id")?;
        found.insert(pin.display().to_string(), id.to_string().into_bytes());
    }
    for pod in &full.pods {
        for setting in ["tcp_migrate_req", "tcp_tw_reuse", "tcp_fwmark_accept"] {
            let path = format!("/proc/sys/net/ipv4/{setting}");
            let value = pod.in_netns(|| fs::read(&path))??;
            found.insert(format!("{} {setting}", pod.name()), value);
        }
    }
    Ok(found)
}

fn link_pins(pins: &Pins) -> Vec<std::path::PathBuf> {
    let in_folder = |folder: &str| {
        let folder = pins.links(folder);
        pins_in(&folder)
    };
    ["node", "proxy", "pod"].into_iter().flat_map(in_folder).collect()
}

fn pins_in(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let pins = entries.flat_map(|entry| match entry.path() {
        path if path.is_dir() => pins_in(&path),
        path => vec![path],
    });
    pins.collect()
}

fn difference(now: &Snapshot, before: &Snapshot) -> String {
    let keys = now.keys().chain(before.keys());
    let changed = keys.filter(|key| now.get(*key) != before.get(*key)).take(5);
    changed
        .map(|key| format!("{key}: {:?}, was {:?}", now.get(key), before.get(key)))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Calls `ADD` for a pod again and again until `over`; returns how often, and the longest.
fn admitted(plugin: &Plugin, pod: &Pod, over: &AtomicBool) -> Result<(usize, Duration)> {
    let (mut calls, mut longest) = (0, Duration::ZERO);
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let answer = plugin.add(pod)?;
        ensure!(answer.success, "ADD failed: {}", answer.error());
        longest = longest.max(began.elapsed());
        calls += 1;
    }
    Ok((calls, longest))
}

#[test]
fn an_agent_starts_again_beside_250_pods_changes_nothing_and_lets_no_add_fail() -> Result<()> {
    let name = "an_agent_starts_again_beside_250_pods_changes_nothing_and_lets_no_add_fail";
    if !requires::root(name) {
        return Ok(());
    }
    let mut full = FullNode::new(PODS, &["--ack-only"])?;
    full.label(true)?;
    let new = full.node.pod_with(PodSpec::new("new").ambient())?;
    full.node.apply(&[&new])?;
    full.agent.wait_for_pod_state(new.uid(), "enabled")?;
    let before = snapshot(&full)?;
    let plugin = Plugin::new(&full.node)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let calls = scope.spawn(|| admitted(&plugin, &new, &over));
        let restarts = (0..5).try_for_each(|_| {
            let began = Instant::now();
            full.agent.restart()?;
            ensure!(began.elapsed() < QUICK, "{:?}", began.elapsed());
            full.agent.wait_for_log("snapshot done")
        });
        over.store(true, Ordering::Relaxed);
        let (calls, longest) = calls
            .join()
            .map_err(|_| anyhow::anyhow!("the caller panicked"))??;
        restarts?;
        // How many there are in the time of five restarts is the machine's business.
        ensure!(calls >= 2, "{calls} calls of ADD");
        ensure!(longest < QUICK, "an ADD took {longest:?}");
        Ok(())
    })?;
    full.wait_for("enabled")?;
    let now = snapshot(&full)?;
    ensure!(now == before, "{}", difference(&now, &before));
    let log = full.agent.log();
    for start in log
        .lines()
        .filter(|line| line.contains("the programs are attached"))
        .skip(1)
    {
        ensure!(start.contains("attached=0 removed=0"), "{start}");
    }
    Ok(())
}

/// Labels the namespace of a full node, and takes the label away.
fn joins_and_leaves(full: &mut FullNode) -> Result<()> {
    let pins = Pins::of(&full.node);
    for ambient in [true, false, true] {
        let began = Instant::now();
        full.label(ambient)?;
        ensure!(began.elapsed() < QUICK, "{ambient}: {:?}", began.elapsed());
        ensure!(pins.count("PODS")? == if ambient { full.pods.len() } else { 0 });
    }
    Ok(())
}

#[test]
fn a_namespace_of_250_pods_joins_and_leaves_in_a_moment() -> Result<()> {
    if !requires::root("a_namespace_of_250_pods_joins_and_leaves_in_a_moment") {
        return Ok(());
    }
    joins_and_leaves(&mut FullNode::new(PODS, &["--ack-only"])?)
}

#[test]
fn a_namespace_joins_and_leaves_in_a_moment_by_the_api_server() -> Result<()> {
    let name = "a_namespace_joins_and_leaves_in_a_moment_by_the_api_server";
    let Some(assets) = requires::control_plane(name) else {
        return Ok(());
    };
    joins_and_leaves(&mut FullNode::in_cluster(PODS / 5, &["--ack-only"], &assets)?)
}

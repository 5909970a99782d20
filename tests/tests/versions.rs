//! Agents of other builds and other layouts of the maps: an upgrade loses nothing and lets nothing by, a downgrade is
//! refused, leftovers of other versions go.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::moments::Moments;
use tests::process::Process;
use tests::steady::Steady;
use tests::sys::bpf::{Kind, Pinned};
use tests::{Mesh, Pins, programs, requires};

/// Connections that are open all the time.
const HELD: usize = 20;

/// New connections all the time, and some that stay open.
struct Traffic {
    steady: Steady,
    held: Process,
}

impl Traffic {
    fn start(mesh: &Mesh) -> Result<Self> {
        let steady = Steady::start(mesh)?;
        let destination = SocketAddr::new(mesh.outside.v6(), 8080).to_string();
        let mut held = mesh
            .client
            .spawn(&["hold", &HELD.to_string(), &destination, "--check"])?;
        ensure!(held.json::<Value>()?["alive"] == HELD);
        Ok(Self { steady, held })
    }

    /// Nothing was lost, and nothing passed the proxy by.
    fn stop(mut self, mesh: &Mesh) -> Result<()> {
        self.held.close_stdin();
        ensure!(
            self.held.json::<Value>()?["alive"] == HELD,
            "open connections live on"
        );
        for report in self.steady.stop()? {
            ensure!(report["failed"] == json!({}), "{report}");
        }
        for verdict in self.steady.verdicts(mesh)? {
            ensure!(verdict.accepted > 100 && verdict.escaped == 0, "{verdict:?}");
        }
        Ok(())
    }
}

fn folder(mesh: &Mesh, version: u32) -> PathBuf {
    mesh.node.bpffs().join(format!("meshgate/v{version}"))
}

/// Ids of what is pinned.
fn ids(mesh: &Mesh, kind: Kind) -> Result<BTreeSet<u32>> {
    let objects = Pins::of(&mesh.node).objects()?.into_iter();
    Ok(objects
        .filter(|(found, _)| *found == kind)
        .map(|(_, id)| id)
        .collect())
}

/// The binary with other layouts. Tests that need it say so when it was not built.
fn next(test: &str) -> Option<PathBuf> {
    if !requires::root(test) {
        return None;
    }
    requires::program(test, "MESHGATE_NEXT")
}

/// The agent with other instructions in its programs that do the same: `return 1` by a move of 32 bits in place of 64.
fn rebuilt(to: &Path) -> Result<usize> {
    let (wide, narrow): ([u8; 16], u8) = ([0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0], 0xb4);
    let mut binary = fs::read(programs::find("meshgate")?)?;
    let found: Vec<usize> = (0..binary.len() - wide.len())
        .filter(|at| binary[*at..].starts_with(&wide))
        .collect();
    found.iter().for_each(|at| binary[*at] = narrow);
    fs::write(to, binary)?;
    fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(found.len())
}

#[test]
fn an_upgrade_to_other_programs_loses_nothing() -> Result<()> {
    if !requires::root("an_upgrade_to_other_programs_loses_nothing") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let other = mesh.node.run_dir().join("rebuilt");
    ensure!(rebuilt(&other)? > 0, "no instruction to change in the programs");
    let traffic = Traffic::start(&mesh)?;
    let (links, maps, programs) = (
        ids(&mesh, Kind::Link)?,
        ids(&mesh, Kind::Map)?,
        ids(&mesh, Kind::Program)?,
    );
    traffic.steady.wait_for_more(50)?;
    mesh.agent.replace_program(&other);
    mesh.agent.restart()?;
    traffic.steady.wait_for_more(50)?;
    ensure!(ids(&mesh, Kind::Link)? == links, "links are made anew");
    ensure!(ids(&mesh, Kind::Map)? == maps, "maps are made anew");
    ensure!(
        ids(&mesh, Kind::Program)?.is_disjoint(&programs),
        "a program is left"
    );
    traffic.stop(&mesh)
}

#[test]
fn an_upgrade_to_other_layouts_loses_nothing_and_a_downgrade_is_refused() -> Result<()> {
    let Some(next) = next("an_upgrade_to_other_layouts_loses_nothing_and_a_downgrade_is_refused") else {
        return Ok(());
    };
    let mut mesh = Mesh::new()?;
    let traffic = Traffic::start(&mesh)?;
    let links = ids(&mesh, Kind::Link)?;
    traffic.steady.wait_for_more(50)?;
    mesh.agent.replace_program(&next);
    mesh.agent.restart()?;
    ensure!(mesh.agent.log().contains("the pins of version v1 are taken over"));
    traffic.steady.wait_for_more(50)?;
    ensure!(!folder(&mesh, 1).exists() && folder(&mesh, 2).join("maps/SOCKETS").exists());
    // The same links, and pods as the new layout has them.
    let of_pods = fs::read_dir(folder(&mesh, 2).join("links/pod"))?.flatten();
    let kept = of_pods.filter_map(|pin| Pinned::open(&pin.path()).ok()?.number("link_id"));
    let kept: BTreeSet<u32> = kept.collect();
    ensure!(kept.len() == 2 && kept.is_subset(&links), "{kept:?} of {links:?}");
    let pods = mesh.agent.cli_json(&["pods"])?;
    ensure!(pods[0]["state"] == "enabled", "{pods}");

    // Back: refused, and nothing is touched.
    mesh.agent.kill9();
    mesh.agent.replace_program(&programs::find("meshgate")?);
    let mut earlier = mesh.agent.command()?;
    earlier
        .args(mesh.agent.arguments(&["run"]))
        .args(mesh.agent.run_flags());
    let output = earlier.output()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1), "{error}");
    for part in ["v2", "v1", "newer", "meshgate cleanup"] {
        ensure!(error.contains(part), "{part} is not in: {error}");
    }
    ensure!(folder(&mesh, 2).join("maps/SOCKETS").exists());
    traffic.steady.wait_for_more(50)?;

    mesh.agent.replace_program(&next);
    mesh.agent.restart()?;
    for pod in [&mesh.client, &mesh.server] {
        mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
    }
    traffic.steady.wait_for_more(50)?;
    traffic.stop(&mesh)
}

#[test]
fn connections_that_the_proxy_accepts_after_an_upgrade_still_go_where_they_should() -> Result<()> {
    let Some(next) = next("connections_that_the_proxy_accepts_after_an_upgrade_still_go_where_they_should")
    else {
        return Ok(());
    };
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    mesh.proxy.process().signal(Signal::STOP)?;
    let destinations = [mesh.outside.v4(), mesh.outside.v6()].map(|ip| SocketAddr::new(ip, 8080));
    let mut holders = Vec::new();
    for destination in destinations {
        let mut holder = mesh.client.spawn(&["hold", "10", &destination.to_string()])?;
        ensure!(
            holder.json::<Value>()?["connected"] == 10,
            "connected to the proxy's backlog"
        );
        holders.push(holder);
    }
    mesh.agent.replace_program(&next);
    mesh.agent.restart()?;
    mesh.proxy.process().signal(Signal::CONT)?;
    mesh.proxy.wait_for_connections(20)?;
    let connections = mesh.proxy.connections()?;
    for destination in destinations {
        let there = connections
            .iter()
            .filter(|seen| seen.destination == destination && seen.result == "ok");
        ensure!(there.count() == 10, "{connections:?}");
    }
    Ok(())
}

#[test]
fn an_upgrade_to_other_layouts_may_be_killed_at_any_moment() -> Result<()> {
    let Some(next) = next("an_upgrade_to_other_layouts_may_be_killed_at_any_moment") else {
        return Ok(());
    };
    let mut moments = Moments::new(11);
    let mut mesh = Mesh::new()?;
    let traffic = Traffic::start(&mesh)?;
    mesh.agent.kill9();
    mesh.agent.replace_program(&next);
    for kill in 0..30 {
        mesh.agent.spawn()?;
        // A little later each time: the first are killed before they begin, the last when they are done.
        moments.pass(Duration::from_millis(10 + 5 * kill));
        mesh.agent.kill9();
    }
    mesh.agent.restart()?;
    ensure!(!folder(&mesh, 1).exists());
    for pod in [&mesh.client, &mesh.server] {
        mesh.agent.wait_for_pod_state(pod.uid(), "enabled")?;
    }
    traffic.steady.wait_for_more(50)?;
    traffic.stop(&mesh)
}

#[test]
fn pins_of_other_versions_go_if_nothing_uses_them_and_stop_the_agent_otherwise() -> Result<()> {
    if !requires::root("pins_of_other_versions_go_if_nothing_uses_them_and_stop_the_agent_otherwise") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    for version in [0, 999] {
        fs::create_dir_all(folder(&mesh, version).join("maps"))?;
        // Of the latter the kernel tells as it does of a link.
        for name in ["NETWORKS", "COUNTERS"] {
            let map = Pinned::open(&Pins::of(&mesh.node).folder().join("maps").join(name))?;
            map.pin(&folder(&mesh, version).join("maps").join(name))?;
        }
    }
    mesh.agent.restart()?;
    for version in [0, 999] {
        ensure!(!folder(&mesh, version).exists());
        let said = format!("pins of version v{version}, which nothing used, are removed");
        ensure!(mesh.agent.log().contains(&said), "{}", mesh.agent.log());
    }
    let status = mesh.agent.cli_json(&["status"])?;
    ensure!(status["repairs"]["versions"] == 2, "{status}");
    mesh.check()?;

    mesh.agent.kill9();
    for (version, what) in [(0, "an older meshgate"), (999, "a newer meshgate")] {
        fs::rename(folder(&mesh, 1), folder(&mesh, version))?;
        let mut run = mesh.agent.command()?;
        run.args(mesh.agent.arguments(&["run"]))
            .args(mesh.agent.run_flags());
        let error = String::from_utf8_lossy(&run.output()?.stderr).into_owned();
        ensure!(
            error.contains(what) && error.contains(&format!("v{version}")),
            "{error}"
        );
        ensure!(folder(&mesh, version).join("links/node/app_connect4").exists());
        ensure!(!folder(&mesh, 1).exists());
        let (_, status, _) = mesh.agent.said(&["status"])?;
        ensure!(
            status.contains(&format!("captured by the pins of version v{version}")),
            "{status}"
        );
        mesh.check().context("pods are still captured")?;
        fs::rename(folder(&mesh, version), folder(&mesh, 1))?;
    }
    mesh.agent.restart()?;
    mesh.check()
}

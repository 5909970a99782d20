//! Somebody takes away what a running agent needs: its sockets, its run folder, the file system of its pins. It is there
//! again, and nothing was uncaptured meanwhile.

use std::fs;
use std::path::{Path, PathBuf};

use agent::datapath::plan::MAPS;
use agent::socket_file::is_listened_on;
use anyhow::{Context, Result, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::json;
use tests::cni::Plugin;
use tests::steady::Steady;
use tests::sys::bpf::{Kind, Pinned};
use tests::wait::LIMIT;
use tests::{Mesh, Pins, PodSpec, Proxy, requires, traffic, wait};

/// Waits until somebody listens there.
fn until_served(socket: &Path) -> Result<()> {
    wait::asking(LIMIT, &format!("{} to be served", socket.display()), || {
        Ok(is_listened_on(socket).then_some(()))
    })
}

#[test]
fn sockets_and_the_run_folder_are_made_again() -> Result<()> {
    if !requires::root("sockets_and_the_run_folder_are_made_again") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let _servers = mesh.serve()?;
    let (plugin, zds) = (mesh.node.plugin_socket(), mesh.node.zds_socket());
    let run = mesh.agent.run_dir().to_owned();
    let control = run.join("control.sock");
    for socket in [&plugin, &zds, &control] {
        fs::remove_file(socket)?;
        until_served(socket)?;
    }
    let folder = plugin.parent().context("a folder")?;
    fs::rename(folder, folder.with_extension("gone"))?;
    until_served(&plugin)?;
    // The plugin and a proxy find their agent.
    let late = mesh.node.pod_with(PodSpec::new("late").ambient())?;
    mesh.node.apply(&[&late])?;
    let answer = Plugin::new(&mesh.node)?.add(&late)?;
    ensure!(answer.success, "{}", answer.error());
    let second = Proxy::start(&mesh.node, "second", &[])?;
    mesh.agent.wait_for("the second proxy", |status| {
        (status.proxies.len() == 2).then_some(())
    })?;

    fs::rename(&run, run.with_extension("gone"))?;
    until_served(&control)?;
    for file in ["status.json", "ready", "agent.lock"] {
        wait::asking(LIMIT, file, || Ok(run.join(file).exists().then_some(())))?;
    }
    assert_eq!(mesh.agent.cli_json(&["status"])?["agent_running"], true);
    let ways = traffic::ways(&mesh.client, &mesh.server, &mesh.outside);
    traffic::check(&ways, &[&mesh.proxy, &second])
}

/// A bpffs over a folder; it goes with this value.
struct Cover(PathBuf);

impl Cover {
    fn over(folder: &Path) -> Result<Self> {
        mount("bpf", folder, "bpf", MountFlags::empty(), None)?;
        Ok(Self(folder.to_owned()))
    }
}

impl Drop for Cover {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn pins_follow_when_their_file_system_is_covered_or_unmounted_and_nothing_escapes() -> Result<()> {
    if !requires::root("pins_follow_when_their_file_system_is_covered_or_unmounted_and_nothing_escapes") {
        return Ok(());
    }
    let mut mesh = Mesh::new()?;
    let pins = Pins::of(&mesh.node);
    let objects = pins.objects()?;
    let pinned = objects.iter().filter(|(kind, _)| *kind != Kind::Program).count();
    let mut load = Steady::start(&mesh)?;
    let mut moved = 0;
    let mut until_moved = |mesh: &mut Mesh| {
        moved += pinned;
        mesh.agent.wait_for("the pins to be moved", |status| {
            (status.repairs["pins"] == moved && status.missing("pins").is_none()).then_some(())
        })
    };
    let cover = Cover::over(mesh.node.bpffs())?;
    until_moved(&mut mesh)?;
    assert_eq!(pins.objects()?, objects, "the same maps and links");
    load.wait_for_more(30)?;
    drop(cover);
    until_moved(&mut mesh)?;
    assert_eq!(pins.objects()?, objects, "the same maps and links");
    // A foreign map in the place of ours.
    let (ours, foreign) = (
        pins.folder().join("maps").join(MAPS[0]),
        pins.folder().join("maps").join(MAPS[1]),
    );
    let id = |pin: &Path| Pinned::open(pin).ok()?.number("map_id");
    let (before, another) = (id(&ours), Pinned::open(&foreign)?);
    fs::remove_file(&ours)?;
    // It fails when the agent was faster.
    let _ = another.pin(&ours);
    wait::asking(LIMIT, "our map", || Ok((id(&ours) == before).then_some(())))?;
    load.wait_for_more(30)?;
    for report in load.stop()? {
        assert_eq!(report["failed"], json!({}), "{report}");
    }
    for verdict in load.verdicts(&mesh)? {
        assert!(verdict.accepted > 30 && verdict.escaped == 0, "{verdict:?}");
    }
    // It is locked where it is now.
    let second = mesh.agent.cli(&["cleanup"])?;
    ensure!(!second.status.success(), "cleanup beside a running agent");
    Ok(())
}

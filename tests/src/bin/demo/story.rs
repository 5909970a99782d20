//! What the demo tells, in order: the node, what is captured and what is not, a label change, the end.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use ::tests::pins::Pins;
use ::tests::sys::bpf::exists;
use anyhow::{Context, Result, ensure};

use crate::interrupt::Interrupt;
use crate::keep;
use crate::scene::{Family, Scene};
use crate::screen::Screen;
use crate::stage;
use crate::trial::{PORT, Place, Trial, faults, ways};
use crate::trials::{AGENT_STOPPED, CLIENT_OUT, IN_THE_MESH, NOTHING_LEFT};

/// From nothing to nothing. `assets` is the folder of etcd and the API server, if these shall tell of the pods.
pub(crate) fn whole(screen: &Screen, interrupt: &Interrupt, assets: Option<&Path>) -> Result<()> {
    let began = Instant::now();
    let mut scene = begin(screen, interrupt, assets)?;
    leave(screen, interrupt, &mut scene)?;
    end(screen, interrupt, scene)?;
    screen.line(&format!(
        "\nAll as told, in {:.1} s. To play with it: --keep",
        began.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// The same without the label change, which the reader may make while it all stays.
pub(crate) fn keep(screen: &Screen, interrupt: &Interrupt, assets: Option<&Path>) -> Result<()> {
    let mut scene = begin(screen, interrupt, assets)?;
    keep::invite(screen, &scene)?;
    interrupt.wait()?;
    // A terminal sends Ctrl-C to the agent, the proxy and the servers too: they may have ended already.
    scene.agent.stop()?;
    clean_up(screen, scene, &[])
}

fn begin(screen: &Screen, interrupt: &Interrupt, assets: Option<&Path>) -> Result<Scene> {
    let scene = stage::set_up(screen, assets)?;
    interrupt.check()?;
    screen.section(
        "Who goes through the proxy, and why",
        "Each pair is opened in IPv4 and IPv6. PROXY: where the proxy saw it. CLIENT: whom the server saw.",
    );
    try_all(screen, &scene, &IN_THE_MESH)?;
    interrupt.check()?;
    screen.section(
        "What there is to look at",
        "Read from the kernel's maps: it works without the agent too.",
    );
    for verb in [&["pods"][..], &["maps", "dump", "ADDRESSES"], &["counters"]] {
        screen.command(&format!("meshgate {}", verb.join(" ")), &scene.verb(verb)?);
    }
    Ok(scene)
}

fn leave(screen: &Screen, interrupt: &Interrupt, scene: &mut Scene) -> Result<()> {
    screen.section(
        "A label changes",
        "The client's label becomes istio.io/dataplane-mode: none.",
    );
    let ((), took) = stage::timed(|| scene.take_client_out())?;
    screen.timed("client", "left the mesh", took);
    try_all(screen, scene, &CLIENT_OUT)?;
    screen.command("meshgate pods", &scene.verb(&["pods"])?);
    interrupt.check()
}

fn end(screen: &Screen, interrupt: &Interrupt, mut scene: Scene) -> Result<()> {
    screen.section("The agent stops", "An update, say, or a crash.");
    scene.agent.stop()?;
    try_all(screen, &scene, &AGENT_STOPPED)?;
    interrupt.check()?;
    clean_up(screen, scene, &NOTHING_LEFT)
}

/// Removes everything, tries what should work then, and looks for what should be gone.
fn clean_up(screen: &Screen, scene: Scene, trials: &[Trial]) -> Result<()> {
    screen.section("Away with it", "The pods stay; only what Meshgate made goes.");
    let objects = Pins::of(&scene.ground.node).objects()?;
    screen.command("meshgate cleanup", &scene.verb(&["cleanup"])?);
    screen.line("");
    if !trials.is_empty() {
        try_all(screen, &scene, trials)?;
    }
    let parts = scene.ground.node.parts();
    let pins = names_in(&parts.bpffs)?;
    ensure!(
        pins.is_empty(),
        "pins are left in {}: {pins:?}",
        parts.bpffs.display()
    );
    for (kind, id) in &objects {
        ensure!(!exists(*kind, *id)?, "the kernel still has {kind:?} {id}");
    }
    let told = format!(
        "the kernel has none of the {} programs, maps and links; no pin is left",
        objects.len()
    );
    screen.done("kernel", &told);
    drop(scene);
    let remains = parts.remains();
    ensure!(remains.is_empty(), "the node left behind: {}", remains.join(", "));
    screen.done("node", "its network namespaces, cgroups and folders are gone");
    Ok(())
}

fn names_in(folder: &Path) -> Result<Vec<OsString>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    Ok(entries
        .map(|entry| Ok(entry?.file_name()))
        .collect::<std::io::Result<_>>()?)
}

/// Tries connections and prints a line for each.
fn try_all(screen: &Screen, scene: &Scene, trials: &[Trial]) -> Result<()> {
    screen.heads();
    let mut wrong = 0;
    for trial in trials {
        for (family, why) in [(Family::V4, trial.why), (Family::V6, "")] {
            wrong += usize::from(!try_one(screen, scene, trial, family, why)?);
        }
    }
    ensure!(
        wrong == 0,
        "{wrong} connections were not as told: see the lines with ✗"
    );
    Ok(())
}

/// Whether it was as told.
fn try_one(screen: &Screen, scene: &Scene, trial: &Trial, family: Family, why: &str) -> Result<bool> {
    let asked = SocketAddr::new(scene.ground.address(trial.to, family), PORT);
    let origin = if trial.to == Place::Loopback {
        trial.to
    } else {
        trial.from
    };
    let from = scene.ground.address(origin, family);
    let seen = scene.observe(trial, family)?;
    let faults = faults(trial, asked, from, &seen);
    let client = seen
        .client
        .map_or_else(|| "nobody".to_owned(), |ip| called(scene, ip, family));
    let cells = [
        trial.from.name(),
        trial.to.name(),
        &asked.to_string(),
        &ways(&seen.through),
        &client,
    ];
    screen.row(faults.is_empty(), &cells, why);
    faults.iter().for_each(|fault| screen.fault(fault));
    Ok(faults.is_empty())
}

/// Whose address this is.
fn called(scene: &Scene, ip: IpAddr, family: Family) -> String {
    let places = [
        Place::Client,
        Place::Server,
        Place::Outside,
        Place::Node,
        Place::Loopback,
    ];
    let owner = places
        .into_iter()
        .find(|place| scene.ground.address(*place, family) == ip);
    owner.map_or_else(|| ip.to_string(), |place| place.name().to_owned())
}

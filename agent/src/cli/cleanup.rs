//! `meshgate cleanup`: removes every link, map, pin, rule and file of ours, and proves that nothing is left.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;

use super::Exit;
use super::output::{self, Format};
use crate::app::{self, installation};
use crate::config::{Paths, PluginPlaceArgs};
use crate::datapath::namespaces;
use crate::datapath::pins::Pins;
use crate::datapath::remnants::{Remnants, remove_folder};
use crate::install;
use crate::lock;
use crate::netns::by_cookie;
use crate::report::Report;

/// The kernel frees programs and maps a moment after their last reference: after a grace period (RCU).
const PATIENCE: Duration = Duration::from_secs(10);

/// Settings of `meshgate cleanup`.
#[derive(Args, Debug)]
pub struct CleanupArgs {
    /// Where the plugin is on the node
    #[command(flatten)]
    place: PluginPlaceArgs,
    /// Stay when all is done, until told to stop: in a DaemonSet, which would start it again and again
    #[arg(long)]
    wait: bool,
}

/// What was removed, and what is left.
#[derive(Debug, Default, Serialize)]
pub struct Cleaned {
    /// Pins removed: links (detached by it), maps, folders.
    pub pins: usize,
    /// Kernel objects that went with them.
    pub programs: usize,
    /// Maps that went with them.
    pub maps: usize,
    /// Network namespaces whose settings, rules and routes were changed back.
    pub namespaces: usize,
    /// Files of the agent that were removed.
    pub files: Vec<PathBuf>,
    /// What is left, and should not be; empty is the proof.
    pub left: Vec<String>,
}

/// Cleans up.
///
/// # Errors
/// When the agent runs, or something cannot be removed.
pub fn execute(paths: &Paths, format: Format, args: &CleanupArgs) -> anyhow::Result<Exit> {
    let guard = lock::acquire(&paths.run_dir).context("cleanup needs the agent to be stopped")?;
    let mut cleaned = Cleaned::default();
    // First, so that no new pod is held by a plugin whose agent has gone.
    let plugin = install::remove(&installation::removal(&args.place));
    let pins = Pins::new(&paths.bpffs);
    let pins_lock = if pins.all_versions().exists() {
        Some(pins.lock()?)
    } else {
        None
    };
    let before = Remnants::of(&pins)?;
    cleaned.namespaces = change_back(&before.changed)?;
    cleaned.pins = remove_folder(&pins.all_versions())?;
    cleaned.programs = before.programs.len();
    cleaned.maps = before.maps.len();
    cleaned.files = plugin.files;
    cleaned.files.extend(remove_files(paths)?);
    cleaned.left = plugin.left;
    cleaned.left.extend(wait_until_gone(&before));
    drop((pins_lock, guard));
    if std::fs::remove_dir(&paths.run_dir).is_ok() {
        cleaned.files.push(paths.run_dir.clone());
    }
    match format {
        Format::Json => output::json(&cleaned)?,
        Format::Table => output::lines(table(&cleaned))?,
    }
    if !cleaned.left.is_empty() {
        bail!("{} objects are left; see above", cleaned.left.len());
    }
    if args.wait {
        app::until_told_to_stop()?;
    }
    Ok(Exit::Fine)
}

/// Undoes the changes in the namespaces that still exist.
fn change_back(changed: &BTreeMap<u64, u32>) -> anyhow::Result<usize> {
    let cookies: Vec<u64> = changed.keys().copied().collect();
    let found = by_cookie::find(&cookies)?;
    for netns in &found {
        let bits = changed.get(&netns.cookie.0).copied().unwrap_or_default();
        namespaces::undo(netns, bits)
            .with_context(|| format!("changing back network namespace {}", netns.cookie.0))?;
    }
    Ok(found.len())
}

fn remove_files(paths: &Paths) -> anyhow::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    let sockets = Report::read(&paths.run_dir)
        .ok()
        .flatten()
        .unwrap_or_default()
        .sockets;
    for socket in sockets {
        let is_socket = std::fs::symlink_metadata(&socket).is_ok_and(|meta| meta.file_type().is_socket());
        if is_socket {
            std::fs::remove_file(&socket).with_context(|| format!("removing {}", socket.display()))?;
            removed.push(socket);
        }
    }
    for path in [
        crate::report::path(&paths.run_dir),
        paths.run_dir.join("ready"),
        lock::path(&paths.run_dir),
    ] {
        match std::fs::remove_file(&path) {
            Ok(()) => removed.push(path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("removing {}", path.display())),
        }
    }
    Ok(removed)
}

/// Asks the kernel for our programs and maps until it has none of them.
fn wait_until_gone(before: &Remnants) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = before.still_there();
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        // The kernel tells nobody when it frees a program: asking again is all that one can do.
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn table(cleaned: &Cleaned) -> Vec<String> {
    let mut lines = vec![
        format!(
            "removed  {} pins, with {} programs and {} maps",
            cleaned.pins, cleaned.programs, cleaned.maps
        ),
        format!("removed  changes to {} network namespaces", cleaned.namespaces),
    ];
    lines.extend(
        cleaned
            .files
            .iter()
            .map(|file| format!("removed  {}", file.display())),
    );
    if cleaned.left.is_empty() {
        lines.push(
            "left     nothing: the kernel has none of these programs, maps and links any more".to_owned(),
        );
    }
    lines.extend(cleaned.left.iter().map(|left| format!("LEFT     {left}")));
    lines
}

//! `meshgate cleanup`: removes every link, map, pin, rule and file of ours, and proves that nothing is left.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent_core::cni::config::{LOG_SOCKET, SOCKET};
use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;

use super::Exit;
use super::output::{self, Format};
use crate::app::{self, installation};
use crate::config::{Paths, PluginPlaceArgs, ZDS_SOCKET};
use crate::datapath::last::stop_capturing;
use crate::datapath::namespaces;
use crate::datapath::pins::Pins;
use crate::datapath::remnants::{Remnants, remove_all};
use crate::install;
use crate::lock;
use crate::netns::by_cookie;
use crate::ops::Control;
use crate::report::Report;
use crate::socket_file::is_listened_on;

/// The kernel frees programs and maps a moment after their last reference: after a grace period (RCU).
const PATIENCE: Duration = Duration::from_secs(5);

/// Settings of `meshgate cleanup`.
#[derive(Args, Debug)]
pub struct CleanupArgs {
    /// Where the plugin is on the node
    #[command(flatten)]
    place: PluginPlaceArgs,
    /// Socket that the proxy connects to, where the agent's account does not tell it
    #[arg(
        long,
        value_name = "FILE",
        env = "ZTUNNEL_UDS_ADDRESS",
        default_value = ZDS_SOCKET
    )]
    zds_socket: PathBuf,
    /// Stay when all is done, until told to stop, and take connections at TCP port 8000: in a DaemonSet, which would start
    /// it again and again, and which asks there whether its pod is ready
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
    /// Links that went with them.
    pub links: usize,
    /// Network namespaces whose settings, rules and routes were changed back.
    pub namespaces: usize,
    /// Files of the agent that were removed.
    pub files: Vec<PathBuf>,
    /// What is left and should not be, each with the cause; empty is the proof.
    pub left: Vec<String>,
}

/// Cleans up. What cannot be removed stops nothing else.
///
/// # Errors
/// When the agent runs, or something is left.
pub fn execute(paths: &Paths, format: Format, args: &CleanupArgs) -> anyhow::Result<Exit> {
    if !rustix::process::geteuid().is_root() {
        bail!("cleanup needs root, or it could not tell what is left; nothing was changed");
    }
    // Without a run dir there is no agent that could hold the lock.
    let guard = match paths.run_dir.exists() {
        true => Some(lock::acquire(&paths.run_dir).context("cleanup needs the agent to be stopped")?),
        false => None,
    };
    let pins = Pins::new(&paths.bpffs);
    let pins_lock = match pins.all_versions().exists() {
        true => Some(pins.lock().context("cleanup needs the agent to be stopped")?),
        false => None,
    };
    // First, so that no new pod is held by a plugin whose agent has gone.
    let plugin = install::remove(&installation::removal(&args.place));
    let mut cleaned = Cleaned {
        files: plugin.files,
        left: plugin.left,
        ..Cleaned::default()
    };
    let before = Remnants::of(&pins);
    cleaned.left.extend(before.unknown.iter().cloned());
    match stop_capturing(&pins) {
        Ok(pins) => cleaned.pins += pins,
        Err(error) => cleaned
            .left
            .push(format!("connections on their way are not waited for: {error}")),
    }
    cleaned.change_back(&before.changed);
    cleaned.remove_pins(&pins);
    cleaned.programs = before.programs.len();
    cleaned.maps = before.maps.len();
    cleaned.links = before.links.len();
    cleaned.remove_files(paths, args);
    cleaned.left.extend(wait_until_gone(&before));
    drop((pins_lock, guard));
    cleaned.remove_empty(paths.run_dir.clone());
    match format {
        Format::Json => output::json(&cleaned)?,
        Format::Table => output::lines(table(&cleaned))?,
    }
    if !cleaned.left.is_empty() {
        bail!("{} objects are left; see above", cleaned.left.len());
    }
    if args.wait {
        let _ready = TcpListener::bind("[::]:8000").or_else(|_| TcpListener::bind("0.0.0.0:8000"))?;
        app::until_told_to_stop()?;
    }
    Ok(Exit::Fine)
}

impl Cleaned {
    /// Undoes the changes in the namespaces that still exist: before the record of them goes with the pins.
    fn change_back(&mut self, changed: &BTreeMap<u64, u32>) {
        let cookies: Vec<u64> = changed.keys().copied().collect();
        let found = by_cookie::find(&cookies).unwrap_or_else(|error| {
            self.left.push(format!(
                "settings of {} network namespaces: reading /proc: {error}",
                cookies.len()
            ));
            Vec::new()
        });
        for netns in &found {
            let bits = changed.get(&netns.cookie.0).copied().unwrap_or_default();
            match namespaces::undo(netns, bits) {
                Ok(()) => self.namespaces += 1,
                Err(error) => self.left.push(format!(
                    "settings of network namespace {}: {error}",
                    netns.cookie.0
                )),
            }
        }
    }

    fn remove_pins(&mut self, pins: &Pins) {
        let (removed, errors) = remove_all(&pins.all_versions());
        self.pins = removed;
        self.left.extend(errors.iter().map(ToString::to_string));
    }

    /// The sockets that the agent's account names; without one, those that its settings would have.
    fn sockets(&mut self, paths: &Paths, args: &CleanupArgs) -> Vec<PathBuf> {
        let run_dir = &args.place.cni_agent_run_dir;
        let configured = || {
            vec![
                args.zds_socket.clone(),
                run_dir.join(SOCKET),
                run_dir.join(LOG_SOCKET),
                Control::path(&paths.run_dir),
            ]
        };
        match Report::read(&paths.run_dir) {
            Ok(account) => account.map_or_else(configured, |account| account.sockets),
            Err(error) => {
                self.left.push(format!(
                    "sockets with other paths than the settings have, if there are any: {error}"
                ));
                configured()
            }
        }
    }

    fn remove_files(&mut self, paths: &Paths, args: &CleanupArgs) {
        let sockets = self.sockets(paths, args);
        let is_socket = |path: &PathBuf| {
            std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
                // Another agent has taken the node over: Istio's, on the way back.
                && !is_listened_on(path)
        };
        let files = [
            crate::report::path(&paths.run_dir),
            crate::report::unfinished(&paths.run_dir),
            paths.run_dir.join("ready"),
            lock::path(&paths.run_dir),
        ];
        let folders: Vec<_> = sockets.iter().filter_map(|path| plugin_folder(path)).collect();
        for socket in sockets.into_iter().filter(is_socket) {
            self.remove_file(socket);
        }
        folders.into_iter().for_each(|folder| self.remove_empty(folder));
        // The account last: it tells a second cleanup where the sockets are.
        for file in files {
            self.remove_file(file);
        }
    }

    /// A folder stays when something of others is in it, and where one of the node's is mounted in a container: empty, it
    /// is not worth a complaint.
    fn remove_empty(&mut self, folder: PathBuf) {
        let is_empty = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_none());
        if !is_empty {
            return;
        }
        match std::fs::remove_dir(&folder) {
            Err(error) if is_mount(error.kind()) => {}
            done => self.note(folder, done),
        }
    }

    fn remove_file(&mut self, path: PathBuf) {
        let done = std::fs::remove_file(&path);
        self.note(path, done);
    }

    fn note(&mut self, path: PathBuf, removed: io::Result<()>) {
        match removed {
            Ok(()) => self.files.push(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.left.push(format!("{}: {error}", path.display())),
        }
    }
}

/// What the kernel says of the removal of a mount point, and of one below a container's read-only root.
fn is_mount(error: io::ErrorKind) -> bool {
    matches!(
        error,
        io::ErrorKind::ResourceBusy | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// The folder that the agent made for its plugin. That of the proxy's socket stays: a proxy that runs has it mounted and
/// would look into the removed one for ever.
fn plugin_folder(socket: &Path) -> Option<PathBuf> {
    let is_plugin = socket.file_name().is_some_and(|name| name == SOCKET);
    socket.parent().filter(|_| is_plugin).map(Path::to_owned)
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
            "removed  {} pins, with {} programs, {} links and {} maps",
            cleaned.pins, cleaned.programs, cleaned.links, cleaned.maps
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

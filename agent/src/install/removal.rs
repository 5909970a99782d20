//! Takes away what the installer brought: for good, or before Istio's agent comes back.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use agent_core::cni::BINARY_MARK;
use agent_core::cni::conf::element::PluginType;
use agent_core::cni::conf::kubeconfig;
use agent_core::cni::conf::plan::{Mode, OWNED_FILE, STANDALONE_FILE};
use agent_core::cni::conf::undo::{Undo, undo};

use super::Config;
use super::files::{self, FileError, Replaced, is_unfinished, replace};
use super::folder;
use super::installer::{mode_of, named};

/// How often a file that others change at the same moment is tried again.
const TRIES: usize = 20;
/// What the plugin writes beside the agent's socket.
const LOGS: [&str; 2] = ["istio-cni.log", "istio-cni.log.1"];

/// What was removed, and what is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Files that were removed, or that have our plugin no more.
    pub files: Vec<PathBuf>,
    /// What could not be removed: what, why and what to do.
    pub left: Vec<String>,
}

impl Removed {
    fn note(&mut self, path: &Path, done: Result<bool, FileError>) {
        match done {
            Ok(true) => self.files.push(path.to_owned()),
            Ok(false) => {}
            Err(error) => self
                .left
                .push(format!("{error}; correct this and run meshgate cleanup again")),
        }
    }
}

/// Removes our plugin from the node's CNI configuration first, so that no pod is held, then its binaries, kubeconfig and
/// logs. What is not there is fine; what is not ours stays, Istio's own binary too.
#[must_use]
pub fn remove(config: &Config) -> Removed {
    let mut removed = Removed::default();
    remove_from_configurations(config, &mut removed);
    for plugin in PluginType::ALL {
        let path = config.bin_target.join(plugin.as_str());
        let is_ours = files::read(&path).is_ok_and(|binary| contains(&binary, BINARY_MARK.as_bytes()));
        if is_ours {
            removed.note(&path, delete(&path));
        }
    }
    let path = config.run_dir.join(kubeconfig::FILE);
    if files::read(&path).is_ok_and(|text| text.starts_with(kubeconfig::MARK.as_bytes())) {
        removed.note(&path, delete(&path));
    }
    for path in LOGS.map(|log| config.run_dir.join(log)) {
        removed.note(&path, delete(&path));
    }
    for folder in [&config.conf_dir, &config.bin_target, &config.run_dir] {
        remove_unfinished(folder, &mut removed);
    }
    removed
}

fn remove_from_configurations(config: &Config, removed: &mut Removed) {
    for _ in 0..TRIES {
        let folder = match folder::read(&config.conf_dir, &named(config)) {
            Ok(folder) => folder,
            Err(error) if error.source.kind() == ErrorKind::NotFound => return,
            Err(error) => return removed.note(&config.conf_dir, Err(error)),
        };
        let undos = undo(&folder, &owned(config));
        if undos.is_empty() {
            return;
        }
        for Undo { file, base, text } in undos {
            let path = config.conf_dir.join(file);
            removed.note(&path, take_out(&path, &base, text.as_deref()));
        }
        if !removed.left.is_empty() {
            return;
        }
    }
    let path = config.conf_dir.display();
    removed.left.push(format!(
        "the CNI plugin in {path}: another program puts it back; stop that, and run meshgate cleanup again"
    ));
}

/// Names of files that are ours as a whole.
fn owned(config: &Config) -> Vec<&OsStr> {
    let mut names = vec![OsStr::new(OWNED_FILE), OsStr::new(STANDALONE_FILE)];
    if let Mode::Owned { file, .. } | Mode::Standalone { file } = &config.goal.mode {
        names.push(file);
    }
    names
}

/// False when somebody else has changed the file meanwhile: it is looked at again.
fn take_out(path: &Path, base: &str, text: Option<&str>) -> Result<bool, FileError> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match text {
        Some(text) => {
            let mode = mode_of(&path).unwrap_or(0o600);
            Ok(replace(&path, Some(base), text, mode)? == Replaced::Yes)
        }
        None if folder::text(&path).as_deref() == Ok(base) => delete(&path),
        None => Ok(false),
    }
}

/// Whether it was there.
fn delete(path: &Path) -> Result<bool, FileError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(FileError::of("removing", path)(error)),
    }
}

fn remove_unfinished(folder: &Path, removed: &mut Removed) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_unfinished(&entry.file_name().to_string_lossy())) {
        removed.note(&entry.path(), delete(&entry.path()));
    }
}

fn contains(binary: &[u8], mark: &[u8]) -> bool {
    binary.windows(mark.len()).any(|part| part == mark)
}

//! The plugin's binaries, from the agent's image to the node.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use agent_core::cni::conf::element::PluginType;

use super::files::{self, FileError};

/// Copies each file of `source` to `target`, and the plugin under both of its names; what is the same already stays.
/// Returns the names.
pub(super) fn copy(source: &Path, target: &Path) -> Result<Vec<OsString>, FileError> {
    let binaries = binaries(source)?;
    let mut names = Vec::new();
    for (name, from) in binaries {
        copy_one(&from, &target.join(&name))?;
        names.push(name);
    }
    Ok(names)
}

/// What is to be on the node: name and file.
fn binaries(source: &Path) -> Result<BTreeMap<OsString, PathBuf>, FileError> {
    let failed = FileError::of("reading", source);
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(source).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        if fs::metadata(entry.path()).map_err(&failed)?.is_file() {
            found.insert(entry.file_name(), entry.path());
        }
    }
    let names = PluginType::ALL.map(|plugin| OsString::from(plugin.as_str()));
    if let Some(plugin) = names.iter().find_map(|name| found.get(name).cloned()) {
        for name in names {
            found.entry(name).or_insert_with(|| plugin.clone());
        }
    }
    Ok(found)
}

fn copy_one(from: &Path, to: &Path) -> Result<(), FileError> {
    let wanted = fs::metadata(from).map_err(FileError::of("reading", from))?;
    let mode = wanted.mode() & 0o7777;
    let has = fs::symlink_metadata(to).ok();
    let is_alike = has.is_some_and(|has| {
        has.is_file() && has.len() == wanted.len() && has.permissions().mode() & 0o7777 == mode
    });
    let content = fs::read(from).map_err(FileError::of("reading", from))?;
    if is_alike && fs::read(to).is_ok_and(|is| is == content) {
        return Ok(());
    }
    files::write(to, &content, mode)?;
    tracing::info!(binary = %to.display(), "installed");
    Ok(())
}

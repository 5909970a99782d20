//! The folder of CNI configurations, read: all that the plan looks at.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirEntry};
use std::io::Read as _;
use std::path::Path;

use agent_core::cni::conf::listing::{File, Folder, is_configuration};

use super::files::{self, FileError};

/// Larger than any configuration.
const LONGEST: u64 = 4 << 20;

/// Reads the folder; `named` are files that matter whatever their extension.
pub(super) fn read(folder: &Path, named: &[&OsStr]) -> Result<Folder, FileError> {
    let failed = FileError::of("reading", folder);
    let mut read = Folder::default();
    for entry in fs::read_dir(folder).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        let name = entry.file_name();
        // Through symbolic links.
        let Ok(kind) = fs::metadata(entry.path()).map(|found| found.file_type()) else {
            continue;
        };
        if kind.is_dir() && has_plugins(&entry) {
            read.plugin_folders.insert(name);
        } else if kind.is_file() && (is_configuration(&name) || named.contains(&&*name)) {
            let text = text(&entry.path());
            read.files.push(File { name, text });
        }
    }
    Ok(read)
}

/// What a file says, or why that cannot be told.
pub(super) fn text(path: &Path) -> Result<String, String> {
    let mut content = Vec::new();
    let file = files::open(path).map_err(|error| error.to_string())?;
    let read = file.take(LONGEST + 1).read_to_end(&mut content);
    let length = read.map_err(|error| error.to_string())?;
    if length as u64 > LONGEST {
        return Err(format!("it is longer than {} MiB", LONGEST >> 20));
    }
    String::from_utf8(content).map_err(|_| "it is not UTF-8".to_owned())
}

/// Folders that hold the plugins of a list (libcni 1.3).
fn has_plugins(folder: &DirEntry) -> bool {
    let names: BTreeSet<OsString> = fs::read_dir(folder.path())
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect();
    names
        .iter()
        .any(|name| Path::new(name).extension() == Some(OsStr::new("conf")))
}

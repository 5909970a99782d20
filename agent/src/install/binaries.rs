//! The plugin's binaries, from the agent's image to the node.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use agent_core::cni::conf::element::PluginType;

use super::files::{self, FileError};

/// What a file was when it was looked at: device, inode, length, and time of its last change in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

/// Binaries on the node that were found, or made, the same as those in the image, and what both were then: as long as
/// they are so, megabytes need not be read again because another program wrote a configuration.
#[derive(Debug, Default)]
pub(super) struct Copied(BTreeMap<PathBuf, (Stamp, Stamp)>);

impl Copied {
    /// Copies each file of `source` to `target`, and the plugin under both of its names; what is the same already stays.
    pub(super) fn bring(&mut self, source: &Path, target: &Path) -> Result<(), FileError> {
        for (name, from) in binaries(source)? {
            let to = target.join(name);
            let now = stamps(&from, &to);
            if now.is_some() && now == self.0.get(&to).copied() {
                continue;
            }
            copy_one(&from, &to)?;
            match stamps(&from, &to) {
                Some(stamps) => self.0.insert(to, stamps),
                None => self.0.remove(&to),
            };
        }
        Ok(())
    }
}

fn stamps(from: &Path, to: &Path) -> Option<(Stamp, Stamp)> {
    let of = |found: fs::Metadata| {
        (
            found.dev(),
            found.ino(),
            found.len(),
            found.ctime(),
            found.ctime_nsec(),
        )
    };
    Some((of(fs::metadata(from).ok()?), of(fs::symlink_metadata(to).ok()?)))
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
    if is_alike && files::read(to).is_ok_and(|is| is == content) {
        return Ok(());
    }
    files::write(to, &content, mode)?;
    tracing::info!(binary = %to.display(), "installed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_changes_or_removes_is_brought_again() {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("image"), folder.path().join("bin"));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(source.join("meshgate-cni"), "the plugin").unwrap();
        let mut copied = Copied::default();
        let names = PluginType::ALL.map(PluginType::as_str);
        let mut bring = || {
            copied.bring(&source, &target).unwrap();
            names.map(|name| fs::read_to_string(target.join(name)).unwrap())
        };
        assert_eq!(bring(), ["the plugin"; 2]);
        // Of the same length.
        fs::write(target.join("istio-cni"), "the PLUGIN").unwrap();
        assert_eq!(bring(), ["the plugin"; 2]);
        fs::remove_file(target.join("meshgate-cni")).unwrap();
        assert_eq!(bring(), ["the plugin"; 2]);
        fs::write(source.join("meshgate-cni"), "a new one!").unwrap();
        assert_eq!(bring(), ["a new one!"; 2]);
        assert_eq!(bring(), ["a new one!"; 2]);
    }
}

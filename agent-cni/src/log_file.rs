//! The plugin's log file: at most 10 MB and one older file, whatever number of plugins write at the same time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

/// A file of this size makes way for a new one.
const LARGEST: u64 = 10_000_000;
/// Only root reads it: it names pods.
const MODE: u32 = 0o600;

/// Appends the text in one write, which the kernel does not mix with others'. The folder is the agent's to make.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    append_to(path, text, LARGEST)
}

fn append_to(path: &Path, text: &[u8], largest: u64) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut file = open(path)?;
    if file.metadata()?.size() >= largest {
        rotate(path, &file)?;
        file = open(path)?;
    }
    file.write_all(text)
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options
        .append(true)
        .create(true)
        .mode(MODE)
        .custom_flags(flags)
        .open(path)
}

/// Moves the file aside, unless somebody else does so now or has done so since it was opened.
fn rotate(path: &Path, file: &File) -> io::Result<()> {
    if flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    let (opened, there) = (file.metadata()?, fs::metadata(path)?);
    if (opened.dev(), opened.ino()) == (there.dev(), there.ino()) {
        fs::rename(path, older(path))?;
    }
    Ok(())
}

fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_becomes_the_one_older_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("istio-cni.log");
        for text in ["one\n", "two\n", "three\n", "four\n"] {
            append_to(&path, text.as_bytes(), 8).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\nfour\n");
        assert_eq!(fs::read_to_string(older(&path)).unwrap(), "one\ntwo\n");
        append_to(&path, b"five\n", 8).unwrap();
        assert_eq!(fs::read_to_string(older(&path)).unwrap(), "three\nfour\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn plugins_that_write_at_once_lose_nothing_but_what_is_too_old() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| append_to(&path, b"0123456789\n", 5_000).unwrap()));
            }
        });
        let texts = [
            fs::read_to_string(&path).unwrap(),
            fs::read_to_string(older(&path)).unwrap(),
        ];
        // Eight may find it full at the same time, and each writes once more.
        assert!(
            texts[1].len() >= 5_000 && texts[1].len() < 5_000 + 9 * 11,
            "{}",
            texts[1].len()
        );
        assert!(
            texts
                .iter()
                .all(|text| text.lines().all(|line| line == "0123456789"))
        );
    }

    #[test]
    fn no_folder_is_made_and_no_link_followed() {
        let folder = tempfile::tempdir().unwrap();
        assert!(append(&folder.path().join("none/log"), b"x").is_err());
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(append(&link, b"x").is_err());
        assert!(!target.exists());
    }
}

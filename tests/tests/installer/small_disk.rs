//! A folder on a file system of its own, which is full.

use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A file system of 16 KiB over a folder, and nothing of it is free. It goes with this value, also when a test fails.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    const BYTES: usize = 16 << 10;

    /// Covers the folder; files in it that fit are copied before the rest is filled.
    pub(crate) fn over(folder: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let content = fs::read(&path)?;
            // Nor what a killed agent has left unfinished: removing that would make room.
            let is_hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if content.len() < Self::BYTES && !is_hidden {
                files.push((path, content));
            }
        }
        let options = CString::new(format!("size={},mode=755", Self::BYTES))?;
        mount("small", folder, "tmpfs", MountFlags::empty(), options.as_c_str())
            .with_context(|| format!("mounting over {}", folder.display()))?;
        let disk = Self(folder.to_owned());
        for (path, content) in files {
            fs::write(path, content)?;
        }
        let mut filler = fs::File::create(disk.filler())?;
        while filler.write_all(&[0; 512]).is_ok() {}
        Ok(disk)
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Frees what filled it.
    pub(crate) fn free(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

//! A kernel out of Debian's package, which is not installed; and what it needs to reach the guest's root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::Kernel;
use crate::apt::Suite;
use crate::command::run_quietly;
use crate::workspace::Workspace;

/// Debian's name for the newest kernel of a release, made small for virtual machines.
const NEWEST: &str = "linux-image-cloud-amd64";

/// Brings the kernel's files into a folder; the folder that holds them.
pub(crate) fn fetch(workspace: &Workspace, kernel: Kernel, folder: &Path) -> anyhow::Result<PathBuf> {
    let suite = Suite::read(workspace, kernel.suite(), &folder.join("apt"))?;
    let files = folder.join("files");
    fs::create_dir_all(&files)?;
    suite.unpack(workspace, &suite.dependency(NEWEST)?, &files)?;
    // Newer packages have no /lib of their own, where modprobe looks.
    if !files.join("lib").exists() {
        symlink("usr/lib", files.join("lib"))?;
    }
    let mut index = Command::new("depmod");
    index.arg("--basedir").arg(&files).arg(version(&files)?);
    run_quietly("listing its modules", &mut index, &workspace.log("kernel"))?;
    Ok(files)
}

/// The version, as `uname -r` tells it: the name of the folder of modules.
pub(crate) fn version(files: &Path) -> anyhow::Result<String> {
    let mut folders = fs::read_dir(files.join("lib/modules"))
        .context("no folder of modules")?
        .flatten();
    let folder = folders.next().context("an empty folder of modules")?;
    Ok(folder.file_name().to_string_lossy().into_owned())
}

/// The files of these modules and of those that they need, in the order in which they are loaded.
pub(crate) fn modules(files: &Path, names: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for name in names {
        let output = Command::new("modprobe")
            .arg("--dirname")
            .arg(files)
            .args(["--set-version", &version(files)?, "--show-depends", name])
            .output()
            .context("cannot start modprobe")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // The others are built in.
        let paths = text.lines().filter_map(|line| line.strip_prefix("insmod "));
        for path in paths.map(|path| PathBuf::from(path.trim())) {
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

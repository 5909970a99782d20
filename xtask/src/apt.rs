//! Debian's packages.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::command::{find_program, run_quietly};
use crate::workspace::{Workspace, is_root};

/// Installs packages.
pub(crate) fn install(workspace: &Workspace, packages: &[&str]) -> anyhow::Result<()> {
    let names = packages.join(" ");
    if find_program("apt-get").is_none() {
        bail!("there is no apt-get here: install what Debian 12 calls {names} in your system's way");
    }
    if !is_root() {
        bail!("needs root: run `sudo apt-get install {names}`, or this again as root");
    }
    with_lists(workspace, || try_install(workspace, packages))
}

/// Unpacks a package into a folder, without what its installation would do to the machine.
pub(crate) fn unpack(workspace: &Workspace, package: &str, folder: &Path) -> anyhow::Result<()> {
    if find_program("apt-get").is_none() {
        bail!("there is no apt-get here: get what Debian 12 calls {package} in your system's way");
    }
    with_lists(workspace, || {
        run_quietly(
            &format!("downloading {package}"),
            apt_get().args(["download", package]).current_dir(folder),
            &workspace.log("apt-download"),
        )
    })?;
    let mut files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let archive = files
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get downloaded no {package}"))?;
    run_quietly(
        &format!("unpacking {package}"),
        Command::new("dpkg-deb").arg("--extract").arg(archive).arg(folder),
        &workspace.log("apt-download"),
    )
}

/// Does it with the package lists, which are refreshed when there are none or they are out of date.
fn with_lists(workspace: &Workspace, work: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut updated = false;
    if !has_lists() {
        update(workspace)?;
        updated = true;
    }
    work().or_else(|error| {
        if updated {
            return Err(error);
        }
        update(workspace)?;
        work()
    })
}

fn try_install(workspace: &Workspace, packages: &[&str]) -> anyhow::Result<()> {
    let names = packages.join(" ");
    let mut command = apt_get();
    command
        .args(["install", "--yes", "--no-install-recommends"])
        .args(packages);
    run_quietly(
        &format!("installing {names}"),
        &mut command,
        &workspace.log("apt-install"),
    )
}

fn update(workspace: &Workspace) -> anyhow::Result<()> {
    run_quietly(
        "reading the package lists",
        apt_get().arg("update"),
        &workspace.log("apt-update"),
    )
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether `apt-get update` was ever run: images are often made without the lists.
fn has_lists() -> bool {
    let Ok(entries) = fs::read_dir("/var/lib/apt/lists") else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

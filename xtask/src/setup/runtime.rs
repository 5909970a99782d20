//! The container runtime of the test nodes: containerd, runc and the reference CNI plugins, from Debian's packages.

use std::path::Path;
use std::process::Command;

use super::Item;
use crate::apt;
use crate::command::{ask, find_program};

/// Where Debian puts the reference plugins.
const PLUGINS: &str = "/usr/lib/cni";

pub(super) const ITEM: Item = Item {
    name: "containerd",
    purpose: "tests with pods of a real container runtime",
    find: |_| find(),
    bring: |workspace| apt::install(workspace, &["containerd", "runc", "containernetworking-plugins"]),
    by_hand: "install containerd with ctr, runc, and the reference CNI plugins into /usr/lib/cni",
};

/// The version of containerd, or what is missing.
fn find() -> Result<String, String> {
    for program in ["containerd", "ctr", "runc"] {
        find_program(program).ok_or_else(|| format!("{program} not found"))?;
    }
    if !Path::new(PLUGINS).join("bridge").is_file() {
        return Err(format!("no CNI plugins in {PLUGINS}"));
    }
    let version = ask(Command::new("containerd").arg("--version")).ok_or("containerd does not run")?;
    Ok(version.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}

//! Debian's packages.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::command::{ask, find_program, run_quietly};
use crate::workspace::{Workspace, is_root};

/// Where Debian's releases are.
const MIRROR: &str = "http://deb.debian.org/debian";
/// The keys that they are signed with.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

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
    with_lists(workspace, || download(workspace, &mut apt_get(), package, folder))?;
    extract(workspace, package, folder)
}

fn download(workspace: &Workspace, apt: &mut Command, package: &str, folder: &Path) -> anyhow::Result<()> {
    run_quietly(
        &format!("downloading {package}"),
        apt.args(["download", package]).current_dir(folder),
        &workspace.log("apt-download"),
    )
}

fn extract(workspace: &Workspace, package: &str, folder: &Path) -> anyhow::Result<()> {
    let mut files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let archive = files
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get downloaded no {package}"))?;
    run_quietly(
        &format!("unpacking {package}"),
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(&archive)
            .arg(folder),
        &workspace.log("apt-download"),
    )?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

/// A release of Debian other than this machine's, whose lists are in a folder of their own.
pub(crate) struct Suite(Vec<String>);

impl Suite {
    /// Reads its lists; signed with the keys that this machine has.
    pub(crate) fn read(workspace: &Workspace, name: &str, folder: &Path) -> anyhow::Result<Self> {
        let (list, lists) = (folder.join("sources.list"), folder.join("lists"));
        fs::create_dir_all(lists.join("partial"))?;
        fs::write(&list, format!("deb [signed-by={KEYS}] {MIRROR} {name} main\n"))?;
        let options = [
            format!("Dir::Etc::sourcelist={}", list.display()),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            format!("Dir::State::lists={}", lists.display()),
            "Dir::Cache::pkgcache=".to_owned(),
            "Dir::Cache::srcpkgcache=".to_owned(),
        ];
        let suite = Self(
            options
                .into_iter()
                .flat_map(|option| ["-o".to_owned(), option])
                .collect(),
        );
        run_quietly(
            &format!("reading the package lists of {name}"),
            apt_get().args(&suite.0).arg("update"),
            &workspace.log("apt-suite"),
        )?;
        Ok(suite)
    }

    /// The first package that this one needs: of one that is always the newest, that.
    pub(crate) fn dependency(&self, package: &str) -> anyhow::Result<String> {
        let mut command = Command::new("apt-cache");
        let told = ask(command.args(&self.0).args(["depends", package])).unwrap_or_default();
        let found = told
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: "));
        found
            .map(str::to_owned)
            .with_context(|| format!("there is no {package}"))
    }

    /// Unpacks a package into a folder.
    pub(crate) fn unpack(&self, workspace: &Workspace, package: &str, folder: &Path) -> anyhow::Result<()> {
        download(workspace, apt_get().args(&self.0), package, folder)?;
        extract(workspace, package, folder)
    }
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

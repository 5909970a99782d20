//! The first file system of a guest: a shell, the modules that reach the machine's own files, and what is to be done then.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::modules;

/// Kernel modules without which the machine's files cannot be reached.
const MODULES: [&str; 3] = ["virtiofs", "virtio_pci", "overlay"];

/// Packs it into `scratch`; the archive.
pub(super) fn pack(kernel: &Path, script: &str, scratch: &Path) -> anyhow::Result<PathBuf> {
    let root = scratch.join("initramfs");
    for folder in ["bin", "modules", "proc", "dev", "host", "own", "new"] {
        fs::create_dir_all(root.join(folder))?;
    }
    let shell = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new);
    let shell = shell
        .into_iter()
        .find(|path| path.is_file())
        .context("no busybox")?;
    fs::copy(shell, root.join("bin/busybox"))?;
    for (index, module) in modules(kernel, &MODULES)?.iter().enumerate() {
        copy_module(module, &root.join(format!("modules/{index:02}.ko")))?;
    }
    fs::write(root.join("kernel"), kernel.display().to_string())?;
    fs::write(root.join("script"), script)?;
    fs::write(root.join("init"), include_str!("init.sh"))?;
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
    let archive = scratch.join("initramfs.cpio");
    let status = Command::new("sh")
        .args(["-c", "find . | cpio --create --format=newc --quiet"])
        .current_dir(&root)
        .stdout(File::create(&archive)?)
        .status()
        .context("cannot start cpio")?;
    ensure!(status.success(), "cpio ended with {status}");
    Ok(archive)
}

/// Some kernels come with compressed modules, which busybox does not read.
fn copy_module(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.extension().is_none_or(|extension| extension != "xz") {
        fs::copy(from, to)?;
        return Ok(());
    }
    let status = Command::new("xz")
        .args(["--decompress", "--stdout"])
        .arg(from)
        .stdin(Stdio::null())
        .stdout(File::create(to)?)
        .status()
        .context("cannot start xz")?;
    ensure!(status.success(), "xz ended with {status}");
    Ok(())
}

//! Other kernels than the running one: Debian's, booted in QEMU without KVM over the root file system of this machine, so
//! that the end-to-end tests of the datapath run there as they are.

mod fetch;
mod guest;
mod initramfs;

use std::path::Path;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde_json::Value;

use crate::command::cargo;
use crate::launch::environment;
use crate::setup::Kept;
use crate::summary::Summary;
use crate::workspace::Workspace;

pub(crate) use fetch::{fetch, modules};

/// Tests that show on a kernel that capture works: emulation is some ten times slower, so no more of them each time.
pub(crate) const ESSENTIAL: &[&str] = &["capture", "outbound"];
/// All tests of the datapath, for who asks for one kernel.
pub(crate) const DATAPATH: &[&str] = &[
    "capture",
    "outbound",
    "inbound",
    "client_address",
    "own_ports",
    "trusted",
    "programs",
    "dns",
    "upgrade",
];

/// A kernel, by its version.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kernel {
    /// Linux 6.1, the oldest that is supported: Debian 12
    #[value(name = "6.1")]
    Linux6_1,
    /// Linux 6.12: Debian 13
    #[value(name = "6.12")]
    Linux6_12,
}

impl Kernel {
    /// All that are tested.
    pub(crate) const ALL: [Self; 2] = [Self::Linux6_1, Self::Linux6_12];

    /// Debian's release that has it.
    pub(crate) fn suite(self) -> &'static str {
        match self {
            Self::Linux6_1 => "bookworm",
            Self::Linux6_12 => "trixie",
        }
    }

    /// Its files: `boot/vmlinuz-*` and `lib/modules`.
    pub(crate) fn kept(self) -> Kept {
        let (variable, place) = match self {
            Self::Linux6_1 => ("MESHGATE_KERNEL_6_1", "kernel-6.1"),
            Self::Linux6_12 => ("MESHGATE_KERNEL_6_12", "kernel-6.12"),
        };
        Kept { variable, place }
    }

    fn step(self) -> &'static str {
        match self {
            Self::Linux6_1 => "on Linux 6.1",
            Self::Linux6_12 => "on Linux 6.12",
        }
    }
}

/// Runs these tests on these kernels, one after the other.
pub(crate) fn test(workspace: &Workspace, kernels: &[Kernel], tests: &[&str], summary: &mut Summary) {
    if !cfg!(target_arch = "x86_64") {
        for kernel in kernels {
            summary.skip(kernel.step(), "it is emulated for x86-64 only");
        }
        return;
    }
    let mut binaries = Ok(Vec::new());
    let built = summary.step("tests for other kernels", || {
        binaries = binaries_of(workspace, tests);
        binaries
            .as_ref()
            .map(drop)
            .map_err(|error| anyhow::anyhow!("{error:#}"))
    });
    for kernel in kernels.iter().filter(|_| built) {
        let binaries = binaries.as_deref().unwrap_or_default();
        summary.guest(kernel.step(), binaries.len() as u64, |run| {
            let files = kernel.kept().find().map_err(anyhow::Error::msg)?;
            guest::run(&files, &script(workspace, binaries), run)
        });
    }
}

/// Builds the tests; their binaries.
fn binaries_of(workspace: &Workspace, tests: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut build = cargo();
    build
        .args(["test", "--no-run", "--package", "tests", "--message-format=json"])
        .args(tests.iter().flat_map(|test| ["--test", test]))
        .current_dir(&workspace.root);
    let output = build
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the tests cannot be built");
    }
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let executable = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["profile"]["test"] == true;
        message["executable"]
            .as_str()
            .filter(|_| is_test)
            .map(str::to_owned)
    };
    let binaries: Vec<_> = messages.lines().filter_map(executable).collect();
    anyhow::ensure!(
        binaries.len() == tests.len(),
        "cargo named {} tests",
        binaries.len()
    );
    Ok(binaries)
}

/// What the guest does.
fn script(workspace: &Workspace, binaries: &[String]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    // Not /tmp, where the checkout itself may be.
    let mut lines =
        vec!["export PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/run MESHGATE_SLOWER=10".to_owned()];
    for (name, value) in environment(workspace) {
        lines.push(format!("export {name}={}", quoted(&value.to_string_lossy())));
    }
    lines.push("uname -r; ip link set lo up".to_owned());
    let tests: &Path = &workspace.root.join("tests");
    lines.push(format!("cd {}", quoted(&tests.display().to_string())));
    for binary in binaries {
        lines.push(format!(
            "{} --test-threads=2 --show-output --color=never",
            quoted(binary)
        ));
    }
    lines.join("\n")
}

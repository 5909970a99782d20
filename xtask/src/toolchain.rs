//! Which Rust builds the kernel programs, and the linker that makes one BPF object of them.
//!
//! In this order: the system's `/usr/bin/rustc` when a ready-made `core` for the BPF target lies beside it (Debian:
//! rustc-web, libstd-rust-web-dev-bpf); else rustup's nightly with rust-src, which compiles `core` itself.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::command::{ask, cargo, find_program};
use crate::workspace::Workspace;

/// The target of the kernel programs.
pub(crate) const TARGET: &str = "bpfel-unknown-none";
/// Feature of the other layouts.
pub(crate) const NEXT: &str = "abi-next";
/// The linker's version that is tried here.
pub(crate) const LINKER_VERSION: &str = "0.13.0";
const SYSTEM_RUSTC: &str = "/usr/bin/rustc";
const SYSTEM_CLIPPY: &str = "/usr/bin/clippy-driver";
/// Separator of `CARGO_ENCODED_RUSTFLAGS`.
const FLAG_SEPARATOR: &str = "\u{1f}";

/// A Rust that can compile for the BPF target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// `/usr/bin/rustc` with a ready-made `core`. It is a stable release: `RUSTC_BOOTSTRAP` opens what the programs use
    /// of the unstable language.
    System,
    /// rustup's nightly with rust-src.
    Nightly,
}

impl Toolchain {
    /// The first that is here.
    pub(crate) fn detect() -> Option<Self> {
        [Self::System, Self::Nightly]
            .into_iter()
            .find(|toolchain| toolchain.has_core())
    }

    /// Version and LLVM, for people.
    pub(crate) fn describe(self) -> String {
        let version = self.version_text();
        let first = version
            .lines()
            .next()
            .unwrap_or("rustc of unknown version")
            .to_owned();
        match self {
            Self::System => format!("{first}, ready-made core"),
            Self::Nightly => format!("{first}, core from rust-src"),
        }
    }

    /// Major version of its LLVM: the linker must be of the same, since it reads this LLVM's bitcode.
    pub(crate) fn llvm(self) -> anyhow::Result<u32> {
        llvm_major(&self.version_text()).context("rustc does not tell its LLVM version")
    }

    /// Whether it can also run clippy on the kernel programs.
    pub(crate) fn has_clippy(self) -> bool {
        match self {
            Self::System => Path::new(SYSTEM_CLIPPY).is_file(),
            Self::Nightly => {
                ask(Command::new("rustup").args(["run", "nightly", "cargo", "clippy", "--version"])).is_some()
            }
        }
    }

    /// `cargo build` of the kernel programs.
    pub(crate) fn build(self, workspace: &Workspace, linker: &Path) -> Command {
        self.cargo("build", workspace, &workspace.bpf_target(), linker, &[])
    }

    /// The same with the other layouts, to which the tests upgrade.
    pub(crate) fn build_next(self, workspace: &Workspace, linker: &Path) -> Command {
        let mut command = self.cargo("build", workspace, &workspace.next_bpf_target(), linker, &[]);
        command.args(["--features", NEXT]);
        command
    }

    /// clippy on the kernel programs, warnings denied. The system's has no `cargo clippy` that fits another cargo.
    pub(crate) fn clippy(self, workspace: &Workspace, linker: &Path) -> Command {
        match self {
            Self::System => {
                let mut command = self.cargo(
                    "check",
                    workspace,
                    &workspace.bpf_target(),
                    linker,
                    &["-Dwarnings"],
                );
                command.env("RUSTC_WORKSPACE_WRAPPER", SYSTEM_CLIPPY);
                command
            }
            Self::Nightly => self.cargo(
                "clippy",
                workspace,
                &workspace.bpf_target(),
                linker,
                &["-Dwarnings"],
            ),
        }
    }

    fn cargo(
        self,
        verb: &str,
        workspace: &Workspace,
        target: &Path,
        linker: &Path,
        flags: &[&str],
    ) -> Command {
        let mut command = match self {
            Self::System => {
                let mut command = cargo();
                command
                    .env("RUSTC", SYSTEM_RUSTC)
                    .env("RUSTC_BOOTSTRAP", "1")
                    .arg(verb);
                command
            }
            Self::Nightly => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "cargo", verb, "-Zbuild-std=core"]);
                command
            }
        };
        command
            .args(["--package", "agent-ebpf", "--release", "--target", TARGET, "--target-dir"])
            .arg(target)
            .current_dir(&workspace.root)
            .env("CARGO_ENCODED_RUSTFLAGS", rustflags(linker, flags))
            // The root manifest's release profile strips debug information, and with it the BTF.
            .env("CARGO_PROFILE_RELEASE_DEBUG", "2")
            .env("CARGO_PROFILE_RELEASE_STRIP", "none")
            // As a whole, so that nothing is left that no program calls.
            .env("CARGO_PROFILE_RELEASE_LTO", "fat")
            // `cargo run` points it at the libraries of the Rust that built xtask.
            .env_remove("LD_LIBRARY_PATH");
        command
    }

    fn has_core(self) -> bool {
        let Some(sysroot) = ask(self.rustc().args(["--print", "sysroot"])) else {
            return false;
        };
        let rustlib = Path::new(&sysroot).join("lib/rustlib");
        match self {
            Self::System => has_libcore(&rustlib.join(TARGET).join("lib")),
            Self::Nightly => rustlib.join("src/rust/library/core/Cargo.toml").is_file(),
        }
    }

    fn rustc(self) -> Command {
        let mut command = match self {
            Self::System => Command::new(SYSTEM_RUSTC),
            Self::Nightly => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "rustc"]);
                command
            }
        };
        command.env_remove("LD_LIBRARY_PATH");
        command
    }

    fn version_text(self) -> String {
        ask(self.rustc().arg("-vV")).unwrap_or_default()
    }
}

/// The BPF linker in the version wanted, or what is wrong with it.
pub(crate) fn find_linker() -> Result<PathBuf, String> {
    let linker = find_program("bpf-linker").ok_or_else(|| format!("not found, wanted {LINKER_VERSION}"))?;
    match ask(Command::new(&linker).arg("--version")) {
        Some(text) if text.split_whitespace().last() == Some(LINKER_VERSION) => Ok(linker),
        Some(text) => Err(format!("found {text}, wanted {LINKER_VERSION}")),
        None => Err(format!("{} does not run", linker.display())),
    }
}

/// The toolchain and the linker, or how to get them.
pub(crate) fn require() -> anyhow::Result<(Toolchain, PathBuf)> {
    let toolchain =
        Toolchain::detect().context("no Rust for the BPF target here: run `cargo xtask setup`")?;
    let linker =
        find_linker().map_err(|why| anyhow::anyhow!("bpf-linker: {why}: run `cargo xtask setup`"))?;
    Ok((toolchain, linker))
}

/// Where an LLVM of this major version is: what its Rust bindings honour, else Debian's folder.
pub(crate) fn llvm_prefix(major: u32) -> PathBuf {
    let variable = format!("LLVM_SYS_{major}1_PREFIX");
    env::var_os(variable).map_or_else(|| PathBuf::from(format!("/usr/lib/llvm-{major}")), PathBuf::from)
}

fn rustflags(linker: &Path, more: &[&str]) -> String {
    let linker = format!("-Clinker={}", linker.display());
    let flags = [
        linker.as_str(),
        "-Clink-arg=--btf",
        "-Cdebuginfo=2",
        "-Cpanic=abort",
    ];
    [&flags, more].concat().join(FLAG_SEPARATOR)
}

fn has_libcore(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
}

fn llvm_major(version_text: &str) -> Option<u32> {
    let version = version_text
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_of_llvm_is_read_from_what_rustc_says() {
        assert_eq!(
            llvm_major("rustc 1.96.0\nrelease: 1.96.0\nLLVM version: 22.1.8\n"),
            Some(22)
        );
        assert_eq!(llvm_major("rustc 1.96.0\n"), None);
    }

    #[test]
    fn both_toolchains_keep_the_btf_and_use_our_linker() {
        let workspace = Workspace {
            root: "/src".into(),
            target: "/src/target".into(),
        };
        for toolchain in [Toolchain::System, Toolchain::Nightly] {
            let command = toolchain.build(&workspace, Path::new("/bin/bpf-linker"));
            let environment: Vec<_> = command
                .get_envs()
                .filter_map(|(k, v)| Some((k.to_str()?, v?.to_str()?)))
                .collect();
            assert!(
                environment.contains(&("CARGO_PROFILE_RELEASE_STRIP", "none")),
                "{toolchain:?}"
            );
            let flags = environment
                .iter()
                .find(|(k, _)| *k == "CARGO_ENCODED_RUSTFLAGS")
                .map(|(_, v)| *v);
            assert!(
                flags.is_some_and(|f| f.starts_with("-Clinker=/bin/bpf-linker\u{1f}-Clink-arg=--btf\u{1f}"))
            );
        }
    }
}

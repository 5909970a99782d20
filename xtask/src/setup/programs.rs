//! Programs that packages bring: the Rust and the linker of the kernel programs, linters, network tools.

use std::process::Command;

use anyhow::Context as _;

use super::Item;
use crate::apt;
use crate::command::{ask, cargo, find_program, run_quietly};
use crate::toolchain::{self, LINKER_VERSION, Toolchain};
use crate::workspace::Workspace;

const DENY_VERSION: &str = "0.20.2";

pub(super) const LINTERS: Item = Item {
    name: "rust linters",
    purpose: "cargo xtask check and test",
    find: |_| {
        let version = |verb: &str| {
            ask(cargo().args([verb, "--version"])).ok_or_else(|| format!("`cargo {verb}` does not run"))
        };
        Ok(format!("{}, {}", version("fmt")?, version("clippy")?))
    },
    bring: |workspace| {
        let mut rustup = Command::new("rustup");
        rustup.args(["component", "add", "rustfmt", "clippy"]);
        run_quietly("adding rustfmt and clippy", &mut rustup, &workspace.log("rustup"))
    },
    by_hand: "rustup component add rustfmt clippy",
};

pub(super) const BPF_RUST: Item = Item {
    name: "bpf rust",
    purpose: "building the kernel programs",
    find: |_| {
        let toolchain = Toolchain::detect();
        let toolchain =
            toolchain.ok_or("no Rust here has a `core` for the BPF target, ready-made or as source")?;
        if !toolchain.has_clippy() {
            return Err(format!("{}, but its clippy is missing", toolchain.describe()));
        }
        Ok(toolchain.describe())
    },
    bring: |workspace| {
        if find_program("apt-get").is_some() {
            return apt::install(
                workspace,
                &["rustc-web", "libstd-rust-web-dev-bpf", "rust-web-clippy"],
            );
        }
        let mut rustup = Command::new("rustup");
        rustup.args([
            "toolchain",
            "install",
            "nightly",
            "--component",
            "rust-src",
            "--component",
            "clippy",
        ]);
        run_quietly(
            "installing nightly with rust-src",
            &mut rustup,
            &workspace.log("rustup"),
        )
    },
    by_hand: "Debian 12: apt-get install rustc-web libstd-rust-web-dev-bpf rust-web-clippy; \
              elsewhere: rustup toolchain install nightly --component rust-src --component clippy",
};

pub(super) const BPF_LINKER: Item = Item {
    name: "bpf-linker",
    purpose: "building the kernel programs",
    find: |_| toolchain::find_linker().map(|path| format!("{LINKER_VERSION}, {}", path.display())),
    bring: bring_linker,
    by_hand: "install LLVM's development files of the major version that `rustc -vV` of the BPF Rust tells, then \
              cargo install bpf-linker --version <wanted> --locked --no-default-features --features llvm-<major>",
};

pub(super) const IP: Item = Item {
    name: "ip",
    purpose: "namespaces and links of tests and demo",
    find: |_| program("ip", "-V"),
    bring: |workspace| apt::install(workspace, &["iproute2"]),
    by_hand: "install iproute2",
};

pub(super) const IPTABLES: Item = Item {
    name: "iptables",
    purpose: "tests of the switch-over, and the comparison of benchmarks with in-pod iptables",
    find: |_| program("iptables", "--version"),
    bring: |workspace| apt::install(workspace, &["iptables"]),
    by_hand: "install iptables",
};

pub(super) const NFT: Item = Item {
    name: "nft",
    purpose: "tests of the switch-over from rules of Istio's agent",
    find: |_| program("nft", "--version"),
    bring: |workspace| apt::install(workspace, &["nftables"]),
    by_hand: "install nftables",
};

pub(super) const BPFTOOL: Item = Item {
    name: "bpftool",
    purpose: "tests that read the pinned maps as an operator would",
    find: |_| program("bpftool", "version"),
    bring: |workspace| apt::install(workspace, &["bpftool"]),
    by_hand: "install bpftool (in the package linux-tools on some systems)",
};

pub(super) const DIG: Item = Item {
    name: "dig",
    purpose: "tests of DNS capture",
    find: |_| {
        find_program("dig")
            .map(|path| path.display().to_string())
            .ok_or_else(|| "not found".to_owned())
    },
    bring: |workspace| apt::install(workspace, &["bind9-dnsutils"]),
    by_hand: "install dig (package bind9-dnsutils, bind-utils or bind)",
};

pub(super) const MUSL: Item = Item {
    name: "musl-gcc",
    purpose: "tests of DNS capture with musl's resolver",
    find: |_| program("musl-gcc", "--version"),
    bring: |workspace| apt::install(workspace, &["musl-tools"]),
    by_hand: "install musl with its compiler musl-gcc (package musl-tools or musl)",
};

pub(super) const DENY: Item = Item {
    name: "cargo-deny",
    purpose: "the licence check in cargo xtask check",
    find: |_| ask(cargo().args(["deny", "--version"])).ok_or_else(|| "not found".to_owned()),
    bring: |workspace| {
        let mut install = cargo();
        install.args(["install", "cargo-deny", "--locked", "--version", DENY_VERSION]);
        run_quietly("building cargo-deny", &mut install, &workspace.log("cargo-deny"))
    },
    by_hand: "cargo install cargo-deny --locked",
};

/// The linker is built against the LLVM major version of the Rust whose bitcode it will read.
fn bring_linker(workspace: &Workspace) -> anyhow::Result<()> {
    let toolchain =
        Toolchain::detect().context("needs the BPF Rust first: its LLVM decides which one to link")?;
    let major = toolchain.llvm()?;
    let prefix = toolchain::llvm_prefix(major);
    if !prefix.join("bin/llvm-config").is_file() {
        apt::install(workspace, &[&format!("llvm-{major}-dev")])?;
    }
    let mut install = cargo();
    install
        .args([
            "install",
            "bpf-linker",
            "--version",
            LINKER_VERSION,
            "--locked",
            "--force",
            "--no-default-features",
        ])
        .args(["--features", &format!("llvm-{major}")])
        .env("LLVM_PREFIX", &prefix)
        .env(format!("LLVM_SYS_{major}1_PREFIX"), &prefix)
        .env_remove("CARGO_TARGET_DIR");
    run_quietly(
        &format!("building bpf-linker with LLVM {major}"),
        &mut install,
        &workspace.log("bpf-linker"),
    )
}

/// Where the program is and the first line of what it says of its version.
fn program(name: &str, version_flag: &str) -> Result<String, String> {
    let path = find_program(name).ok_or("not found")?;
    let version =
        ask(Command::new(&path).arg(version_flag)).ok_or_else(|| format!("{} fails", path.display()))?;
    Ok(version.lines().next().unwrap_or_default().to_owned())
}

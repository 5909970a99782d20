//! The checks that need nothing but a compiler, each a step of its own, and the verb `check`.

use crate::command::{ask, cargo, run};
use crate::summary::Summary;
use crate::tidy;
use crate::toolchain;
use crate::workspace::Workspace;

/// All crates but the kernel programs, which need another Rust.
pub(crate) const USERSPACE: [&str; 3] = ["--workspace", "--exclude", "agent-ebpf"];

/// The verb `check`.
pub(crate) fn all(workspace: &Workspace) -> bool {
    let mut summary = Summary::default();
    quick(workspace, &mut summary);
    licences(workspace, &mut summary);
    summary.print()
}

/// Format, tidy and lints.
pub(crate) fn quick(workspace: &Workspace, summary: &mut Summary) {
    summary.step("format", || {
        run(cargo()
            .args(["fmt", "--all", "--check"])
            .current_dir(&workspace.root))
    });
    summary.step("tidy", || tidy::check(workspace));
    summary.step("lints", || {
        let mut clippy = cargo();
        clippy
            .arg("clippy")
            .args(USERSPACE)
            .args(["--all-targets", "--", "-D", "warnings"]);
        run(clippy.current_dir(&workspace.root))
    });
    match toolchain::require() {
        Ok((toolchain, linker)) if toolchain.has_clippy() => {
            summary.step("lints of the programs", || {
                run(&mut toolchain.clippy(workspace, &linker))
            });
        }
        Ok(_) => summary.skip(
            "lints of the programs",
            "no clippy for the BPF Rust: `cargo xtask setup`",
        ),
        Err(error) => summary.skip("lints of the programs", format!("{error:#}")),
    }
}

/// That the documentation builds and its links lead somewhere.
pub(crate) fn docs(workspace: &Workspace, summary: &mut Summary) {
    summary.step("docs", || {
        let mut doc = cargo();
        doc.arg("doc")
            .args(USERSPACE)
            .args(["--no-deps", "--document-private-items"]);
        run(doc
            .env("RUSTDOCFLAGS", "-D warnings")
            .current_dir(&workspace.root))
    });
}

/// What deny.toml says, except for advisories: their list is no part of the source tree.
fn licences(workspace: &Workspace, summary: &mut Summary) {
    if ask(cargo().args(["deny", "--version"])).is_none() {
        return summary.skip(
            "licences",
            "cargo-deny is not installed: `cargo xtask setup --with deny`",
        );
    }
    summary.step("licences", || {
        let mut deny = cargo();
        deny.args(["deny", "check", "bans", "licenses", "sources"]);
        run(deny.current_dir(&workspace.root))
    });
}

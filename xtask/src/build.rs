//! Building: the kernel programs into one BPF object, then what embeds it or runs beside it, linked statically: the CNI
//! plugin runs on the node itself, whatever C library is there, and an image needs nothing but the binaries.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::Output;
use crate::command::{cargo, run, say};
use crate::report::Report;
use crate::toolchain::{self, NEXT, TARGET};
use crate::workspace::{Workspace, host};

/// Links the C library into the binary. glibc is linked as well as musl can be: it comes with every C compiler of
/// Debian, no other target must be installed, and its look-ups of names read files and ask DNS without plug-ins.
const STATIC: &str = "-Ctarget-feature=+crt-static";
/// Built by themselves: cargo would give them every feature of a library that any other package of the same build asks for.
const SHIPPED: [&str; 2] = ["agent", "agent-cni"];
/// Names the BPF object to the agent's build script and to the tests.
pub(crate) const OBJECT_VARIABLE: &str = "MESHGATE_EBPF_OBJECT";

/// The verb `build-ebpf`.
pub(crate) fn ebpf(workspace: &Workspace, output: Output) -> anyhow::Result<()> {
    let report = object(workspace)?;
    match output {
        Output::Table => println!("{report}"),
        Output::Json => println!("{}", report.json()),
    }
    Ok(())
}

/// The verb `build`.
pub(crate) fn all(workspace: &Workspace) -> anyhow::Result<()> {
    let start = Instant::now();
    shipped(workspace)?;
    say("building the demo, the benchmarks and what tests run");
    run(&mut static_build(workspace, &["tests"]))?;
    say(format!(
        "built in {} s: meshgate, meshgate-cni, the demo and the benchmarks in {}; try `cargo xtask demo`",
        start.elapsed().as_secs(),
        workspace.binaries().display()
    ));
    Ok(())
}

/// Builds the kernel programs, or finds them up to date, and reads the object as the agent's loader will.
fn object(workspace: &Workspace) -> anyhow::Result<Report> {
    let (toolchain, linker) = toolchain::require()?;
    say(format!(
        "building the kernel programs with {}",
        toolchain.describe()
    ));
    run(&mut toolchain.build(workspace, &linker))?;
    Report::read(&object_path(workspace))
}

/// Builds the agent with other layouts of the maps, for the tests of upgrades: not optimized, since nothing is measured.
pub(crate) fn next(workspace: &Workspace) -> anyhow::Result<()> {
    let (toolchain, linker) = toolchain::require()?;
    run(&mut toolchain.build_next(workspace, &linker))?;
    let object = workspace
        .next_bpf_target()
        .join(TARGET)
        .join("release/meshgate-ebpf");
    let mut command = cargo();
    command
        .args([
            "build",
            "--package",
            "agent",
            "--bin",
            "meshgate-next",
            "--features",
            NEXT,
        ])
        .current_dir(&workspace.root)
        .env(OBJECT_VARIABLE, object);
    run(&mut command)
}

/// Where the object is, once built.
pub(crate) fn object_path(workspace: &Workspace) -> PathBuf {
    workspace.bpf_target().join(TARGET).join("release/meshgate-ebpf")
}

/// Builds what is shipped, the agent and the CNI plugin, and what they embed.
pub(crate) fn shipped(workspace: &Workspace) -> anyhow::Result<()> {
    object(workspace)?;
    say("building the agent and the CNI plugin");
    run(&mut static_build(workspace, &SHIPPED))
}

/// `cargo build` of release binaries without any library of the system. The target is named although it is the host's
/// own: with it the flags are for the binaries only, and not for macros, which are libraries that the compiler loads.
fn static_build(workspace: &Workspace, packages: &[&str]) -> Command {
    let mut command = cargo();
    command
        .args(["build", "--release", "--target", &host()])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .current_dir(&workspace.root)
        .env("CARGO_ENCODED_RUSTFLAGS", STATIC)
        .env(OBJECT_VARIABLE, object_path(workspace));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_are_built_static_where_they_are_looked_for() {
        let workspace = Workspace {
            root: "/src".into(),
            target: "/src/target".into(),
        };
        let command = static_build(&workspace, &["agent", "agent-cni"]);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let target = words
            .iter()
            .position(|word| word == "--target")
            .map(|at| &words[at + 1]);
        let target = target.expect("a target is named");
        assert_eq!(
            workspace.binaries(),
            PathBuf::from(format!("/src/target/{target}/release"))
        );
        assert!(words.ends_with(&[
            "--package".into(),
            "agent".into(),
            "--package".into(),
            "agent-cni".into()
        ]));
        let flags = command
            .get_envs()
            .find(|(name, _)| *name == "CARGO_ENCODED_RUSTFLAGS");
        assert_eq!(
            flags.and_then(|(_, flags)| flags),
            Some("-Ctarget-feature=+crt-static".as_ref())
        );
    }
}

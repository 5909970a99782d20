//! Building: the kernel programs into one BPF object, then what embeds it or runs beside it.

use std::path::PathBuf;
use std::time::Instant;

use crate::Output;
use crate::command::{cargo, run, say};
use crate::report::Report;
use crate::toolchain::{self, TARGET};
use crate::workspace::Workspace;

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
    object(workspace)?;
    userspace(workspace)?;
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

/// Where the object is, once built.
pub(crate) fn object_path(workspace: &Workspace) -> PathBuf {
    workspace.bpf_target().join(TARGET).join("release/meshgate-ebpf")
}

/// Builds the binaries of user space around the object.
fn userspace(workspace: &Workspace) -> anyhow::Result<()> {
    say("building the agent, the CNI plugin, the demo and the benchmarks");
    let mut command = cargo();
    command
        .args([
            "build",
            "--release",
            "--package",
            "agent",
            "--package",
            "agent-cni",
            "--package",
            "tests",
        ])
        .current_dir(&workspace.root)
        .env(OBJECT_VARIABLE, object_path(workspace));
    run(&mut command)
}

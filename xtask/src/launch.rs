//! Running what was built as root: the environment of tests, demo and benchmarks, and the verbs `demo` and `bench`.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use crate::Output;
use crate::build::{self, OBJECT_VARIABLE};
use crate::command::{display, say};
use crate::image;
use crate::setup;
use crate::workspace::{Workspace, is_root};

/// What `demo` was asked.
#[derive(clap::Args)]
pub(crate) struct DemoArgs {
    /// Leave the namespaces, and print how to look into them and how to remove them
    #[arg(long)]
    keep: bool,
    /// Take the pods from a real API server instead of a file (built once, minutes)
    #[arg(long)]
    kube: bool,
}

/// What `bench` was asked.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// What is measured
    #[arg(value_enum)]
    subject: Subject,
    /// How the figures are printed
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Options of meshgate-bench itself; `-- --help` lists them
    #[arg(last = true)]
    more: Vec<String>,
}

/// What can be measured.
#[derive(Clone, Copy, ValueEnum)]
enum Subject {
    /// Connections, requests and bytes per second through the proxy
    Redirect,
    /// Time and number of pods enrolled
    Enrol,
    /// Memory and processor time of an agent with nothing to do
    Agent,
    /// Time that the CNI plugin adds to the start of a pod
    Cni,
    /// Time from the agent's start until it is ready
    Restart,
    /// Time of a container runtime to make sandboxes
    Cri,
    /// Time of a question to the proxy's DNS server
    Dns,
}

/// The verb `demo`.
pub(crate) fn demo(workspace: &Workspace, args: &DemoArgs) -> anyhow::Result<bool> {
    require_root("demo")?;
    let kube = if args.kube { setup::KUBE } else { &[] };
    setup::ensure(workspace, &[setup::BUILD, setup::TESTS, kube])?;
    build::all(workspace)?;
    let flags = [("--keep", args.keep), ("--kube", args.kube)];
    let flags: Vec<_> = flags
        .iter()
        .filter(|(_, given)| *given)
        .map(|(flag, _)| *flag)
        .collect();
    launch(workspace, "meshgate-demo", &flags)
}

/// The verb `bench`.
pub(crate) fn bench(workspace: &Workspace, args: &BenchArgs) -> anyhow::Result<bool> {
    require_root("bench")?;
    let kube = match args.subject {
        Subject::Agent => setup::KUBE,
        _ => &[],
    };
    setup::ensure(workspace, &[setup::BUILD, setup::TESTS, kube])?;
    build::all(workspace)?;
    let subject = match args.subject {
        Subject::Redirect => "redirect",
        Subject::Enrol => "enrol",
        Subject::Agent => "agent",
        Subject::Cni => "cni",
        Subject::Restart => "restart",
        Subject::Cri => "cri",
        Subject::Dns => "dns",
    };
    let output = match args.output {
        Output::Table => "table",
        Output::Json => "json",
    };
    let more = args.more.iter().map(String::as_str);
    let args: Vec<_> = [subject, "--output", output].into_iter().chain(more).collect();
    launch(workspace, "meshgate-bench", &args)
}

/// Where tests, demo and benchmarks find what was built and brought. What is not here is not named.
pub(crate) fn environment(workspace: &Workspace) -> Vec<(&'static str, OsString)> {
    let mut variables = vec![
        (OBJECT_VARIABLE, build::object_path(workspace).into()),
        ("MESHGATE_BIN_DIR", workspace.binaries().into()),
    ];
    variables.extend(
        image::built(workspace)
            .is_file()
            .then(|| ("MESHGATE_IMAGE", image::built(workspace).into())),
    );
    variables.extend(
        Some(workspace.next())
            .filter(|binary| binary.is_file())
            .map(|binary| ("MESHGATE_NEXT", binary.into())),
    );
    variables.extend(setup::kube(workspace).map(|folder| ("KUBEBUILDER_ASSETS", folder.into())));
    for part in [setup::ENVOY, setup::PROMTOOL] {
        variables.extend(part.find().map(|binary| (part.variable, binary.into())));
    }
    variables
}

/// An error that says how to become root.
pub(crate) fn require_root(verb: &str) -> anyhow::Result<()> {
    if !is_root() {
        bail!("root makes namespaces and loads programs: run `sudo -E env PATH=$PATH cargo xtask {verb}`");
    }
    Ok(())
}

/// Becomes the program, so that its signals and its exit code are those of the verb.
fn launch(workspace: &Workspace, name: &str, args: &[&str]) -> anyhow::Result<bool> {
    use std::os::unix::process::CommandExt as _;
    let program = workspace.binaries().join(name);
    let mut command = Command::new(&program);
    command
        .args(args)
        .envs(environment(workspace))
        .current_dir(&workspace.root);
    say(format!("running {}", display(&command)));
    Err(command.exec()).with_context(|| format!("cannot start {}", program.display()))
}

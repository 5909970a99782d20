//! The command line: verbs, exit codes, output. Reading verbs work from the pins, also when the agent is dead.

pub mod output;
pub mod run;
pub mod status;
pub mod pods;
pub mod maps;
pub mod counters;
pub mod log_level;
pub mod preflight;
pub mod mount_bpffs;
pub mod cleanup;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::chain::chain;
use crate::config::{Paths, RunArgs};
use output::Format;

/// How a command ended (docs/cli.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Fine.
    Fine,
    /// It failed; the error says why.
    Failed,
    /// Done, and something is degraded; the output says what.
    Degraded,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Fine => Self::SUCCESS,
            Exit::Failed => Self::from(1),
            Exit::Degraded => Self::from(3),
        }
    }
}

/// The node agent of an ambient mesh: redirects pods' connections to the node's proxy, in the kernel.
#[derive(Parser, Debug)]
#[command(
    name = "meshgate",
    version,
    after_help = "Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 something is degraded.\n\
                  Example: meshgate status -o json"
)]
pub struct Cli {
    /// Output: a table for people, or JSON with stable names
    #[arg(short, long, global = true, value_enum, default_value = "table")]
    pub output: Format,
    /// Where things are
    #[command(flatten)]
    pub paths: Paths,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// A verb.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run the agent
    #[command(after_help = "Example: meshgate run --source file:/etc/meshgate/manifests --node node-a")]
    Run(Box<RunArgs>),
    /// Show how the agent, its links and its pods are
    #[command(after_help = "Example: meshgate status\nExits with 3 when something is degraded.")]
    Status,
    /// List the pods of this node: captured or not, and why
    #[command(after_help = "Example: meshgate pods -o json | jq '.[] | select(.state != \"enabled\")'")]
    Pods,
    /// Read the maps
    #[command(subcommand, after_help = "Example: meshgate maps dump ADDRESSES")]
    Maps(maps::MapsCommand),
    /// Show what was decided for each pod's connections
    #[command(after_help = "Example: meshgate counters --pod default/web")]
    Counters(counters::CountersArgs),
    /// Show or change what a running agent logs
    #[command(
        name = "log-level",
        after_help = "Example: meshgate log-level info,zds:debug\nLasts until the agent ends; for ever: --log-level of run."
    )]
    LogLevel(log_level::LogLevelArgs),
    /// Check what the kernel offers and what would break the agent
    #[command(
        after_help = "Example: meshgate preflight\nExits with 1 when something needed is missing, 3 when \
                            something optional is."
    )]
    Preflight,
    /// Mount a bpffs, where the pins are, if the node has none
    #[command(
        name = "mount-bpffs",
        after_help = "Example: meshgate mount-bpffs --bpffs /sys/fs/bpf"
    )]
    MountBpffs,
    /// Remove everything of ours from this node, and prove that nothing is left
    #[command(after_help = "Example: meshgate cleanup\nThe agent must not be running.")]
    Cleanup(Box<cleanup::CleanupArgs>),
}

/// Parses the command line, runs the command, says how it ended.
#[must_use]
pub fn main() -> ExitCode {
    match execute(Cli::parse()) {
        Ok(exit) => exit.into(),
        Err(error) => {
            let told = chain(&*error);
            let is_denied = told.contains("Permission denied") || told.contains("not permitted");
            let fix = if is_denied && !rustix::process::geteuid().is_root() {
                "; run it as root"
            } else {
                ""
            };
            eprintln!("error: {told}{fix}");
            Exit::Failed.into()
        }
    }
}

/// Runs a command; the table or JSON goes to standard output.
///
/// # Errors
/// What made the command fail, with what to do.
pub fn execute(cli: Cli) -> anyhow::Result<Exit> {
    let (paths, format) = (&cli.paths, cli.output);
    match cli.command {
        Command::Run(args) => run::execute(paths, &args),
        Command::Status => status::execute(paths, format),
        Command::Pods => pods::execute(paths, format),
        Command::Maps(command) => maps::execute(paths, format, &command),
        Command::Counters(args) => counters::execute(paths, format, &args),
        Command::LogLevel(args) => log_level::execute(paths, format, &args),
        Command::Preflight => preflight::execute(paths, format),
        Command::MountBpffs => mount_bpffs::execute(paths, format),
        Command::Cleanup(args) => cleanup::execute(paths, format, &args),
    }
}

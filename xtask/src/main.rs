//! `cargo xtask`: every developer's verb. This file says only which verbs there are.

mod apt;
mod build;
mod check;
mod command;
mod fnv;
mod image;
mod kernels;
mod launch;
mod report;
mod setup;
mod summary;
mod test;
mod testrun;
mod tidy;
mod toolchain;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::workspace::Workspace;

/// Meshgate's developer verbs. Results go to stdout, progress to stderr.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Bring what the other verbs need and this machine lacks; the second time it changes nothing
    Setup(setup::Args),
    /// Build the kernel programs and list them
    BuildEbpf {
        /// How the list is printed
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Build the kernel programs, the agent, the CNI plugin, the demo and the benchmarks (release)
    Build,
    /// Build the agent and the CNI plugin (release, static) and pack them as an OCI image archive; needs no engine
    Image(image::Args),
    /// Format, lints, tidy, docs, unit tests and, as root, the end-to-end tests
    Test(test::Args),
    /// A node, pods and proxies in namespaces of their own, redirected while you watch (root)
    Demo(launch::DemoArgs),
    /// Measure against no mesh and against iptables, interleaved (root)
    Bench(launch::BenchArgs),
    /// Check what compilers do not: docs, length, names, directions of imports, where unsafe is, layouts, links
    Tidy {
        /// Record the layouts of agent-common as they are now
        #[arg(long)]
        bless: bool,
    },
    /// The quick checks before a commit: format, lints, tidy, and licences when cargo-deny is installed
    Check,
}

/// How a result is printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

fn main() -> ExitCode {
    match run(Cli::parse().verb) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all was well; what was not has been printed then.
fn run(verb: Verb) -> anyhow::Result<bool> {
    let workspace = Workspace::find()?;
    match verb {
        Verb::Setup(args) => setup::run(&workspace, &args),
        Verb::BuildEbpf { output } => build::ebpf(&workspace, output).map(|()| true),
        Verb::Build => build::all(&workspace).map(|()| true),
        Verb::Image(args) => image::run(&workspace, &args).map(|()| true),
        Verb::Test(args) => test::run(&workspace, &args),
        Verb::Demo(args) => launch::demo(&workspace, &args),
        Verb::Bench(args) => launch::bench(&workspace, &args),
        Verb::Tidy { bless } => tidy::run(&workspace, bless),
        Verb::Check => Ok(check::all(&workspace)),
    }
}

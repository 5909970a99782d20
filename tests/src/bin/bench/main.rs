//! `meshgate-bench`: what redirection and enrolment cost, against no mesh, against iptables, and against the limit.
//! docs/benchmarks.md explains each figure and holds the latest ones.

mod agent;
mod bed;
mod cell;
mod cni;
mod cri;
mod dns;
mod enrol;
mod figures;
mod machine;
mod outside;
mod redirect;
mod restart;
mod table;
mod target;

use ::tests::tuning;
use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

/// Measures Meshgate against iptables, in namespaces of its own.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example: cargo xtask bench redirect\n         meshgate-bench redirect --path pod-to-pod --repeats 9 -o json\n\
                        Needs root, iptables, and a release build."
)]
struct Options {
    /// How the figures are printed
    #[arg(short, long, global = true, value_enum, default_value = "table")]
    output: Output,
    /// The processor on which everything runs; default: the last one, and for `cni` all
    #[arg(long, global = true)]
    cpu: Option<usize>,
    /// So short that the figures mean nothing: shows that it works
    #[arg(long, global = true)]
    quick: bool,
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For programs: the fields are told in docs/benchmarks.md.
    Json,
}

#[derive(Debug, Subcommand)]
enum Subject {
    /// Connections, requests and bytes per second through the proxy
    Redirect(redirect::Options),
    /// Time to take pods into the mesh and to let them go
    Enrol(enrol::Options),
    /// Memory and processor time of an agent with nothing to do
    Agent(agent::Options),
    /// Time that the CNI plugin adds to the start of a pod
    Cni(cni::Options),
    /// Questions to name servers that the proxy answers
    Dns(dns::Options),
    /// Time from the agent's start until it is ready, on a node with pods
    Restart(restart::Options),
    /// Time in which a container runtime makes sandboxes, with our plugin and without
    Cri(cri::Options),
}

fn main() -> Result<()> {
    let options = Options::parse();
    let last = std::thread::available_parallelism()?.get() - 1;
    // Children inherit both: applications, proxies and agents run where this runs. A runtime's plugins run everywhere.
    match (&options.subject, options.cpu) {
        // Nothing races in the latter, and its control plane has much to do.
        (Subject::Cni(_) | Subject::Agent(_), None) => {}
        (_, cpu) => tuning::pin(cpu.unwrap_or(last))?,
    }
    let is_alone = !options.quick && !matches!(options.subject, Subject::Agent(_));
    let _first = is_alone.then(tuning::First::become_first).transpose()?;
    let report = match &options.subject {
        Subject::Redirect(subject) => redirect::run(subject, options.quick)?,
        Subject::Enrol(subject) => enrol::run(subject, options.quick)?,
        Subject::Agent(subject) => agent::run(subject, options.quick)?,
        Subject::Cni(subject) => cni::run(subject, options.quick)?,
        Subject::Restart(subject) => restart::run(subject, options.quick)?,
        Subject::Dns(subject) => dns::run(subject, options.quick)?,
        Subject::Cri(subject) => cri::run(subject, options.quick)?,
    };
    match options.output {
        Output::Table => report.lines.iter().for_each(|line| println!("{line}")),
        Output::Json => println!("{:#}", report.json),
    }
    Ok(())
}

/// What a benchmark found, for people and for programs.
struct Report {
    lines: Vec<String>,
    json: serde_json::Value,
}

//! The agent's program: parse, run the command, say how it ended.

use std::process::ExitCode;

use agent::chain::chain;
use agent::cli::{Cli, Exit, execute};
use clap::Parser;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match execute(cli) {
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

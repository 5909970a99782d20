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
            eprintln!("error: {}", chain(&*error));
            Exit::Failed.into()
        }
    }
}

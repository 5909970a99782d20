//! The agent's program with other layouts of the maps: what the tests upgrade to.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent::cli::main()
}

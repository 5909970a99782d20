//! `meshgate log-level`: what a running agent logs, shown and changed.

use clap::Args;
use serde_json::json;

use super::Exit;
use super::output::{self, Format};
use crate::config::Paths;
use crate::ops;

/// What is to be logged.
#[derive(Args, Debug)]
pub struct LogLevelArgs {
    /// New levels, all of them: a level, and SCOPE:LEVEL for parts; as --log-level of run. Without: only show
    levels: Option<String>,
}

/// Shows or changes the levels.
///
/// # Errors
/// When no agent runs with this run dir, or the levels are none.
pub fn execute(paths: &Paths, format: Format, args: &LogLevelArgs) -> anyhow::Result<Exit> {
    let levels = ops::ask(&paths.run_dir, args.levels.as_deref())?;
    match format {
        Format::Json => output::json(&json!({"log_level": levels}))?,
        Format::Table => output::lines([levels])?,
    }
    Ok(Exit::Fine)
}

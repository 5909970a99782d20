//! `meshgate run`: the agent itself.

use super::Exit;
use crate::app;
use crate::config::{Paths, RunArgs};

/// Runs the agent until it is told to stop.
///
/// # Errors
/// When it cannot start, or a part that it cannot do without ends.
pub fn execute(paths: &Paths, args: &RunArgs) -> anyhow::Result<Exit> {
    let log = app::log_to_stderr(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(app::run(paths, args, &log))?;
    Ok(Exit::Fine)
}

//! `meshgate run`: the agent itself.

use agent_core::departure::Departure;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::Exit;
use crate::app::{self, installation};
use crate::cgroup_ns;
use crate::config::{Paths, RunArgs};
use crate::install;

/// Runs the agent until it is told to stop. When that is for good, what it has installed goes too.
///
/// # Errors
/// When it cannot start, or a part that it cannot do without ends.
pub fn execute(paths: &Paths, args: &RunArgs) -> anyhow::Result<Exit> {
    let log = app::log_to_stderr(args)?;
    open_as_many_files_as_allowed();
    // Before there are other threads.
    match cgroup_ns::join(&args.proc_root()) {
        Ok(true) => tracing::info!("in the node's cgroup namespace"),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!("the node's cgroup namespace: {error}; cgroups of pods may not be found");
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let departure = runtime.block_on(app::run(paths, args, &log))?;
    // With it ends the installer, also where it waits for the disk: nobody puts back what is removed now.
    drop(runtime);
    if args.install.install_cni && matches!(departure, Departure::Removed { .. }) {
        let removed = install::remove(&installation::removal(&args.install.place));
        for file in &removed.files {
            tracing::info!("the CNI plugin is gone from {}", file.display());
        }
        for left in &removed.left {
            tracing::error!("left: {left}");
        }
    }
    Ok(Exit::Fine)
}

/// Some start their services with a limit of 1024 files, and the agent holds one for each pod and for each plugin that waits.
fn open_as_many_files_as_allowed() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Raised or not, it works with what it has.
    let _ = setrlimit(Resource::Nofile, limit);
}

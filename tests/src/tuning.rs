//! What our own tools ask of the machine for themselves: open files and a processor.

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Open files for 40,000 connections and more.
const WANTED: u64 = 1 << 20;

/// Raises the limit of open files to one million, or as far as it goes.
///
/// # Errors
/// When even the hard limit is refused.
pub fn raise_open_files() -> Result<()> {
    let wanted = Rlimit {
        current: Some(WANTED),
        maximum: Some(WANTED),
    };
    if setrlimit(Resource::Nofile, wanted).is_ok() {
        return Ok(());
    }
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: hard,
            maximum: hard,
        },
    )
    .context("raising the limit of open files")
}

/// How many files a process may open after [`raise_open_files`]: without `CAP_SYS_RESOURCE` the hard limit.
#[must_use]
pub fn open_files() -> usize {
    // A limit that cannot be raised now cannot be raised by the tools either, and one that can is raised for them too.
    let _ = raise_open_files();
    getrlimit(Resource::Nofile).current.unwrap_or(WANTED) as usize
}

/// Runs this thread, and those that it starts, on one processor only.
///
/// # Errors
/// When there is no such processor.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("running on processor {cpu}"))
}

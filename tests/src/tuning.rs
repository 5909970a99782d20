//! What our own tools ask of the machine for themselves: open files and a processor.

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Raises the limit of open files as far as root may (one million: 40,000 connections need more than the default).
///
/// # Errors
/// When even the hard limit is refused.
pub fn raise_open_files() -> Result<()> {
    let wanted = Rlimit {
        current: Some(1 << 20),
        maximum: Some(1 << 20),
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

/// Runs this thread, and those that it starts, on one processor only.
///
/// # Errors
/// When there is no such processor.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("running on processor {cpu}"))
}

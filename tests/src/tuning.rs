//! What our own tools ask of the machine for themselves: open files, a processor, and to run before others.

use std::fs;

use anyhow::{Context, Result};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// The best niceness (nice(2)).
const HIGHEST: i32 = -20;

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

/// Lets all threads of another process run on every processor.
///
/// # Errors
/// When the process cannot be read; a thread that ends meanwhile is passed over.
pub fn unpin(process: u32) -> Result<()> {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    for thread in fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
        let name = thread.file_name().to_string_lossy().into_owned();
        if let Some(thread) = name.parse().ok().and_then(Pid::from_raw) {
            let _ = sched_setaffinity(Some(thread), &all);
        }
    }
    Ok(())
}

/// Niceness of the sessions' group of this process, which the kernel keeps only when it schedules by sessions.
const AUTOGROUP: &str = "/proc/self/autogroup";

/// Before others, until it is dropped.
#[derive(Debug)]
pub struct First {
    autogroup: Option<String>,
}

impl First {
    /// This process, and those that it starts, run before others. Niceness alone counts within a session only, where
    /// the kernel schedules by sessions (sched(7), "The autogroup feature"): the session's group is raised too.
    ///
    /// # Errors
    /// Without the privilege.
    pub fn become_first() -> Result<Self> {
        setpriority_process(None, HIGHEST).context("raising the priority")?;
        let autogroup = fs::read_to_string(AUTOGROUP).ok();
        let before = autogroup
            .as_deref()
            .and_then(|text| text.trim().rsplit(' ').next().map(str::to_owned));
        if before.is_some() {
            fs::write(AUTOGROUP, HIGHEST.to_string()).with_context(|| format!("writing {AUTOGROUP}"))?;
        }
        Ok(Self { autogroup: before })
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if let Some(before) = &self.autogroup {
            let _ = fs::write(AUTOGROUP, before);
        }
    }
}

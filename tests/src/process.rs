//! A process of a fixture: its lines are awaited, and it does not outlive its owner.

use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;

use crate::wait::{LIMIT, patient, readable};

/// How a process ended: its exit code, what it printed, and what it complained of.
pub type Said = (Option<i32>, String, String);

/// [`Said`] from an output.
#[must_use]
pub fn said(output: &Output) -> Said {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A running process. Its stdin stays open until [`Process::close_stdin`]; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    what: String,
    child: Child,
    pidfd: OwnedFd,
    stdout: Option<ChildStdout>,
    unread: Vec<u8>,
}

impl Process {
    /// Starts it with stdin and, unless the command sends it elsewhere, stdout as pipes.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(what: &str, command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {what}: {command:?}"))?;
        Self::adopt(what, child)
    }

    /// Like [`Process::start`], with stdout piped so that its lines can be read.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_talking(what: &str, command: &mut Command) -> Result<Self> {
        Self::start(what, command.stdout(Stdio::piped()))
    }

    fn adopt(what: &str, mut child: Child) -> Result<Self> {
        let pid = Pid::from_raw(child.id().cast_signed()).context("a process id of zero")?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?;
        let stdout = child.stdout.take();
        Ok(Self {
            what: what.to_owned(),
            child,
            pidfd,
            stdout,
            unread: Vec::new(),
        })
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Readable once the process has ended.
    #[must_use]
    pub fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    /// The next line that it prints.
    ///
    /// # Errors
    /// When it ends before, or does not print within [`LIMIT`].
    pub fn line(&mut self) -> Result<String> {
        let deadline = Instant::now() + patient(LIMIT);
        loop {
            if let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            let stdout = self.stdout.as_ref().context("its stdout is not a pipe")?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("{} printed no line within {LIMIT:?}", self.what);
            }
            if readable(&mut [PollFd::new(stdout, PollFlags::IN)], left)? {
                let mut buffer = [0_u8; 8192];
                match rustix::io::read(stdout, &mut buffer)? {
                    0 => bail!("{} ended: {}", self.what, self.child.wait()?),
                    count => self.unread.extend_from_slice(&buffer[..count]),
                }
            }
        }
    }

    /// The next line, which is JSON.
    ///
    /// # Errors
    /// As [`Process::line`], or when the line is not a `T`.
    pub fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("{} printed {line:?}", self.what))
    }

    /// Reads lines up to this one.
    ///
    /// # Errors
    /// As [`Process::line`].
    pub fn await_line(&mut self, wanted: &str) -> Result<()> {
        while self.line()? != wanted {}
        Ok(())
    }

    /// Tells a process that reads its stdin that it is over.
    pub fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it has ended already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        pidfd_send_signal(&self.pidfd, signal).with_context(|| format!("signalling {}", self.what))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it has not ended within [`LIMIT`].
    pub fn wait(&mut self) -> Result<ExitStatus> {
        if !readable(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], patient(LIMIT))? {
            bail!("{} did not end within {LIMIT:?}", self.what);
        }
        Ok(self.child.wait()?)
    }

    /// `None` while it runs.
    ///
    /// # Errors
    /// What waitpid(2) says.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Kills it with SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

//! Ctrl-C and SIGTERM: the demo ends at its next step, and so removes what it made.

use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result, bail};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Whether somebody wants the demo to end.
pub(crate) struct Interrupt(Receiver<()>);

impl Interrupt {
    /// From now on these signals no longer end the process.
    pub(crate) fn listen() -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let (mut interrupt, mut terminate) = {
            let _within = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    let _ = sender.send(());
                }
            });
        });
        Ok(Self(receiver))
    }

    /// Fails when a signal has come.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.try_recv().is_ok() {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Waits for a signal.
    pub(crate) fn wait(&self) -> Result<()> {
        self.0.recv().context("waiting for a signal")
    }
}

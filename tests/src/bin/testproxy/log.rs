//! The log: one JSON line for each event, written at once, so that a test can read it while the proxy runs.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use tests::proxy::Event;

/// Where events go; nowhere without a file.
#[derive(Debug)]
pub(crate) struct Log(Option<File>);

impl Log {
    /// Appends to `path`.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self> {
        let open = |path: &Path| {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.with_context(|| format!("opening {}", path.display()))
        };
        Ok(Self(path.map(open).transpose()?))
    }

    /// Writes an event, which is made only if somebody reads it. One write(2) to a file opened for appending: lines of
    /// two proxies do not mix.
    pub(crate) fn write(&self, event: impl FnOnce() -> Event) {
        let Some(mut file) = self.0.as_ref() else { return };
        let line = serde_json::to_string(&event()).map(|line| line + "\n");
        if let Err(error) = line
            .map_err(Into::into)
            .and_then(|line| file.write_all(line.as_bytes()))
        {
            eprintln!("writing the log: {error}");
        }
    }
}

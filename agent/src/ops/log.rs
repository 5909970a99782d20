//! The log: lines on standard error, for people or as JSON, of levels that can be changed while the agent runs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::log_level::{LogLevelError, LogLevels};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry};

/// The running log. Clones are the same.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    filter: Handle<EnvFilter, Registry>,
    levels: Mutex<LogLevels>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Log").field(&self.levels()).finish()
    }
}

impl Log {
    /// Starts it for this process; where one runs already that one goes on.
    ///
    /// # Errors
    /// When the levels are none.
    pub fn start(levels: &str, as_json: bool) -> Result<Self, LogLevelError> {
        let levels = LogLevels::parse(levels)?;
        let (filter, handle) = reload::Layer::new(EnvFilter::new(levels.to_string()));
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = if as_json {
            lines.json().flatten_event(true).boxed()
        } else {
            lines.with_target(false).with_ansi(false).boxed()
        };
        // An error says only that this process has a log already: a test's.
        let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
        Ok(Self(Arc::new(Inner {
            filter: handle,
            levels: Mutex::new(levels),
        })))
    }

    /// The levels now, as `info,agent::zds=debug`.
    #[must_use]
    pub fn levels(&self) -> String {
        self.0
            .levels
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .to_string()
    }

    /// Changes the levels, all of them, and returns what they are now.
    ///
    /// # Errors
    /// When they are none; nothing changes then.
    pub fn set(&self, levels: &str) -> Result<String, LogLevelError> {
        let levels = LogLevels::parse(levels)?;
        // Fails only when the log is gone, which lives as long as the process.
        let _ = self.0.filter.reload(EnvFilter::new(levels.to_string()));
        *self.0.levels.lock().unwrap_or_else(PoisonError::into_inner) = levels;
        Ok(self.levels())
    }
}

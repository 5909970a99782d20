//! The log: lines on standard error, level by `MESHGATE_LOG` (as tracing's `EnvFilter`), JSON by `MESHGATE_LOG_JSON=1`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// Starts it; a second call changes nothing.
pub(super) fn start() {
    let filter = EnvFilter::try_from_env("MESHGATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    let _ = if std::env::var_os("MESHGATE_LOG_JSON").is_some_and(|value| value == "1") {
        lines.json().try_init()
    } else {
        lines.with_ansi(false).try_init()
    };
}

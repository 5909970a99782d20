//! Reads what the programs tell of each decision, if they do.

use std::io;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::datapath::program_log::ProgramLog;

/// Logs for ever.
#[expect(
    deprecated,
    reason = "its successor is unsafe for types whose descriptor may change; this one cannot"
)]
pub(super) async fn tell(log: Option<ProgramLog>) -> io::Result<()> {
    let Some(log) = log else {
        return std::future::pending().await;
    };
    let mut log = AsyncFd::with_interest(log, Interest::READABLE)?;
    loop {
        let mut ready = log.readable_mut().await?;
        ready.get_inner_mut().flush();
        ready.clear_ready();
    }
}

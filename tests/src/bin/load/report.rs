//! Numbers and errors as JSON.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};

/// Name of an error number, as in errno(3).
pub(crate) fn errno(error: &io::Error) -> String {
    let name = match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => "ECONNREFUSED",
        Some(libc::ECONNRESET) => "ECONNRESET",
        Some(libc::ECONNABORTED) => "ECONNABORTED",
        Some(libc::ETIMEDOUT | libc::EINPROGRESS | libc::EAGAIN) => "ETIMEDOUT",
        Some(libc::EADDRINUSE) => "EADDRINUSE",
        Some(libc::EADDRNOTAVAIL) => "EADDRNOTAVAIL",
        Some(libc::ENETUNREACH) => "ENETUNREACH",
        Some(libc::EHOSTUNREACH) => "EHOSTUNREACH",
        Some(libc::EPERM) => "EPERM",
        Some(libc::EACCES) => "EACCES",
        Some(libc::EPIPE) => "EPIPE",
        Some(libc::ENOTCONN) => "ENOTCONN",
        Some(libc::EMFILE) => "EMFILE",
        Some(libc::EISCONN) => "EISCONN",
        _ => return error.to_string(),
    };
    name.to_owned()
}

/// What happened to many connections.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    micros: Vec<u64>,
    failed: BTreeMap<String, u64>,
}

impl Tally {
    /// One success.
    pub(crate) fn success(&mut self, took: Duration) {
        self.micros.push(took.as_micros() as u64);
    }

    /// One failure.
    pub(crate) fn failure(&mut self, error: &io::Error) {
        *self.failed.entry(errno(error)).or_default() += 1;
    }

    /// Adds another's.
    pub(crate) fn merge(&mut self, other: Self) {
        self.micros.extend(other.micros);
        for (name, count) in other.failed {
            *self.failed.entry(name).or_default() += count;
        }
    }

    /// How many failed, by name of the error.
    pub(crate) fn failures(&self) -> &BTreeMap<String, u64> {
        &self.failed
    }

    /// All of it.
    pub(crate) fn json(mut self, took: Duration) -> Value {
        self.micros.sort_unstable();
        let seconds = took.as_secs_f64();
        json!({
            "ok": self.micros.len(),
            "failed": self.failed,
            "seconds": seconds,
            "per_second": self.micros.len() as f64 / seconds,
            "p50_us": percentile(&self.micros, 50),
            "p99_us": percentile(&self.micros, 99),
            "max_us": self.micros.last(),
        })
    }
}

/// Value below which this share of the sorted values lies (nearest rank).
fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50), Some(50));
        assert_eq!(percentile(&hundred, 99), Some(99));
        assert_eq!(percentile(&[7], 99), Some(7));
        assert_eq!(percentile(&[], 50), None);
    }
}

//! How fast connections are accepted: a bucket of tokens, without a clock of its own.

use std::time::{Duration, Instant};

/// A limit of so many connections at once, and so many a second for ever.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Connections that are accepted at once after a quiet time.
    pub burst: u32,
    /// Connections per second in the long run; more than 0.
    pub per_second: f64,
}

/// Istio's agent accepts five a second and one at once, so that the second proxy of a rolling update waits for the
/// first. A burst of eight never makes a rolling update wait (two proxies, some retries), while a proxy that is turned
/// away again and again, and comes back without a pause as ztunnel does, still costs no more than five a second.
impl Default for Pace {
    fn default() -> Self {
        Self {
            burst: 8,
            per_second: 5.0,
        }
    }
}

/// The bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    pace: Pace,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(pace: Pace, now: Instant) -> Self {
        Self {
            pace,
            tokens: f64::from(pace.burst),
            filled: now,
        }
    }

    /// Takes a token, and says how long to wait before it may be used.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        let gained = now.duration_since(self.filled).as_secs_f64() * self.pace.per_second;
        self.tokens = (self.tokens + gained).min(f64::from(self.pace.burst)) - 1.0;
        self.filled = now;
        Duration::from_secs_f64((-self.tokens).max(0.0) / self.pace.per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_what_follows_comes_at_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(
            Pace {
                burst: 3,
                per_second: 5.0,
            },
            start,
        );
        let waits: Vec<_> = (0..5).map(|_| bucket.take(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 200, 400]);
    }

    #[test]
    fn quiet_time_fills_the_bucket_up_to_the_burst_only() {
        let start = Instant::now();
        let mut bucket = Bucket::new(
            Pace {
                burst: 2,
                per_second: 5.0,
            },
            start,
        );
        for _ in 0..2 {
            bucket.take(start);
        }
        assert_eq!(bucket.take(start + Duration::from_millis(200)), Duration::ZERO);
        let later = start + Duration::from_secs(3600);
        let waits: Vec<_> = (0..3).map(|_| bucket.take(later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 200]);
    }
}

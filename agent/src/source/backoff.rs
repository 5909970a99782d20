//! How long to wait before the next try: fast at first, at most [`LONGEST`], spread so that the agents of a cluster
//! do not come back all at once.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Delay after the first failure, before jitter.
const FIRST: Duration = Duration::from_millis(100);
/// Longest delay.
pub(super) const LONGEST: Duration = Duration::from_secs(15);

/// Counts failures in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The delay after one more failure.
    pub(super) fn failed(&mut self) -> Duration {
        let delay = delay(self.failures, random());
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// It works again: the next failure is a first one.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

/// The delay after `failures` earlier ones; `random` spreads it over the upper half.
fn delay(failures: u32, random: u64) -> Duration {
    let full = FIRST.saturating_mul(1 << failures.min(16)).min(LONGEST);
    let share = u32::try_from(random % 1000).unwrap_or(0);
    full / 2 + full / 2 * share / 1000
}

/// A number that differs between calls and processes; the standard library's hash keys are random enough for that.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_from_a_tenth_of_a_second_to_the_longest() {
        let table = [
            (0, 100),
            (1, 200),
            (3, 800),
            (7, 12_800),
            (8, 15_000),
            (16, 15_000),
            (u32::MAX, 15_000),
        ];
        for (failures, full) in table {
            let full = Duration::from_millis(full);
            assert_eq!(delay(failures, 0), full / 2, "{failures}");
            let highest = delay(failures, 999);
            assert!(
                highest > full / 10 * 9 && highest <= full,
                "{failures}: {highest:?}"
            );
        }
    }

    #[test]
    fn success_starts_again_from_the_first_delay() {
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            backoff.failed();
        }
        assert!(backoff.failed() >= LONGEST / 2);
        backoff.succeeded();
        assert!(backoff.failed() <= FIRST);
    }
}

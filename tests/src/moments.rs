//! Random moments from a seed, so that a run can be repeated as far as the machine allows.

use std::time::Duration;

/// Numbers by xorshift (Marsaglia, 2003).
#[derive(Debug)]
pub struct Moments(u64);

impl Moments {
    /// From `MESHGATE_SEED`, else from this number; prints it.
    #[must_use]
    pub fn new(default: u64) -> Self {
        let given = std::env::var("MESHGATE_SEED").ok();
        let seed = given.and_then(|text| text.parse().ok()).unwrap_or(default);
        eprintln!("MESHGATE_SEED={seed}");
        Self(seed.max(1))
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Lets a random time below `longest` pass: the moment itself is the point, there is no event to wait for.
    pub fn pass(&mut self, longest: Duration) {
        std::thread::sleep(Duration::from_micros(self.below(longest.as_micros() as u64)));
    }
}

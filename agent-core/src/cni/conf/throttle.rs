//! How often a configuration is repaired that another program writes again and again: at once, if that happens every few
//! seconds, else once a second. Times are durations since any fixed moment.

use std::time::Duration;

/// A repair without delay is allowed so often.
const EVERY: Duration = Duration::from_secs(5);
/// Longest delay of a repair.
const LONGEST: Duration = Duration::from_secs(1);
/// So many delayed repairs one after the other are a quarrel.
const QUARREL: u32 = 5;

/// Repairs of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// From when on a repair needs no delay.
    free_from: Duration,
    /// A delayed repair is allowed from then on.
    delayed_until: Option<Duration>,
    in_a_row: u32,
}

impl Throttle {
    /// Asks for a repair now: the delay that is still to pass, zero for at once.
    pub fn ask(&mut self, now: Duration) -> Duration {
        match self.delayed_until {
            Some(until) if now < until => return until - now,
            Some(until) => {
                self.delayed_until = None;
                let is_late = now >= until + EVERY;
                self.in_a_row = if is_late {
                    0
                } else {
                    self.in_a_row.saturating_add(1)
                };
                self.free_from = now + EVERY;
                return Duration::ZERO;
            }
            None => {}
        }
        if now >= self.free_from {
            self.in_a_row = 0;
            self.free_from = now + EVERY;
            return Duration::ZERO;
        }
        let delay = (self.free_from - now).min(LONGEST);
        self.delayed_until = Some(now + delay);
        delay
    }

    /// When another program seems to undo each repair: in how long it would have given up, if it does nothing more.
    #[must_use]
    pub fn quarrel(&self, now: Duration) -> Option<Duration> {
        let rest = self.free_from.checked_sub(now).filter(|rest| !rest.is_zero())?;
        (self.in_a_row > QUARREL).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn rare_repairs_are_done_at_once() {
        let mut throttle = Throttle::default();
        for at in [0, 5_000, 10_000, 60_000] {
            assert_eq!(throttle.ask(ms(at)), ms(0), "{at}");
            assert_eq!(throttle.quarrel(ms(at)), None);
        }
    }

    #[test]
    fn frequent_ones_once_a_second_and_then_it_is_a_quarrel() {
        let mut throttle = Throttle::default();
        let mut done = Vec::new();
        // A thousand a minute.
        for at in (0..20_000).step_by(60) {
            if throttle.ask(ms(at)).is_zero() {
                done.push(at);
            }
        }
        assert!((19..=20).contains(&done.len()), "{done:?}");
        let rest = throttle.quarrel(ms(20_000)).unwrap();
        assert!(rest <= EVERY, "{rest:?}");
        assert_eq!(throttle.quarrel(ms(40_000)), None, "it is over");
        assert_eq!(throttle.ask(ms(40_000)), ms(0));
        assert_eq!(throttle.quarrel(ms(40_001)), None);
    }

    #[test]
    fn a_delay_is_told_until_it_has_passed() {
        let mut throttle = Throttle::default();
        let asked: Vec<_> = [0, 100, 600, 1_100, 1_200].map(|at| throttle.ask(ms(at))).into();
        assert_eq!(asked, [0, 1_000, 500, 0, 1_000].map(ms));
    }
}

//! Figures of repeated measurements: medians, their spread, and ratios of what was measured side by side.

use serde_json::{Value, json};

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    /// Operations per second.
    pub(crate) rate: f64,
    /// Processor time of one operation in microseconds: of the client, the server, the proxy and the kernel for them.
    pub(crate) cpu_us: f64,
}

/// The same measured again and again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<Figure>);

impl Series {
    /// One more.
    pub(crate) fn push(&mut self, figure: Figure) {
        self.0.push(figure);
    }

    fn sorted(&self, of: impl Fn(&Figure) -> f64) -> Vec<f64> {
        sorted(self.0.iter().map(of).collect())
    }

    /// Median of the rates.
    pub(crate) fn rate(&self) -> f64 {
        median(&self.sorted(|figure| figure.rate))
    }

    /// Median of the processor times.
    pub(crate) fn cpu_us(&self) -> f64 {
        median(&self.sorted(|figure| figure.cpu_us))
    }

    /// Smallest and largest rate.
    pub(crate) fn spread(&self) -> (f64, f64) {
        let rates = self.sorted(|figure| figure.rate);
        (
            rates.first().copied().unwrap_or_default(),
            rates.last().copied().unwrap_or_default(),
        )
    }

    /// How many times faster than `other`: the median over the repeats, each compared with its neighbour in time, so
    /// that what slows the machine down for a while slows both.
    pub(crate) fn times(&self, other: &Self) -> f64 {
        let ratios = self.0.iter().zip(&other.0).map(|(a, b)| a.rate / b.rate);
        median(&sorted(ratios.collect()))
    }

    /// How many times less processor time than `other`, likewise.
    pub(crate) fn cheaper(&self, other: &Self) -> f64 {
        let ratios = self.0.iter().zip(&other.0).map(|(a, b)| b.cpu_us / a.cpu_us);
        median(&sorted(ratios.collect()))
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let (min, max) = self.spread();
        json!({ "median": self.rate(), "min": min, "max": max, "cpu_us": self.cpu_us() })
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Median of sorted values: the middle one, or the mean of the two in the middle. 0 of none.
fn median(sorted: &[f64]) -> f64 {
    let (len, at) = (sorted.len(), |index: usize| {
        sorted.get(index).copied().unwrap_or_default()
    });
    if len % 2 == 1 {
        at(len / 2)
    } else {
        f64::midpoint(at((len / 2).saturating_sub(1)), at(len / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(figures: &[(f64, f64)]) -> Series {
        let mut series = Series::default();
        for &(rate, cpu_us) in figures {
            series.push(Figure { rate, cpu_us });
        }
        series
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
        assert_eq!(median(&[]), 0.0);
        let series = series(&[(9.0, 1.0), (1.0, 3.0), (2.0, 2.0)]);
        assert_eq!(
            (series.rate(), series.cpu_us(), series.spread()),
            (2.0, 2.0, (1.0, 9.0))
        );
    }

    #[test]
    fn a_slow_moment_of_the_machine_does_not_change_a_ratio() {
        let quick = series(&[(20.0, 5.0), (4.0, 25.0), (20.0, 5.0)]);
        let slow = series(&[(10.0, 10.0), (2.0, 50.0), (10.0, 10.0)]);
        assert_eq!((quick.times(&slow), quick.cheaper(&slow)), (2.0, 2.0));
    }
}

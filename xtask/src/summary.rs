//! Steps, their outcome and their time; the table and the closing line that a run of several steps ends with.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::command::{display, say};
use crate::testrun::{self, Tests};

/// The steps so far.
#[derive(Default)]
pub(crate) struct Summary {
    rows: Vec<Row>,
}

struct Row {
    step: &'static str,
    outcome: Outcome,
    time: Duration,
    tests: Option<Tests>,
}

enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

impl Summary {
    /// Runs a step that is either well or an error; whether it was well.
    pub(crate) fn step(&mut self, step: &'static str, work: impl FnOnce() -> anyhow::Result<()>) -> bool {
        self.record(step, || (None, work()))
    }

    /// Runs `cargo test` as a step, and counts its tests; whether all passed.
    pub(crate) fn tests(&mut self, step: &'static str, command: &mut Command) -> bool {
        self.record(step, || match testrun::run(command) {
            Ok((tests, true)) => (Some(tests), Ok(())),
            Ok((tests, false)) => (Some(tests), Err(anyhow::anyhow!("`{}` failed", display(command)))),
            Err(error) => (None, Err(error)),
        })
    }

    /// Runs tests in a guest, which tells how they ended by what it prints only; `binaries` of them must come to their end.
    pub(crate) fn guest(
        &mut self,
        step: &'static str,
        binaries: u64,
        boot: impl FnOnce(fn(&mut Command) -> anyhow::Result<Tests>) -> anyhow::Result<Tests>,
    ) -> bool {
        self.record(step, || {
            let tests = match boot(|command| testrun::run(command).map(|(tests, _)| tests)) {
                Ok(tests) => tests,
                Err(error) => return (None, Err(error)),
            };
            let outcome = match &tests {
                tests if tests.binaries != binaries => Err(anyhow::anyhow!(
                    "{} of {binaries} test binaries came to their end",
                    tests.binaries
                )),
                tests if tests.failed > 0 => Err(anyhow::anyhow!("{} tests failed", tests.failed)),
                _ => Ok(()),
            };
            (Some(tests), outcome)
        })
    }

    /// Notes a step that is left out.
    pub(crate) fn skip(&mut self, step: &'static str, why: impl Into<String>) {
        let outcome = Outcome::Skipped(why.into());
        self.rows.push(Row {
            step,
            outcome,
            time: Duration::ZERO,
            tests: None,
        });
    }

    /// Prints the table and which tests were skipped; whether no step failed.
    pub(crate) fn print(&self) -> bool {
        println!("\n{}", self.table());
        for skipped in self
            .rows
            .iter()
            .filter_map(|row| row.tests.as_ref())
            .flat_map(|tests| &tests.skipped)
        {
            println!("skipped: {skipped}");
        }
        !self
            .rows
            .iter()
            .any(|row| matches!(row.outcome, Outcome::Failed(_)))
    }

    /// The closing line: the tests of all steps. A step that failed without a failed test counts as one, so that the
    /// line never says that nothing failed when something did.
    pub(crate) fn closing_line(&self) -> String {
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for row in &self.rows {
            if let Some(tests) = &row.tests {
                passed += tests.really_passed();
                skipped += tests.all_skipped();
            }
            let step = u64::from(matches!(row.outcome, Outcome::Failed(_)));
            failed += row.tests.as_ref().map_or(0, |tests| tests.failed).max(step);
        }
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    fn record(
        &mut self,
        step: &'static str,
        work: impl FnOnce() -> (Option<Tests>, anyhow::Result<()>),
    ) -> bool {
        say(step);
        let start = Instant::now();
        let (tests, result) = work();
        let outcome = match result {
            Ok(()) => Outcome::Passed,
            Err(error) => {
                eprintln!("{step}: {error:#}");
                Outcome::Failed(format!("{error:#}"))
            }
        };
        let well = matches!(outcome, Outcome::Passed);
        self.rows.push(Row {
            step,
            outcome,
            time: start.elapsed(),
            tests,
        });
        well
    }

    fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.step.len()).max().unwrap_or(0);
        let lines: Vec<_> = self.rows.iter().map(|row| row.line(width)).collect();
        lines.join("\n")
    }
}

impl Row {
    fn line(&self, width: usize) -> String {
        let (word, why) = match &self.outcome {
            Outcome::Passed => ("ok", ""),
            Outcome::Failed(why) => ("FAILED", why.as_str()),
            Outcome::Skipped(why) => ("skipped", why.as_str()),
        };
        let numbers = self.tests.as_ref().map(Tests::to_string).unwrap_or_default();
        let gap = if numbers.is_empty() || why.is_empty() {
            ""
        } else {
            "; "
        };
        let line = format!(
            "{:width$}  {word:7}  {:>4} s  {numbers}{gap}{why}",
            self.step,
            self.time.as_secs()
        );
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_all_steps_are_summed() {
        let mut summary = Summary::default();
        for _ in 0..2 {
            let tests = Tests {
                passed: 3,
                failed: 1,
                ignored: 1,
                skipped: vec!["probes: needs root".to_owned()],
                ..Tests::default()
            };
            summary.record("tests", || (Some(tests), Ok(())));
        }
        assert_eq!(summary.closing_line(), "4 passed, 2 failed, 4 skipped");
    }

    #[test]
    fn a_guest_passes_when_all_its_test_binaries_end_and_no_test_fails() {
        for (ended, failed, wanted) in [(2, 0, true), (1, 0, false), (2, 1, false)] {
            let tests = Tests {
                passed: 5,
                failed,
                binaries: ended,
                ..Tests::default()
            };
            let mut summary = Summary::default();
            assert_eq!(
                summary.guest("guest", 2, |_| Ok(tests)),
                wanted,
                "{ended} {failed}"
            );
        }
    }

    #[test]
    fn a_failed_step_counts_as_one_failure_and_shows_why() {
        let mut summary = Summary::default();
        assert!(!summary.step("format", || anyhow::bail!("not formatted")));
        summary.skip("licences", "no cargo-deny");
        assert_eq!(summary.closing_line(), "0 passed, 1 failed, 0 skipped");
        assert_eq!(
            summary.table(),
            "format    FAILED      0 s  not formatted\nlicences  skipped     0 s  no cargo-deny"
        );
    }

    #[test]
    fn a_failed_test_is_not_counted_twice() {
        let mut summary = Summary::default();
        let tests = Tests {
            passed: 1,
            failed: 2,
            ..Tests::default()
        };
        summary.record("tests", || (Some(tests), Err(anyhow::anyhow!("failed"))));
        assert_eq!(summary.closing_line(), "1 passed, 2 failed, 0 skipped");
    }
}

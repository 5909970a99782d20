//! Steps, their outcome and their time; the table and the closing line that a run of several steps ends with.

use std::io::{self, BufRead, BufReader, Write};
use std::ops::AddAssign;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::command::{display, say};

/// How many tests passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// The steps so far.
#[derive(Default)]
pub(crate) struct Summary {
    rows: Vec<Row>,
}

struct Row {
    step: &'static str,
    outcome: Outcome,
    time: Duration,
    tests: Option<Counts>,
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
        self.record(step, || match count_tests(command) {
            Ok((counts, true)) => (Some(counts), Ok(())),
            Ok((counts, false)) => (
                Some(counts),
                Err(anyhow::anyhow!("`{}` failed", display(command))),
            ),
            Err(error) => (None, Err(error)),
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

    /// Prints the table; whether no step failed.
    pub(crate) fn print(&self) -> bool {
        println!("\n{}", self.table());
        !self
            .rows
            .iter()
            .any(|row| matches!(row.outcome, Outcome::Failed(_)))
    }

    /// The closing line: the tests of all steps. A step that failed without a failed test counts as one, so that the
    /// line never says that nothing failed when something did.
    pub(crate) fn closing_line(&self) -> String {
        let mut total = Counts::default();
        for row in &self.rows {
            let tests = row.tests.unwrap_or_default();
            total += tests;
            total.failed += u64::from(matches!(row.outcome, Outcome::Failed(_)) && tests.failed == 0);
        }
        format!(
            "{} passed, {} failed, {} skipped",
            total.passed, total.failed, total.skipped
        )
    }

    fn record(
        &mut self,
        step: &'static str,
        work: impl FnOnce() -> (Option<Counts>, anyhow::Result<()>),
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
        let lines = self.rows.iter().map(|row| {
            let (word, why) = match &row.outcome {
                Outcome::Passed => ("ok", String::new()),
                Outcome::Failed(why) => ("FAILED", why.clone()),
                Outcome::Skipped(why) => ("skipped", why.clone()),
            };
            let tests = row
                .tests
                .map(|t| format!("{} passed, {} failed, {} ignored", t.passed, t.failed, t.skipped));
            let note = [tests.unwrap_or_default(), why]
                .into_iter()
                .filter(|text| !text.is_empty());
            let note = note.collect::<Vec<_>>().join("; ");
            let line = format!(
                "{:width$}  {word:7}  {:>4} s  {note}",
                row.step,
                row.time.as_secs()
            );
            line.trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Passes the output of `cargo test` on while it comes; its numbers, and whether it succeeded.
fn count_tests(command: &mut Command) -> anyhow::Result<(Counts, bool)> {
    let text = display(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{text}`"))?;
    let output = child.stdout.take().context("the child has no stdout")?;
    let counts =
        pass_on(BufReader::new(output), &mut io::stdout()).with_context(|| format!("lost `{text}`"))?;
    let status = child.wait().with_context(|| format!("lost `{text}`"))?;
    Ok((counts, status.success()))
}

/// Copies line by line; the sum of the numbers in them.
fn pass_on(from: impl BufRead, to: &mut impl Write) -> io::Result<Counts> {
    let mut counts = Counts::default();
    for line in from.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        writeln!(to, "{line}")?;
        counts += parse_result(&line).unwrap_or_default();
    }
    Ok(counts)
}

/// The numbers in libtest's closing line:
/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
fn parse_result(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |word: &str| {
        numbers
            .split("; ")
            .find_map(|part| part.strip_suffix(word)?.trim().parse().ok())
    };
    Some(Counts {
        passed: number("passed")?,
        failed: number("failed")?,
        skipped: number("ignored")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_a_test_binary_is_read() {
        let good =
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(
            parse_result(good),
            Some(Counts {
                passed: 3,
                failed: 0,
                skipped: 1
            })
        );
        let bad = "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.00s";
        assert_eq!(
            parse_result(bad),
            Some(Counts {
                passed: 10,
                failed: 2,
                skipped: 0
            })
        );
        for other in [
            "",
            "test result: ok",
            "running 3 tests",
            "a test result: ok. 3 passed; 0 failed; 0 ignored",
        ] {
            assert_eq!(parse_result(other), None, "{other}");
        }
    }

    #[test]
    fn the_numbers_of_all_test_binaries_are_summed_and_the_output_passed_on() {
        let output =
            "running 2 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n";
        let output = output.repeat(2);
        let mut shown = Vec::new();
        let counts = pass_on(output.as_bytes(), &mut shown).unwrap();
        assert_eq!(
            counts,
            Counts {
                passed: 4,
                failed: 0,
                skipped: 2
            }
        );
        assert_eq!(shown, output.as_bytes());
    }

    #[test]
    fn the_numbers_of_all_steps_are_summed() {
        let mut summary = Summary::default();
        for _ in 0..2 {
            summary.record("tests", || {
                (
                    Some(Counts {
                        passed: 2,
                        failed: 1,
                        skipped: 3,
                    }),
                    Ok(()),
                )
            });
        }
        assert_eq!(summary.closing_line(), "4 passed, 2 failed, 6 skipped");
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
}

//! A run of `cargo test`: its output passed on, and what it says of the tests read along the way.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::command::display;

/// What the test binaries said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tests {
    /// By libtest's count, which includes tests that skipped themselves.
    pub(crate) passed: u64,
    /// Failed.
    pub(crate) failed: u64,
    /// Ignored by their attribute.
    pub(crate) ignored: u64,
    /// Test binaries that came to their end.
    pub(crate) binaries: u64,
    /// Skipped themselves, because this machine lacks something: name and reason.
    pub(crate) skipped: Vec<String>,
}

/// Runs with the output shown while it comes; what it says, and whether it succeeded.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<(Tests, bool)> {
    let text = display(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{text}`"))?;
    let output = child.stdout.take().context("the child has no stdout")?;
    let tests =
        pass_on(BufReader::new(output), &mut io::stdout()).with_context(|| format!("lost `{text}`"))?;
    let status = child.wait().with_context(|| format!("lost `{text}`"))?;
    Ok((tests, status.success()))
}

impl Tests {
    /// Passed and did not skip themselves.
    pub(crate) fn really_passed(&self) -> u64 {
        self.passed.saturating_sub(self.skipped.len() as u64)
    }

    /// Ignored or skipped themselves.
    pub(crate) fn all_skipped(&self) -> u64 {
        self.ignored + self.skipped.len() as u64
    }

    /// Takes in a line of the output.
    fn read(&mut self, line: &str) {
        if let Some(skipped) = line.strip_prefix("SKIPPED ") {
            self.skipped.push(skipped.to_owned());
        }
        if let Some((passed, failed, ignored)) = parse_result(line) {
            self.passed += passed;
            self.failed += failed;
            self.ignored += ignored;
            self.binaries += 1;
        }
    }
}

impl fmt::Display for Tests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.really_passed(),
            self.failed,
            self.all_skipped()
        )
    }
}

/// Copies line by line, and reads along.
fn pass_on(from: impl BufRead, to: &mut impl Write) -> io::Result<Tests> {
    let mut tests = Tests::default();
    for line in from.split(b'\n') {
        let line = line?;
        // A console ends its lines in its own way.
        let line = String::from_utf8_lossy(line.trim_ascii_end());
        writeln!(to, "{line}")?;
        tests.read(&line);
    }
    Ok(tests)
}

/// Passed, failed and ignored in libtest's closing line:
/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
fn parse_result(line: &str) -> Option<(u64, u64, u64)> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |word: &str| {
        numbers
            .split("; ")
            .find_map(|part| part.strip_suffix(word)?.trim().parse().ok())
    };
    Some((number("passed")?, number("failed")?, number("ignored")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_a_test_binary_is_read() {
        for (line, numbers) in [
            (
                "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out",
                Some((3, 0, 1)),
            ),
            (
                "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out",
                Some((10, 2, 0)),
            ),
            ("test result: ok", None),
            ("running 3 tests", None),
            ("a test result: ok. 3 passed; 0 failed; 0 ignored", None),
        ] {
            assert_eq!(parse_result(line), numbers, "{line}");
        }
    }

    #[test]
    fn the_numbers_of_all_test_binaries_are_summed_and_the_output_is_passed_on() {
        let output = "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n".repeat(2);
        let mut shown = Vec::new();
        let tests = pass_on(output.as_bytes(), &mut shown).unwrap();
        assert_eq!(tests.to_string(), "4 passed, 0 failed, 2 skipped");
        assert_eq!(shown, output.as_bytes());
    }

    #[test]
    fn a_test_that_skipped_itself_did_not_pass() {
        let output = "---- probes stdout ----\nSKIPPED probes: needs root\n\ntest result: ok. 2 passed; 0 failed; \
                      0 ignored; 0 measured\n";
        let tests = pass_on(output.as_bytes(), &mut Vec::new()).unwrap();
        assert_eq!(tests.to_string(), "1 passed, 0 failed, 1 skipped");
        assert_eq!(tests.skipped, ["probes: needs root"]);
    }
}

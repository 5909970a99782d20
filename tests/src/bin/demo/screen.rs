//! What the demo prints: sections, checked lines, commands with their output. Colour only for a terminal.

use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Columns up to the reason in a table of trials: mark, from, name, address, way, client.
const WIDTHS: [usize; 5] = [7, 8, 18, 8, 8];

/// Standard output.
pub(crate) struct Screen {
    colour: bool,
}

/// How a piece of text looks on a terminal (ECMA-48, "select graphic rendition").
#[derive(Clone, Copy)]
enum Look {
    Strong = 1,
    Faint = 2,
    Red = 31,
    Green = 32,
}

impl Screen {
    /// With colour if it is a terminal and the environment does not object (no-color.org).
    pub(crate) fn of_stdout() -> Self {
        Self {
            colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    fn paint(&self, look: Look, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\x1b[{}m{text}\x1b[0m", look as u8)
        } else {
            text.to_owned()
        }
    }

    fn mark(&self, well: bool) -> String {
        if well {
            self.paint(Look::Green, "✓")
        } else {
            self.paint(Look::Red, "✗")
        }
    }

    /// A heading, and what the reader shall look for.
    pub(crate) fn section(&self, heading: &str, text: &str) {
        say(&format!("\n{}", self.paint(Look::Strong, heading)));
        for line in text.lines() {
            say(&self.paint(Look::Faint, line).to_string());
        }
    }

    /// Something that is done.
    pub(crate) fn done(&self, what: &str, told: &str) {
        say(&format!("  {} {what:<8} {told}", self.mark(true)));
    }

    /// Something that is done, and how long it took.
    pub(crate) fn timed(&self, what: &str, told: &str, took: Duration) {
        let took = self.paint(Look::Faint, &format!("{} ms", took.as_millis()));
        say(&format!("  {} {what:<8} {told}  {took}", self.mark(true)));
    }

    /// Heads of the table of trials.
    pub(crate) fn heads(&self) {
        let line = columns(&["FROM", "TO", "", "PROXY", "CLIENT"]);
        say(&format!("    {}WHY", self.paint(Look::Faint, &line)));
    }

    /// A line of the table of trials.
    pub(crate) fn row(&self, well: bool, cells: &[&str; 5], why: &str) {
        let line = format!("{}{}", columns(cells), self.paint(Look::Faint, why));
        say(&format!("  {} {}", self.mark(well), line.trim_end()));
    }

    /// What is not as told, below its line.
    pub(crate) fn fault(&self, fault: &str) {
        say(&format!("      {}", self.paint(Look::Red, fault)));
    }

    /// A command as the reader would give it, and what it printed.
    pub(crate) fn command(&self, line: &str, output: &str) {
        say(&format!("\n  {}", self.paint(Look::Strong, &format!("$ {line}"))));
        self.indented(output);
    }

    /// A line of its own; empty to set apart what follows.
    pub(crate) fn line(&self, text: &str) {
        say(text);
    }

    /// Text as it is.
    pub(crate) fn indented(&self, text: &str) {
        for line in text.lines() {
            say(&format!("  {line}"));
        }
    }

    /// Why the demo failed, on standard error.
    pub(crate) fn failure(&self, error: &anyhow::Error) {
        eprintln!("\n{} {error:#}", self.mark(false));
    }
}

/// Prints a line. That nobody reads on (a pipe into `head`) is no reason to stop without cleaning up.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn columns(cells: &[&str; 5]) -> String {
    let padded = cells
        .iter()
        .zip(WIDTHS)
        .map(|(cell, width)| format!("{cell:width$}  "));
    padded.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_only() {
        let (plain, terminal) = (Screen { colour: false }, Screen { colour: true });
        assert_eq!(plain.paint(Look::Red, "x"), "x");
        assert_eq!(terminal.paint(Look::Red, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(terminal.paint(Look::Faint, ""), "");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let long = columns(&["outside", "loopback", "[fd00:250::fa]:80", "out, in", "loopback"]);
        let short = columns(&["node", "", "", "no", "node"]);
        assert_eq!(long.chars().count(), short.chars().count());
    }
}

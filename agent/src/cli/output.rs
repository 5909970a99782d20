//! Tables for people and JSON for scripts, from the same rows.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns.
    Table,
    /// JSON, indented.
    Json,
}

/// Prints a value as JSON.
///
/// # Errors
/// When it cannot be written.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

/// Prints lines as they are.
///
/// # Errors
/// When they cannot be written.
pub fn lines<S: AsRef<str>>(lines: impl IntoIterator<Item = S>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{}", line.as_ref())?;
    }
    Ok(())
}

/// Aligned columns under a heading; empty when there are no rows.
#[must_use]
pub fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heading[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |cells: [&str; N]| {
        let padded: Vec<_> = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    let body = rows
        .iter()
        .map(|row| line(std::array::from_fn(|column| row[column].as_str())));
    std::iter::once(line(heading)).chain(body).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a".into(), "12345".into()], ["bcd".into(), "1".into()]];
        assert_eq!(table(["N", "V"], &rows), ["N    V", "a    12345", "bcd  1"]);
        assert_eq!(table(["N"], &[]), Vec::<String>::new());
    }
}

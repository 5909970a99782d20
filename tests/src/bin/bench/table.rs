//! Aligned columns: text to the left, numbers to the right.

/// Lines of a table under its heads; the first `texts` columns are texts.
pub(crate) fn table(heads: &[&str], texts: usize, rows: &[Vec<String>]) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| length(cell));
        cells.chain([length(heads[column])]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column < texts {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(&mut heads.iter().copied())];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    lines
}

/// A number for people: three digits at least, thousands apart.
pub(crate) fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_left_and_numbers_right() {
        let rows = [
            vec!["a".to_owned(), "1".to_owned()],
            vec!["long".to_owned(), "12,345".to_owned()],
        ];
        assert_eq!(
            table(&["X", "RATE"], 1, &rows),
            ["X       RATE", "a          1", "long  12,345"]
        );
    }

    #[test]
    fn numbers_have_thousands() {
        let told = [
            (2.34567, "2.35"),
            (123.4, "123"),
            (1234.0, "1,234"),
            (1_234_567.0, "1,234,567"),
        ];
        for (value, text) in told {
            assert_eq!(number(value), text);
        }
    }
}

//! What Meshgate must reach, and whether it did.

use serde_json::{Value, json};

use crate::table::table;

/// A figure with its target.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// What is meant.
    pub(crate) what: String,
    /// The figure must be at least this, or at most.
    pub(crate) bound: Bound,
    /// What was measured.
    pub(crate) got: f64,
}

/// Which way a target lies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// The more the better.
    AtLeast(f64),
    /// The less the better.
    AtMost(f64),
}

impl Target {
    /// Whether it is reached.
    pub(crate) fn met(&self) -> bool {
        match self.bound {
            Bound::AtLeast(wanted) => self.got >= wanted,
            Bound::AtMost(wanted) => self.got <= wanted,
        }
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let (bound, wanted) = match self.bound {
            Bound::AtLeast(wanted) => ("at_least", wanted),
            Bound::AtMost(wanted) => ("at_most", wanted),
        };
        json!({ "what": self.what, "bound": bound, "wanted": wanted, "got": self.got, "met": self.met() })
    }
}

/// How many are met, and those that are not, for people.
pub(crate) fn lines(targets: &[Target]) -> Vec<String> {
    let missed: Vec<Vec<String>> = targets
        .iter()
        .filter(|target| !target.met())
        .map(|target| {
            let wanted = match target.bound {
                Bound::AtLeast(wanted) => format!("≥ {wanted}"),
                Bound::AtMost(wanted) => format!("≤ {wanted}"),
            };
            vec![target.what.clone(), wanted, format!("{:.3}", target.got)]
        })
        .collect();
    let mut lines = vec![format!(
        "{} of {} targets met",
        targets.len() - missed.len(),
        targets.len()
    )];
    if !missed.is_empty() {
        lines.extend(table(&["MISSED", "WANTED", "GOT"], 1, &missed));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_met_on_their_side() {
        let met = |bound, got| {
            let what = String::new();
            Target { what, bound, got }.met()
        };
        assert!(met(Bound::AtLeast(1.25), 1.25) && !met(Bound::AtLeast(1.25), 1.24));
        assert!(met(Bound::AtMost(1.0), 0.4) && !met(Bound::AtMost(1.0), 1.1));
    }
}

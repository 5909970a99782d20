//! Each file says what it is for, stays short, and is named for its subject.

use super::tree::Tree;

/// Longer files have more than one job.
const MAX_LINES: usize = 400;
/// Names that say nothing of a file's subject.
const EMPTY_NAMES: [&str; 6] = ["util", "utils", "helper", "helpers", "manager", "managers"];

pub(super) fn problems(tree: &Tree) -> Vec<String> {
    tree.files("", ".rs")
        .flat_map(|(path, file)| of_file(path, &file.text))
        .collect()
}

fn of_file(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if !text.starts_with("//!") {
        problems.push(format!(
            "{path}:1: say on the first line, after `//!`, what this file is for"
        ));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        problems.push(format!(
            "{path}: {lines} lines are more than {MAX_LINES}: give one of its jobs a file"
        ));
    }
    let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
    if let Some(word) = stem.split('_').find(|word| EMPTY_NAMES.contains(word)) {
        problems.push(format!(
            "{path}: `{word}` says nothing: name the file for what it knows"
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_doc_few_lines_and_a_subject_is_well() {
        assert_eq!(of_file("agent/src/zds/wire.rs", "//! Messages.\n"), [""; 0]);
    }

    #[test]
    fn each_rule_finds_its_offender() {
        assert_eq!(of_file("a.rs", "use b;\n").len(), 1);
        assert_eq!(of_file("a.rs", &format!("//! A.\n{}", "\n".repeat(400))).len(), 1);
        assert_eq!(of_file("src/net_helpers.rs", "//! A.\n").len(), 1);
        assert_eq!(of_file("src/manager.rs", "//! A.\n").len(), 1);
    }
}
